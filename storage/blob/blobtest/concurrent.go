package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/objcached/objcached/storage/blob"
)

func together(n int, fn func(i int) error) error {
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// owners knows which block belongs to whom; two owners are an error.
type owners struct {
	mu sync.Mutex
	m  map[[2]int64]int
}

func (o *owners) take(who int, exts []blob.Extent) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range exts {
		for off := e.Offset; off < e.Offset+e.Len; off += blob.Align {
			k := [2]int64{int64(e.Volume), off}
			if w, taken := o.m[k]; taken {
				return fmt.Errorf("block %v given to %d while %d has it", k, who, w)
			}
			o.m[k] = who
		}
	}
	return nil
}

func (o *owners) drop(exts []blob.Extent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range exts {
		for off := e.Offset; off < e.Offset+e.Len; off += blob.Align {
			delete(o.m, [2]int64{int64(e.Volume), off})
		}
	}
}

// Many that reserve and free at once never hold the same block, and what
// one writes stays until it frees it.
func testNeverOverlap(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	own := owners{m: map[[2]int64]int{}}
	type held struct {
		exts []blob.Extent
		seed uint64
	}
	err := together(8, func(who int) error {
		r := rand.New(rand.NewPCG(uint64(who), 1))
		var mine []held
		drop := func(i int) error {
			h := mine[i]
			mine = append(mine[:i], mine[i+1:]...)
			for _, e := range h.exts {
				got := make([]byte, e.Len)
				if err := s.ReadAt(bg, e, got, 0, r.IntN(4) == 0); err != nil {
					return err
				}
				if !bytes.Equal(got, pattern(h.seed, e.Len)) {
					return fmt.Errorf("%+v was written by another", e)
				}
			}
			own.drop(h.exts)
			return s.Free(bg, h.exts)
		}
		for n := range 60 {
			exts, err := s.Reserve(bg, 1+r.Int64N(120<<10))
			switch {
			case errors.Is(err, blob.ErrNoSpace):
				for len(mine) > 0 && err != nil {
					if err := drop(r.IntN(len(mine))); err != nil {
						return err
					}
					err = nil
				}
				continue
			case err != nil:
				return err
			}
			if err := own.take(who, exts); err != nil {
				return err
			}
			h := held{exts, uint64(who*1000 + n)}
			for _, e := range exts {
				if err := s.WriteAt(bg, e, pattern(h.seed, e.Len), 0); err != nil {
					return err
				}
			}
			mine = append(mine, h)
			if len(mine) > 8 || r.IntN(3) == 0 {
				if err := drop(r.IntN(len(mine))); err != nil {
					return err
				}
			}
		}
		for len(mine) > 0 {
			if err := drop(0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Reserved != 0 {
		t.Fatalf("%+v at the end", st)
	}
	free(t, s, reserve(t, s, 4*mib)...)
}

// Seals from many sides: each returns only when its bytes are safe.
func testSealShared(t *testing.T, c Config) {
	s := open(t, c, 8*mib)
	var mu sync.Mutex // a crash sees whole steps of this test only
	err := together(8, func(who int) error {
		for n := range 8 {
			exts, err := s.Reserve(bg, 20000)
			if err != nil {
				return err
			}
			p := pattern(uint64(who*100+n), 20000)
			if err := s.WriteAt(bg, exts[0], p, 0); err != nil {
				return err
			}
			if err := s.Seal(bg, exts); err != nil {
				return err
			}
			if c.Crash == nil {
				continue
			}
			mu.Lock()
			after := c.Crash(t, s, false, 0)
			mu.Unlock()
			got := make([]byte, 20000)
			if err := after.ReadAt(bg, exts[0], got, 0, false); err != nil {
				return err
			}
			if !bytes.Equal(got, p) {
				return errors.New("sealed bytes were lost")
			}
			if err := after.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testReadersAndWriters(t *testing.T, c Config) {
	s := open(t, c, 8*mib)
	const n = 300 << 10
	exts := make([]blob.Extent, 6)
	want := make([][]byte, len(exts))
	for i := range exts {
		exts[i] = reserveOne(t, s, n)
		want[i] = pattern(uint64(i), n)
		write(t, s, exts[i], want[i])
	}
	err := together(6, func(i int) error {
		r := rand.New(rand.NewPCG(uint64(i), 2))
		buf := make([]byte, n)
		for range 40 {
			j := r.IntN(len(exts))
			if i == 0 { // keeps growing and shrinking the store beside the readers
				x, err := s.Reserve(bg, mib)
				if err != nil {
					return err
				}
				if err := s.WriteAt(bg, x[0], buf[:4096], 0); err != nil {
					return err
				}
				if err := s.Free(bg, x); err != nil {
					return err
				}
				continue
			}
			off := r.Int64N(n)
			p := buf[:r.Int64N(n-off)+1]
			if err := s.ReadAt(bg, exts[j], p, off, i == 1); err != nil {
				return err
			}
			if !bytes.Equal(p, want[j][off:off+int64(len(p))]) {
				return fmt.Errorf("wrong bytes at %d of extent %d", off, j)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testReadAllocs(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	e := reserveOne(t, s, 128<<10)
	write(t, s, e, pattern(1, e.Len))
	buf := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(200, func() {
		if err := s.ReadAt(bg, e, buf, 4096, false); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("a read allocates %v times", n)
	}
}
