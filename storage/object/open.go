package object

import (
	"context"
	"errors"
	"fmt"
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
const gateBatch = 256

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

// OpenMany implements storage.MultiOpener.
func (s *Store) OpenMany(ctx context.Context, bucket string, keys []string) ([]storage.Object, error) {
	if !s.usage.enter() {
		return nil, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	buf := keyBuffers.Get().(*[]byte)
	defer keyBuffers.Put(buf)
	out := make([]storage.Object, 0, len(keys))
	for len(keys) > 0 && err == nil {
		n := min(gateBatch, len(keys))
		if err = ctx.Err(); err == nil {
			out, err = s.openBatch(ctx, b, keys[:n], buf, out)
		}
		keys = keys[n:]
	}
	if storage.IsNoSuchKey(err) {
		if err = s.missing(ctx, b); storage.IsNoSuchKey(err) {
			return out, err
		}
	}
	if err != nil {
		storage.CloseAll(out)
		return nil, err
	}
	return out, nil
}

func (s *Store) openBatch(ctx context.Context, b *bucket, keys []string, buf *[]byte, out []storage.Object) ([]storage.Object, error) {
	objs := make([]object, len(keys))
	p := s.gate.enter()
	defer s.gate.leave(p)
	for i, key := range keys {
		if err := objs[i].load(ctx, s, b, key, buf); err != nil {
			return out, err
		}
		out = append(out, &objs[i])
	}
	return out, nil
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
