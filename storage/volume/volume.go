// Package volume keeps extents in preallocated files, vol-000000.dat and so
// on: the embedded blob.Store.
//
// Extents start and end on 4 KiB boundaries. The free list lives in memory
// only; Restore rebuilds it from what the metadata says is live. Files are made
// when the free list has no room, up to the capacity.
//
// Space goes round like this: Reserve takes it out of the free list, WriteAt
// fills it, Seal makes it durable, and Free first detaches its pages from the
// page cache and then, never before, gives it to the free list again. A
// page that a slow client's socket still holds keeps the old bytes.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/vfile"
)

// DefaultVolumeSize is the size of a volume file, in bytes, where none is given.
const DefaultVolumeSize = 1 << 30

// ErrPoisoned says that a volume takes no writes any more because a flush of
// it has failed. What the kernel still holds of it is unknown, so that a later
// flush that succeeds would prove nothing; opening the store again starts from
// what the device has. Reads go on.
var ErrPoisoned = errors.New("volume: a flush failed; the volume takes no writes until the store is opened again")

// Options describes a store. FS and Capacity are required.
type Options struct {
	FS vfile.FS // a directory of its own
	// Capacity is the most all volume files together may have, in bytes.
	// Volumes made under a larger one stay.
	Capacity int64
	// VolumeSize is the size of new volume files, in bytes;
	// DefaultVolumeSize if 0. It bounds the length of one extent.
	VolumeSize int64
}

// Store is a blob.Store over volume files.
type Store struct {
	fs         vfile.FS
	capacity   int64
	volumeSize int64

	// volumes is replaced, never changed, so that reads take no lock.
	volumes  atomic.Pointer[[]*volume]
	reserved atomic.Int64
	closed   chan struct{} // closed by Close

	ready chan struct{} // closed when the first Restore has ended

	mu         sync.Mutex // guards the following
	alloc      allocator
	restoreErr error
	restored   bool
	restoring  bool
	isClosed   bool

	growMu sync.Mutex // held while a volume is made; taken before mu
}

var _ blob.Store = (*Store)(nil)

type volume struct {
	file   vfile.File
	number uint32
	size   int64 // bytes, a multiple of blob.Align
	sync   syncer
}

func fileName(n uint32) string { return fmt.Sprintf("vol-%06d.dat", n) }

// Open opens the volumes in o.FS, none in a new directory. It reads no
// contents. Reads work at once, Reserve and Free wait for Restore.
func Open(o Options) (*Store, error) {
	if o.VolumeSize == 0 {
		o.VolumeSize = DefaultVolumeSize
	}
	o.Capacity &^= blob.Align - 1
	o.VolumeSize &^= blob.Align - 1
	switch {
	case o.FS == nil:
		return nil, errors.New("volume: no file system given")
	case o.Capacity <= 0:
		return nil, fmt.Errorf("volume: capacity must be at least %d bytes", blob.Align)
	case o.VolumeSize <= 0 || o.VolumeSize > maxVolSize:
		return nil, fmt.Errorf("volume: volume size must be from %d to %d bytes", blob.Align, int64(maxVolSize))
	}
	s := &Store{
		fs: o.FS, capacity: o.Capacity, volumeSize: o.VolumeSize,
		closed: make(chan struct{}), ready: make(chan struct{}),
	}
	vs, err := openVolumes(o.FS)
	if err != nil {
		for _, v := range vs {
			_ = v.file.Close() // nothing was written
		}
		return nil, err
	}
	s.volumes.Store(&vs)
	return s, nil
}

// openVolumes opens all volume files. They are numbered without a gap: each
// is durable before the next is made. The last one may be the leftover of a
// crash while it was made, and shorter than it was to be; no extent in it can
// have been reserved, but what there is of it is good.
func openVolumes(fsys vfile.FS) (vs []*volume, err error) {
	names, err := fsys.List()
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	have := make(map[string]bool, len(names))
	total := 0
	for _, n := range names {
		var i uint32
		if c, err := fmt.Sscanf(n, "vol-%d.dat", &i); err == nil && c == 1 && n == fileName(i) {
			have[n] = true
			total++
		}
	}
	for n := uint32(0); len(vs) < total; n++ {
		name := fileName(n)
		if !have[name] {
			return vs, fmt.Errorf("volume: %s is missing; there are %d volume files", name, total)
		}
		f, err := fsys.Open(name)
		if err != nil {
			return vs, fmt.Errorf("volume: %w", err)
		}
		size, err := f.Size()
		if err != nil {
			return vs, errors.Join(fmt.Errorf("volume: %s: %w", name, err), f.Close())
		}
		size &^= blob.Align - 1
		if size > maxVolSize {
			return vs, errors.Join(fmt.Errorf("volume: %s has %d bytes, more than a volume can", name, size), f.Close())
		}
		vs = append(vs, newVolume(f, n, size))
	}
	// A process that was killed while it made the last volume may have left a
	// name that is there but not durable.
	if err := fsys.SyncDir(); err != nil {
		return vs, fmt.Errorf("volume: %w", err)
	}
	return vs, nil
}

