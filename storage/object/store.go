// Package object is the S3 object model over a meta.Store and a blob.Store:
// buckets, objects, listing, conditions and multipart uploads, written once
// for every backend that has those two. ARCHITECTURE.md, "The object model",
// has the keys and the order of steps; record.go has the encodings.
//
// # What survives what
//
// A write is acknowledged when its extents are sealed and the batch with its
// record is durable. If that batch fails in a way that leaves its outcome open
// (an I/O error, not a conflict), its extents stay reserved until the next
// start, which finds out from the x entries whether they are anybody's.
package object

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objcached/objcached/internal/reqid"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/meta"
)

// Options configures a Store. The zero value is a valid configuration.
type Options struct {
	Verify storage.VerifyMode
	Logger *slog.Logger // default: discards
	// Now and After are the clock (default: the system's).
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Rand gives ids their random bytes (default: crypto/rand.Reader). Reads
	// are serialised.
	Rand io.Reader
	// UUID names the store. Empty takes the one it has, or makes one.
	UUID string
	// FreeGrace is how long dropped extents are kept before they are freed,
	// for backends whose readers in other processes hold no pins here.
	FreeGrace time.Duration
	// ScrubInterval starts a background scrub this long after Open and after
	// the end of each scrub; zero: none. ScrubRate is in bytes per second;
	// zero: unlimited.
	ScrubInterval time.Duration
	ScrubRate     int64
	// OnCorrupt is called for every bad block a read or scrub meets.
	OnCorrupt func(*storage.CorruptError)
	// MaxBuckets is the most buckets of one tenant (default 10,000), MaxUploads
	// the most unfinished uploads in one bucket (default 100,000). Several
	// processes over one store each count for themselves.
	MaxBuckets, MaxUploads int
}

// Version is the version of the encodings in meta. A store of a newer one is
// refused; one of an older is read as it is and from then on written in this.
//
//	1  the first
//	2  descriptions may end with fields (fields.go) and have short checksums
const Version = 2

// Store implements storage.Store and storage.MultiOpener.
type Store struct {
	meta meta.Store
	blob blob.Store
	o    Options

	randMu     sync.Mutex
	lastUpload uint64 // the time in the newest upload id; under randMu

	nameMu   sync.RWMutex // held by the removal of a bucket's name, shared by look-ups in sys
	bucketMu sync.RWMutex
	buckets  map[string]*bucket // by name; those seen so far
	// perTenant is the number of buckets by tenant; under bucketMu.
	perTenant map[string]int

	usage    usage
	gate     *gate
	pins     pins
	reap     *reaper
	stripes  [256]sync.Mutex // taken by a commit that met a conflict
	verified *verifiedCache  // nil unless VerifyFirstRead

	restored   chan struct{} // closed when the free list is restored, or could not be
	restoreErr error         // why not; read after restored is closed

	closing  chan struct{} // closed when Close begins
	stop     chan struct{} // closed when it has waited for all calls
	wg       sync.WaitGroup
	closed   chan struct{}
	closeErr error

	uuid  string
	stats counters
}

type counters struct {
	corrupt, garbage, opened, doubtful atomic.Int64
}

// Stats is a snapshot of a store's counters.
type Stats struct {
	CorruptBlocks int64 // met since the start
	Garbage       int64 // dropped objects and parts not yet freed
	OpenObjects   int64
	Doubtful      int64 // commits whose outcome was left open by an error
	Blob          blob.Stats
}

var (
	_ storage.Store       = (*Store)(nil)
	_ storage.MultiOpener = (*Store)(nil)
)

