package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/objcached/objcached/storage/blob"
)

// Faults opens stores that fail.
type Faults struct {
	// Injected is what every injected error matches.
	Injected error
	// Open is Config.Open, for a capacity of 1 MiB, but the k-th I/O operation (from 1) after it has
	// returned fails; with on, so do all after it. fired reports whether the
	// k-th has come.
	Open func(t testing.TB, k int64, on bool) (s blob.Store, fired func() bool)
	// Crash is Config.Crash for such a store; what it gives does not fail.
	Crash func(t testing.TB, s blob.Store, torn bool, seed uint64) blob.Store
}

// RunFaults fails a store's life at every k-th operation until none fires:
// nothing sealed is lost, nothing that failed stays reserved, no space is
// given to two, every error is the injected one or a consequence of it.
func RunFaults(t *testing.T, f Faults) {
	for _, on := range []bool{false, true} {
		name := "Once"
		if on {
			name = "FromThenOn"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k := int64(1); ; k++ {
				s, fired := f.Open(t, k, on)
				if err := faultyLife(t, f, s, on, uint64(k)); err != nil {
					t.Fatalf("operation %d: %v", k, err)
				}
				if err := s.Close(); err != nil {
					t.Fatalf("operation %d: close: %v", k, err)
				}
				if !fired() {
					if k < 20 {
						t.Fatalf("only %d operations could fail", k-1)
					}
					return
				}
			}
		})
	}
}

// faultySize is a size that divides nothing; its blocks do not fill 1 MiB.
const faultySize = 45000

// object is what the test believes to be sealed.
type object struct {
	exts []blob.Extent
	seed uint64
}

func (o object) size() (n int64) {
	for _, e := range o.exts {
		n += blob.Roundup(e.Len)
	}
	return n
}

// check reads o, again once if only because once may fail.
func (o object) check(s blob.Store, injected error) error {
	for _, e := range o.exts {
		got := make([]byte, e.Len)
		err := s.ReadAt(bg, e, got, 0, false)
		if err != nil && errors.Is(err, injected) {
			if err = s.ReadAt(bg, e, got, 0, false); err != nil && errors.Is(err, injected) {
				return nil // the disk has died; the crash below looks again
			}
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(got, pattern(o.seed, e.Len)) {
			return fmt.Errorf("sealed bytes of %+v have changed", e)
		}
	}
	return nil
}

func faultyLife(t testing.TB, f Faults, s blob.Store, on bool, k uint64) error {
	if err := s.Restore(bg, each(nil)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	var sealed []object
	var lost int64 // bytes that a Free failed to give back
	giveBack := func(o object) error {
		err := s.Free(bg, o.exts)
		if errors.Is(err, f.Injected) {
			err = s.Free(bg, o.exts) // none of it was freed, so it can be repeated
		}
		if err != nil && on && errors.Is(err, f.Injected) {
			lost += o.size()
			return nil
		}
		return err
	}
	put := func(seed uint64) error {
		before := s.Stats().Reserved
		exts, err := s.Reserve(bg, faultySize)
		if err != nil {
			if got := s.Stats().Reserved; got != before {
				return fmt.Errorf("a Reserve that failed took %d bytes", got-before)
			}
			if errors.Is(err, f.Injected) || errors.Is(err, blob.ErrNoSpace) {
				return nil
			}
			return fmt.Errorf("reserve: %w", err)
		}
		o := object{exts, seed}
		for _, e := range exts {
			p := pattern(seed, e.Len)
			half := len(p) / 2
			err = errors.Join(err, s.WriteAt(bg, e, p[:half], 0), s.WriteAt(bg, e, p[half:], int64(half)))
		}
		if err == nil {
			err = s.Seal(bg, exts)
		}
		if err != nil {
			if !errors.Is(err, f.Injected) {
				return fmt.Errorf("put: %w", err)
			}
			return giveBack(o)
		}
		sealed = append(sealed, o)
		return nil
	}
	for i := range uint64(12) {
		if err := put(i); err != nil {
			return err
		}
		if i%3 == 2 && len(sealed) > 1 {
			o := sealed[0]
			sealed = sealed[1:]
			if err := giveBack(o); err != nil {
				return fmt.Errorf("free: %w", err)
			}
		}
		if i%4 != 3 {
			continue
		}
		for _, o := range sealed {
			if err := o.check(s, f.Injected); err != nil {
				return err
			}
		}
	}
	var live []blob.Extent
	want := lost
	for _, o := range sealed {
		live = append(live, o.exts...)
		want += o.size()
	}
	if got := s.Stats().Reserved; got != want {
		return fmt.Errorf("%d bytes are reserved, want %d", got, want)
	}
	if len(live) > 0 {
		disjoint(t, live)
	}
	for _, torn := range []bool{false, true} {
		after := f.Crash(t, s, torn, k)
		if err := after.Restore(bg, each(live)); err != nil {
			return fmt.Errorf("restore after a crash: %w", err)
		}
		for _, o := range sealed {
			if err := o.check(after, f.Injected); err != nil {
				return fmt.Errorf("after a crash: %w", err)
			}
		}
		exts, err := after.Reserve(bg, mib-(want-lost))
		if err != nil {
			return fmt.Errorf("after a crash not all of the rest is free: %w", err)
		}
		if err := errors.Join(after.Seal(bg, exts), after.Close()); err != nil {
			return fmt.Errorf("after a crash: %w", err)
		}
	}
	return nil
}
