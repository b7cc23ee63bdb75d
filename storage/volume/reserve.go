package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/objcached/objcached/storage/blob"
)

// Reserve implements blob.Store. One extent is never longer than a volume. A
// volume is made when that gives a longer run than there is, so that a store
// below its capacity splits nothing that fits into one volume. Reserving 0
// bytes gives no extent.
func (s *Store) Reserve(ctx context.Context, size int64) ([]blob.Extent, error) {
	if size < 0 {
		return nil, fmt.Errorf("%w: reserve %d bytes", blob.ErrRange, size)
	}
	if err := s.awaitRestore(ctx); err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, nil
	}
	if size > s.Stats().Capacity {
		return nil, blob.ErrNoSpace
	}
	n := blob.Roundup(size) / blob.Align
	for full := false; ; {
		runs, known, err := s.tryReserve(n, full)
		if err != nil {
			return nil, err
		}
		if runs != nil {
			return toExtents(runs, size), nil
		}
		grown, err := s.grow(known)
		if err != nil {
			return nil, err
		}
		full = !grown
	}
}

// tryReserve takes n blocks. It gives none when growing should be tried first,
// and then the number of volumes it saw; with full, growing is out of the
// question.
func (s *Store) tryReserve(n int64, full bool) (runs []run, known int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, 0, blob.ErrClosed
	}
	known = len(s.list())
	if at, ok := s.alloc.take(n); ok {
		runs = []run{{at, n}}
	} else {
		enough := s.alloc.spans.total >= n
		longEnough := s.alloc.spans.longest() >= min(n, s.nextSize()/blob.Align)
		if !full && s.nextSize() > 0 && !(enough && longEnough) {
			return nil, known, nil
		}
		if !enough {
			return nil, known, blob.ErrNoSpace
		}
		runs = s.alloc.takePieces(n)
	}
	s.reserved.Add(n * blob.Align)
	return runs, known, nil
}

// toExtents gives the last run the length that is left of size.
func toExtents(runs []run, size int64) []blob.Extent {
	exts := make([]blob.Extent, len(runs))
	for i, r := range runs {
		v, off := place(r.at)
		n := min(size, r.n*blob.Align)
		exts[i] = blob.Extent{Volume: v, Offset: off, Len: n}
		size -= n
	}
	return exts
}

// nextSize is the size the next volume may have; 0 if the capacity is reached.
func (s *Store) nextSize() int64 {
	vs := s.list()
	if len(vs) >= maxVolume {
		return 0
	}
	return max(0, min(s.volumeSize, s.capacity-totalSize(vs)))
}

// grow makes a volume unless there are more than known by now. It returns
// false when there is no room for one, on the disk or under the capacity.
func (s *Store) grow(known int) (bool, error) {
	s.growMu.Lock()
	defer s.growMu.Unlock()
	vs := s.list()
	if len(vs) > known {
		return true, nil
	}
	select {
	case <-s.closed:
		return false, blob.ErrClosed
	default:
	}
	size := s.nextSize()
	if size == 0 {
		return false, nil
	}
	v, err := s.create(uint32(len(vs)), size)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("volume: make %s: %w", fileName(uint32(len(vs))), err)
	}
	now := append(slices.Clone(vs), v)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes.Store(&now)
	s.alloc.add(v.number, v.size)
	return true, nil
}

// create makes a volume file that survives a crash, name and room included,
// before anything can be reserved in it.
func (s *Store) create(n uint32, size int64) (_ *volume, err error) {
	f, err := s.fs.Create(fileName(n))
	if errors.Is(err, fs.ErrExist) {
		// Left by an attempt that failed, and failed to clean up.
		if err = s.fs.Remove(fileName(n)); err == nil {
			f, err = s.fs.Create(fileName(n))
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			// A leftover, if this fails too, is made anew by the next attempt
			// or is an ordinary volume at the next Open.
			err = errors.Join(err, f.Close(), s.fs.Remove(fileName(n)))
		}
	}()
	if err := f.Allocate(0, size); err != nil {
		return nil, err
	}
	// Better to learn now than at the first Free that space could never be
	// used again on this file system.
	if err := f.Detach(0, blob.Align); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := s.fs.SyncDir(); err != nil {
		return nil, err
	}
	return newVolume(f, n, size), nil
}