// Open makes a Store over m and b, which it owns from then on, also on error.
// It serves reads when it returns; the free list is restored in the
// background and the first write that needs space waits for it.
func Open(ctx context.Context, m meta.Store, b blob.Store, o Options) (*Store, error) {
	s := &Store{
		meta:      m,
		blob:      b,
		o:         o,
		buckets:   make(map[string]*bucket),
		perTenant: make(map[string]int),
		gate:      newGate(),
		restored:  make(chan struct{}),
		closing:   make(chan struct{}),
		stop:      make(chan struct{}),
		closed:    make(chan struct{}),
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.After == nil {
		s.o.After = time.After
	}
	if s.o.Rand == nil {
		s.o.Rand = rand.Reader
	}
	if s.o.MaxBuckets <= 0 {
		s.o.MaxBuckets = 10_000
	}
	if s.o.MaxUploads <= 0 {
		s.o.MaxUploads = 100_000
	}
	if o.Verify == storage.VerifyFirstRead {
		s.verified = newVerifiedCache()
	}
	s.usage.last = make(chan struct{}, 1)
	s.reap = newReaper(s)
	parts, err := s.prepare(ctx)
	if err != nil {
		return nil, errors.Join(err, b.Close(), m.Close())
	}
	s.wg.Go(func() { s.restore(parts) })
	s.wg.Go(func() { s.reap.run(s.stop) })
	if s.o.ScrubInterval > 0 {
		s.wg.Go(s.scrubLoop)
	}
	return s, nil
}

// prepare checks the store's version and identity and finishes what a crash
// interrupted. It returns the partitions of buckets, past and present.
func (s *Store) prepare(ctx context.Context) ([]string, error) {
	if err := s.identify(ctx); err != nil {
		return nil, err
	}
	all, err := s.meta.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	parts := all[:0]
	for _, p := range all {
		if p != sysPartition {
			parts = append(parts, p)
		}
	}
	if err := s.recoverBuckets(ctx, parts); err != nil {
		return nil, err
	}
	// Before the first drop, or that one's garbage would be found here too.
	for _, p := range parts {
		if err := s.reap.load(ctx, p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// identify reads or writes the store's entry in sys.
func (s *Store) identify(ctx context.Context) error {
	key := []byte{sysStore}
	v, err := s.meta.Get(ctx, sysPartition, key, nil)
	if errors.Is(err, meta.ErrNotFound) {
		if s.uuid = s.o.UUID; s.uuid == "" {
			id, err := s.newID()
			if err != nil {
				return err
			}
			s.uuid = id.String()
		}
		var b meta.Batch
		b.IfAbsent(key)
		b.Set(key, appendString([]byte{Version}, s.uuid))
		return s.meta.Apply(ctx, sysPartition, &b)
	}
	if err != nil {
		return err
	}
	d := decoder{b: v}
	ver := d.byte()
	if ver > Version {
		return fmt.Errorf("object: the store has version %d, this program knows up to %d", ver, Version)
	}
	s.uuid = d.str()
	if d.bad {
		return fmt.Errorf("%w: the store's own", errBadRecord)
	}
	if s.o.UUID != "" && s.o.UUID != s.uuid {
		return fmt.Errorf("object: the metadata belongs to store %s, not %s", s.uuid, s.o.UUID)
	}
	if ver == Version {
		return nil
	}
	// Before the first record that an older program would take for damaged.
	var b meta.Batch
	b.IfEqual(key, v)
	b.Set(key, appendString([]byte{Version}, s.uuid))
	return s.meta.Apply(ctx, sysPartition, &b)
}

// restore tells the byte store what is live. The garbage that an earlier run
// left is live as well, and freed after that.
func (s *Store) restore(parts []string) {
	ctx, cancel := until(context.Background(), s.stop)
	defer cancel()
	n := 0
	err := s.blob.Restore(ctx, func(yield func(blob.Extent) error) error {
		for _, p := range parts {
			err := s.meta.Scan(ctx, p, []byte{keyExtent}, []byte{keyExtent + 1}, func(k, v []byte) (bool, error) {
				e, _, ok := parseExtent(k, v)
				if !ok {
					return false, fmt.Errorf("%w: extent entry %x", errBadRecord, k)
				}
				n++
				return true, yield(e)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("object: the free list could not be restored: %w", err)
		s.restoreErr = err
		select {
		case <-s.stop:
		default:
			s.o.Logger.Error("the store takes no writes", slog.Any("error", err))
		}
		close(s.restored)
		return
	}
	s.o.Logger.Info("free list restored", slog.Int("extents", n))
	close(s.restored)
}

// WaitRestored returns when the free list is restored, with the reason if it
// could not be.
func (s *Store) WaitRestored(ctx context.Context) error {
	select {
	case <-s.restored:
		return s.restoreErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until returns a context that also ends when stop is closed.
func until(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// UUID returns the store's name for itself.
func (s *Store) UUID() string { return s.uuid }

// Stats returns the store's counters.
func (s *Store) Stats() Stats {
	return Stats{
		CorruptBlocks: s.stats.corrupt.Load(),
		Garbage:       s.stats.garbage.Load(),
		OpenObjects:   s.stats.opened.Load(),
		Doubtful:      s.stats.doubtful.Load(),
		Blob:          s.blob.Stats(),
	}
}

// Close implements storage.Store. It also ends a scrub, frees the garbage that
// nobody reads, and closes the two stores below.
func (s *Store) Close() error {
	first := s.usage.shutOnce()
	if !first {
		<-s.closed
		return s.closeErr
	}
	close(s.closing)
	s.usage.wait()
	close(s.stop)
	s.wg.Wait()
	s.closeErr = errors.Join(s.blob.Close(), s.meta.Close())
	close(s.closed)
	return s.closeErr
}

func (s *Store) newID() (ID, error) {
	var id ID
	s.randMu.Lock()
	defer s.randMu.Unlock()
	if _, err := io.ReadFull(s.o.Rand, id[:]); err != nil {
		return id, fmt.Errorf("object: no random bytes for an id: %w", err)
	}
	return id, nil
}

// toStorage turns the errors of the layers below into the model's.
func toStorage(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, blob.ErrNoSpace):
		return fmt.Errorf("%w: %w", storage.ErrNoSpace, err)
	case errors.Is(err, meta.ErrClosed), errors.Is(err, blob.ErrClosed):
		return fmt.Errorf("%w: %w", storage.ErrClosed, err)
	}
	return err
}

// log returns the logger for a request.
func (s *Store) log(ctx context.Context) *slog.Logger {
	if id := reqid.From(ctx); id != "" {
		return s.o.Logger.With(slog.String("request_id", id))
	}
	return s.o.Logger
}

// corrupt counts and reports a bad block.
func (s *Store) corrupt(ctx context.Context, bucket, key string, block int64) *storage.CorruptError {
	err := &storage.CorruptError{Bucket: bucket, Key: key, Block: block}
	s.stats.corrupt.Add(1)
	s.log(ctx).Error("corrupt block", slog.String("bucket", bucket), slog.String("key", key), slog.Int64("block", block))
	if s.o.OnCorrupt != nil {
		s.o.OnCorrupt(err)
	}
	return err
}

// maxObject bounds what one put or part may claim to hold.
const maxObject = math.MaxInt64 >> 16
