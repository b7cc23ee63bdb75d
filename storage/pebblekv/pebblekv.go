// Package pebblekv keeps metadata in Pebble, an LSM tree: the embedded
// meta.Store.
//
// A pair's Pebble key is one byte with the length of the partition's name, the
// name, and the key: bytewise order within a partition, and a partition is one
// range.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcached/objcached/storage/meta"
)

// Limits of names, in bytes.
const (
	MaxPartition = 255
	MaxKey       = 4 << 10
)

// ErrInvalid says that a partition or key is too long, or a partition empty.
var ErrInvalid = errors.New("pebblekv: invalid partition or key")

// ErrFailed says that the store takes no more writes, because the log could
// not be written or flushed. Reads go on; opening it again recovers it.
var ErrFailed = errors.New("pebblekv: write-ahead log failed; the store takes no writes until it is opened again")

// Options tunes a store. The zero value is ready for use.
type Options struct {
	FS            vfs.FS       // the disk if nil
	CacheBytes    int64        // block cache; 64 MiB if 0
	MemTableBytes uint64       // each of up to four memtables; 16 MiB if 0
	Logger        *slog.Logger // slog.Default if nil
	// Fatal ends the process. Pebble calls it where it cannot go on (its
	// manifest cannot be written, or it has found itself inconsistent), in
	// the middle of its work and with its locks held, so it must not return:
	// a call to Pebble after that may hang. The message has been logged.
	// os.Exit(1) if nil.
	Fatal func(msg string)
}

// Store is a meta.Store.
type Store struct {
	db    *pebble.DB
	gate  gate
	seed  maphash.Seed
	locks [stripes]sync.RWMutex
	log   *slog.Logger
	fatal func(string)

	// unsynced counts batches that are visible and not known to be durable.
	unsynced atomic.Int64
	failed   atomic.Pointer[error]
	opened   atomic.Bool

	background atomic.Int64 // failures of flushes and compactions
}

var _ meta.Store = (*Store)(nil)