// Free implements blob.Store. Extents may be parts of what Reserve gave, cut
// at block boundaries. Either all of them become free or, with an error, none;
// the call can then be repeated. Extents that are free already are an error.
// Like Reserve it waits for Restore; an extent must not be given back that the
// running Restore does not list.
//
// Pages are detached first: a socket may still hold some of them, and the next
// owner must not write into those. A reservation that was never committed goes
// the same way, though nobody can have read it: its pages may be dirty, and
// detaching spares the disk from writing them. On blocks never written it
// costs one system call.
func (s *Store) Free(ctx context.Context, exts []blob.Extent) error {
	if err := s.awaitRestore(ctx); err != nil {
		return err
	}
	runs, err := s.toRuns(exts)
	if err != nil || len(runs) == 0 {
		return err
	}
	s.mu.Lock()
	for _, r := range runs {
		if s.alloc.spans.free(r.at, r.n) {
			s.mu.Unlock()
			return freedTwice(r)
		}
	}
	s.mu.Unlock()
	// Neighbours (a dropped prefix) are one system call.
	vs := s.list()
	for i := 0; i < len(runs); {
		at, end := runs[i].at, runs[i].at+runs[i].n
		for i++; i < len(runs) && runs[i].at == end; i++ {
			end += runs[i].n
		}
		n, off := place(at)
		if err := vs[n].file.Detach(off, (end-at)*blob.Align); err != nil {
			return vs[n].wrap("detach", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range runs {
		n, _ := place(r.at)
		if vs[n].sync.poisoned() != nil {
			s.reserved.Add(-r.n * blob.Align)
			continue // out of use: see retire
		}
		if !s.alloc.give(r.at, r.n) { // a Free of the same extent ran beside this one
			for _, u := range runs[:i] {
				s.alloc.spans.carve(u.at, u.n)
				s.reserved.Add(u.n * blob.Align)
			}
			return freedTwice(r)
		}
		s.reserved.Add(-r.n * blob.Align)
	}
	return nil
}

func freedTwice(r run) error {
	v, off := place(r.at)
	return fmt.Errorf("%w: [%d,+%d) of volume %d is free already", blob.ErrRange, off, r.n*blob.Align, v)
}

// toRuns checks extents and sorts them.
func (s *Store) toRuns(exts []blob.Extent) ([]run, error) {
	runs := make([]run, 0, len(exts))
	for _, e := range exts {
		if _, err := s.locate(e); err != nil {
			return nil, err
		}
		if e.Len > 0 {
			runs = append(runs, run{addr(e.Volume, e.Offset), blob.Roundup(e.Len) / blob.Align})
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(runs); i++ {
		if runs[i-1].at+runs[i-1].n > runs[i].at {
			return nil, fmt.Errorf("%w: extents overlap", blob.ErrRange)
		}
	}
	return runs, nil
}

func (s *Store) awaitRestore(ctx context.Context) error {
	select {
	case <-s.ready:
	default:
		select {
		case <-s.ready:
		case <-s.closed:
			return blob.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return blob.ErrClosed
	}
	return s.restoreErr
}

// Restore implements blob.Store. It is called once; after one that failed,
// Reserve and Free fail with its error until another succeeds. live's extents
// are cheapest in order but may come in any.
func (s *Store) Restore(ctx context.Context, live func(yield func(blob.Extent) error) error) (err error) {
	s.mu.Lock()
	switch {
	case s.isClosed:
		err = blob.ErrClosed
	case s.restored || s.restoring:
		err = errors.New("volume: restored twice")
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.restoring = true
	s.mu.Unlock()

	// No volume is made meanwhile: Reserve waits.
	var a allocator
	for _, v := range s.list() {
		a.add(v.number, v.size)
	}
	var reserved int64
	err = live(func(e blob.Extent) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := s.locate(e); err != nil {
			return err
		}
		if e.Len == 0 {
			return nil
		}
		n := blob.Roundup(e.Len) / blob.Align
		if !a.spans.carve(addr(e.Volume, e.Offset), n) {
			return fmt.Errorf("%w: two live extents overlap at [%d,+%d) of volume %d", blob.ErrRange, e.Offset, e.Len, e.Volume)
		}
		reserved += n * blob.Align
		return nil
	})
	if err != nil {
		err = fmt.Errorf("volume: restore: %w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.restoring = false
	s.restoreErr = err
	if err == nil {
		s.restored = true
		s.alloc = a
		for _, v := range s.list() { // sealed and failed before Restore ended
			if v.sync.poisoned() != nil {
				s.alloc.drop(v.number)
			}
		}
		s.reserved.Store(reserved)
	}
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	return err
}