func newVolume(f vfile.File, n uint32, size int64) *volume {
	v := &volume{file: f, number: n, size: size}
	v.sync.flush = f.Sync
	return v
}

func (s *Store) list() []*volume { return *s.volumes.Load() }

// locate returns e's volume if e names whole blocks inside one.
func (s *Store) locate(e blob.Extent) (*volume, error) {
	vs := s.list()
	if int64(e.Volume) >= int64(len(vs)) {
		return nil, rangeError(e)
	}
	v := vs[e.Volume]
	if e.Offset < 0 || e.Offset%blob.Align != 0 || e.Len < 0 || e.Offset > v.size || e.Len > v.size-e.Offset {
		return nil, rangeError(e)
	}
	return v, nil
}

func rangeError(e blob.Extent) error {
	return fmt.Errorf("%w: volume %d has no extent [%d,+%d)", blob.ErrRange, e.Volume, e.Offset, e.Len)
}

// inside is locate for n bytes at off of e.
func (s *Store) inside(e blob.Extent, n int, off int64) (*volume, error) {
	v, err := s.locate(e)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > e.Len || int64(n) > e.Len-off {
		return nil, fmt.Errorf("%w: [%d,+%d) of an extent of %d bytes", blob.ErrRange, off, n, e.Len)
	}
	return v, nil
}

// ReadAt implements blob.Store. It takes no lock and, unless cold, allocates
// nothing. Reads of a closed store fail with ErrClosed, ones under way end.
func (s *Store) ReadAt(ctx context.Context, e blob.Extent, p []byte, off int64, cold bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v, err := s.inside(e, len(p), off)
	if err != nil {
		return err
	}
	if cold {
		err = v.file.ReadAtCold(p, e.Offset+off)
	} else {
		err = v.file.ReadAt(p, e.Offset+off)
	}
	if err != nil {
		return v.wrap("read", err)
	}
	return nil
}

// WriteAt implements blob.Store. On a poisoned volume it is ErrPoisoned.
func (s *Store) WriteAt(ctx context.Context, e blob.Extent, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v, err := s.inside(e, len(p), off)
	if err != nil {
		return err
	}
	if err := v.sync.poisoned(); err != nil {
		return v.wrap("write", err)
	}
	if err := v.file.WriteAt(p, e.Offset+off); err != nil {
		return v.wrap("write", err)
	}
	return nil
}

// wrap names the volume in err and turns a closed file into ErrClosed: Close
// closes the files under the calls that run.
func (v *volume) wrap(op string, err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return blob.ErrClosed
	}
	return fmt.Errorf("volume: %s %s: %w", op, fileName(v.number), err)
}

// Seal implements blob.Store.
func (s *Store) Seal(ctx context.Context, exts []blob.Extent) error {
	// Ask for a round of every volume before waiting for any.
	var buf [4]sealWait
	waits := buf[:0]
next:
	for _, e := range exts {
		v, err := s.locate(e)
		if err != nil {
			return err
		}
		for _, w := range waits {
			if w.v == v {
				continue next
			}
		}
		waits = append(waits, sealWait{v, v.sync.request(func() { s.retire(v) })})
	}
	for _, w := range waits {
		select {
		case <-w.r.done:
			if w.r.err != nil {
				return w.v.wrap("flush", w.r.err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

type sealWait struct {
	v *volume
	r *round
}

// retire takes a poisoned volume's free space away, so that Reserve leads no
// one there.
func (s *Store) retire(v *volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alloc.drop(v.number)
}

// Stats implements blob.Store.
func (s *Store) Stats() blob.Stats {
	vs := s.list()
	st := blob.Stats{Capacity: s.capacity, Reserved: s.reserved.Load(), Volumes: len(vs)}
	st.Capacity = max(st.Capacity, totalSize(vs))
	return st
}

func totalSize(vs []*volume) (n int64) {
	for _, v := range vs {
		n += v.size
	}
	return n
}

// Close implements blob.Store. Calls that wait return ErrClosed. What was not
// sealed is not flushed. A second Close does nothing.
func (s *Store) Close() error {
	s.growMu.Lock() // a volume being made is in the list or gone
	defer s.growMu.Unlock()
	s.mu.Lock()
	was := s.isClosed
	s.isClosed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	close(s.closed)
	var err error
	for _, v := range s.list() {
		v.sync.stop()
		err = errors.Join(err, v.file.Close())
	}
	return err
}
