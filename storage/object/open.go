package object

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// object is an opened object. It lies in one piece of memory together with
// its record when that is short, as a chunk's is.
type object struct {
	s      *Store
	bucket *bucket
	key    string
	rec    record
	segs   segmentTable // of a multipart object
	seen   *bitmap      // blocks verified before, for VerifyFirstRead
	closed atomic.Bool
	pinned bool

	room [448]byte // where the record lies if it fits
}

// gateBatch bounds how many look-ups are made in one stay behind the gate,
// and so how long the reaper may have to wait for them.
const gateBatch = 64

var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, MaxKeyLen+1); return &b }}

// load looks an object up and pins it. It must be called behind the gate.
func (o *object) load(ctx context.Context, s *Store, b *bucket, key string, buf *[]byte) error {
	if len(key) > MaxKeyLen {
		return storage.ErrNoSuchKey
	}
	*buf = appendObjectKey((*buf)[:0], key)
	v, err := s.meta.Get(ctx, b.part, *buf, o.room[:0])
	if err != nil {
		if errors.Is(err, meta.ErrNotFound) {
			return storage.ErrNoSuchKey
		}
		return toStorage(err)
	}
	err = o.rec.decode(v)
	if err == nil && !o.rec.readable(true) {
		err = errBadRecord
	}
	if err != nil {
		return fmt.Errorf("bucket %q: key %q: %w", b.Name, key, err)
	}
	o.s, o.bucket, o.key = s, b, key
	if o.rec.kind != kindInline {
		s.pins.pin(&o.rec.id)
		o.pinned = true
		if s.verified != nil {
			o.seen = s.verified.of(&o.rec)
		}
	}
	s.usage.n.Add(1) // the caller has entered: the store is open
	s.stats.opened.Add(1)
	return nil
}

// Open implements storage.Objects.
func (s *Store) Open(ctx context.Context, bucket, key string) (storage.Object, error) {
	if !s.usage.enter() {
		return nil, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	o := new(object)
	buf := keyBuffers.Get().(*[]byte)
	p := s.gate.enter()
	err = o.load(ctx, s, b, key, buf)
	s.gate.leave(p)
	keyBuffers.Put(buf)
	if err != nil {
		if storage.IsNoSuchKey(err) {
			err = s.missing(ctx, b)
		}
		return nil, err
	}
	return o, nil
}

// OpenMany implements storage.MultiOpener. Batches of keys are looked up side
// by side: a client that asks for layers waits for all of them (X_0 of Eq. 3),
// and a core that is idle until then may as well help.
func (s *Store) OpenMany(ctx context.Context, bucket string, keys []string) ([]storage.Object, error) {
	if !s.usage.enter() {
		return nil, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	m := opening{s: s, b: b, keys: keys, out: make([]storage.Object, len(keys)), stop: len(keys)}
	batches := (len(keys) + gateBatch - 1) / gateBatch
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), openers, batches) - 1 {
		wg.Go(func() { m.work(ctx) })
	}
	m.work(ctx)
	wg.Wait()
	if m.err == nil {
		return m.out, nil
	}
	for _, o := range m.out[m.stop:] {
		if o != nil {
			_ = o.Close() // found behind the first that is missing
		}
	}
	m.out = m.out[:m.stop]
	if storage.IsNoSuchKey(m.err) {
		if m.err = s.missing(ctx, b); storage.IsNoSuchKey(m.err) {
			return m.out, m.err
		}
	}
	storage.CloseAll(m.out)
	return nil, m.err
}

// opening is one OpenMany under way.
type opening struct {
	s    *Store
	b    *bucket
	keys []string
	out  []storage.Object // nil where not opened
	next atomic.Int64     // the batch to be taken next

	mu   sync.Mutex
	stop int   // the first key that failed; len(keys): none
	err  error // its error
}

// openers is the most goroutines one OpenMany uses.
const openers = 4

// work takes batches in order until there are none, or one before has failed.
func (m *opening) work(ctx context.Context) {
	buf := keyBuffers.Get().(*[]byte)
	defer keyBuffers.Put(buf)
	for {
		lo := int(m.next.Add(1)-1) * gateBatch
		m.mu.Lock()
		stop := m.stop
		m.mu.Unlock()
		if lo >= stop {
			return
		}
		hi := min(lo+gateBatch, len(m.keys))
		n, err := 0, ctx.Err()
		if err == nil {
			n, err = m.s.openBatch(ctx, m.b, m.keys[lo:hi], buf, m.out[lo:hi])
		}
		if err != nil {
			m.mu.Lock()
			if lo+n < m.stop {
				m.stop, m.err = lo+n, err
			}
			m.mu.Unlock()
			return
		}
	}
}

// openBatch opens keys into out and returns how many it has opened.
func (s *Store) openBatch(ctx context.Context, b *bucket, keys []string, buf *[]byte, out []storage.Object) (int, error) {
	objs := make([]object, len(keys))
	p := s.gate.enter()
	defer s.gate.leave(p)
	for i, key := range keys {
		if err := objs[i].load(ctx, s, b, key, buf); err != nil {
			return i, err
		}
		out[i] = &objs[i]
	}
	return len(keys), nil
}

// Stat implements storage.Objects.
func (s *Store) Stat(ctx context.Context, bucket, key string) (storage.ObjectInfo, error) {
	if !s.usage.enter() {
		return storage.ObjectInfo{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	var c current
	if checkKey(key) == nil {
		if err := s.lookup(ctx, b, appendObjectKey(nil, key), &c); err != nil {
			return storage.ObjectInfo{}, err
		}
	}
	if c.raw == nil {
		return storage.ObjectInfo{}, s.missing(ctx, b)
	}
	return c.rec.describe(key, true)
}

// Size implements storage.Object.
func (o *object) Size() int64 { return o.rec.size }

// Info implements storage.Object.
func (o *object) Info() (storage.ObjectInfo, error) { return o.rec.describe(o.key, true) }

// Close implements storage.Object.
func (o *object) Close() error {
	if !o.closed.CompareAndSwap(false, true) {
		return nil
	}
	if o.pinned {
		if g := o.s.pins.unpin(&o.rec.id); g != nil {
			o.s.reap.released(g)
		}
	}
	o.s.stats.opened.Add(-1)
	o.s.usage.leave()
	return nil
}