// Open opens the store in dir, and makes it if there is none. It replays the
// write-ahead log, at most the memtables' size.
func Open(dir string, o Options) (_ *Store, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Store{seed: maphash.MakeSeed(), log: o.Logger, fatal: o.Fatal}
	if s.fatal == nil {
		s.fatal = exit
	}
	s.gate.init()
	defer func() {
		// Pebble panics, having let go of what it holds, when it cannot flush a
		// directory.
		if r := recover(); r != nil {
			cause, ok := r.(error)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("pebblekv: open: %w", cause)
		}
	}()

	cache := pebble.NewCache(o.CacheBytes)
	defer cache.Unref() // the DB keeps its own reference
	po := &pebble.Options{
		FS:                          watchFS{o.FS, s},
		Cache:                       cache,
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		FormatMajorVersion:          formatVersion,
		Logger:                      pebbleLogger{s},
		EventListener:               s.events(),
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       100,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                1000,
	}
	for i := range po.Levels[:6] {
		// 10 bits per key let 1 in 100 through. None on the last level: Pebble's
		// Get does not look at filters there.
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	po.Levels[6].FilterPolicy = pebble.NoFilterPolicy
	if s.db, err = pebble.Open(dir, po); err != nil {
		return nil, fmt.Errorf("pebblekv: open: %w", err)
	}
	s.opened.Store(true)
	return s, nil
}

// working reports whether the store is open and not about to close.
func (s *Store) working() bool { return s.opened.Load() && !s.gate.closed() }

// formatVersion is pinned: a newer Pebble must not move a store to a format
// that the release before ours cannot read.
const formatVersion = pebble.FormatValueSeparation

// appendPrefix appends what all Pebble keys of a partition begin with.
func appendPrefix(dst []byte, partition string) ([]byte, error) {
	if len(partition) == 0 || len(partition) > MaxPartition {
		return nil, fmt.Errorf("%w: partition of %d bytes", ErrInvalid, len(partition))
	}
	dst = append(dst, byte(len(partition)))
	return append(dst, partition...), nil
}

func appendKey(dst []byte, partition string, key []byte) ([]byte, error) {
	if len(key) > MaxKey {
		return nil, fmt.Errorf("%w: key of %d bytes", ErrInvalid, len(key))
	}
	dst, err := appendPrefix(dst, partition)
	return append(dst, key...), err
}

// appendEnd appends the lowest Pebble key above all those with the prefix. There
// is none, and the result nil, for the very last partition: 255 times 0xff.
func appendEnd(dst, prefix []byte) []byte {
	i := len(prefix) - 1
	for i >= 0 && prefix[i] == 0xff {
		i--
	}
	if i < 0 {
		return nil // to the end of the store
	}
	dst = append(dst, prefix[:i+1]...)
	dst[len(dst)-1]++
	return dst
}

// keyBufs holds buffers for Pebble keys, which Pebble keeps pointers to
// during a call and would otherwise push to the heap.
var keyBufs = sync.Pool{New: func() any { return new([]byte) }}

// Get implements meta.Store.
func (s *Store) Get(ctx context.Context, partition string, key, dst []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.gate.enter() {
		return nil, meta.ErrClosed
	}
	defer s.gate.leave()
	buf := keyBufs.Get().(*[]byte)
	defer keyBufs.Put(buf)
	k, err := appendKey((*buf)[:0], partition, key)
	if err != nil {
		return nil, err
	}
	*buf = k
	v, closer, err := s.db.Get(k)
	if err != nil {
		return nil, getError(err)
	}
	dst = append(dst, v...)
	return dst, closeError(closer)
}

func getError(err error) error {
	if errors.Is(err, pebble.ErrNotFound) {
		return meta.ErrNotFound
	}
	return fmt.Errorf("pebblekv: get: %w", err)
}

func closeError(c io.Closer) error {
	if err := c.Close(); err != nil {
		return fmt.Errorf("pebblekv: get: %w", err)
	}
	return nil
}

// Scan implements meta.Store. fn may call the store.
func (s *Store) Scan(ctx context.Context, partition string, start, end []byte, fn func(key, value []byte) (bool, error)) error {
	if !s.gate.enter() {
		return meta.ErrClosed
	}
	defer s.gate.leave()
	prefix, err := appendPrefix(nil, partition)
	if err != nil {
		return err
	}
	o := &pebble.IterOptions{LowerBound: append(prefix[:len(prefix):len(prefix)], start...)}
	if end == nil {
		o.UpperBound = appendEnd(nil, prefix)
	} else {
		o.UpperBound = append(prefix[:len(prefix):len(prefix)], end...)
		if string(start) >= string(end) {
			return ctx.Err()
		}
	}
	it, err := s.db.NewIterWithContext(ctx, o)
	if err != nil {
		return fmt.Errorf("pebblekv: scan: %w", err)
	}
	err = scan(ctx, it, len(prefix), fn)
	if cerr := it.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("pebblekv: scan: %w", cerr)
	}
	return err
}

func scan(ctx context.Context, it *pebble.Iterator, skip int, fn func(key, value []byte) (bool, error)) error {
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("pebblekv: scan: %w", err)
		}
		if more, err := fn(it.Key()[skip:], v); err != nil || !more {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("pebblekv: scan: %w", err)
	}
	return ctx.Err()
}

// Partitions implements meta.Store. They come ordered by length, then name.
func (s *Store) Partitions(ctx context.Context) ([]string, error) {
	if !s.gate.enter() {
		return nil, meta.ErrClosed
	}
	defer s.gate.leave()
	it, err := s.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("pebblekv: partitions: %w", err)
	}
	names, err := partitions(ctx, it)
	if cerr := it.Close(); err == nil && cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("pebblekv: partitions: %w", err)
	}
	return names, nil
}

// partitions reads one key of each partition.
func partitions(ctx context.Context, it *pebble.Iterator) ([]string, error) {
	var names []string
	for ok := it.First(); ok; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		k := it.Key()
		n := int(k[0])
		if n == 0 || len(k) < 1+n {
			return nil, fmt.Errorf("key %q is in no partition", k)
		}
		names = append(names, string(k[1:1+n]))
		next := appendEnd(nil, k[:1+n])
		if next == nil {
			break
		}
		ok = it.SeekGE(next)
	}
	return names, it.Error()
}

// Close implements meta.Store. It waits for running calls; later ones return
// ErrClosed. A second Close does nothing.
func (s *Store) Close() error {
	if !s.gate.close() {
		return nil
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("pebblekv: close: %w", err)
	}
	return nil
}
