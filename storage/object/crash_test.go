package object

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

// TestCrash stops the world at a random operation and goes on from what a
// crash would have left there: sealed bytes and applied batches, and of the
// bytes not sealed some. Three times in a row for each seed.
func TestCrash(t *testing.T) {
	seeds := 24
	if testing.Short() || raceEnabled {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed), 99))
			w := new(world)
			m, b := newMemMeta(w), newMemBlob(w, 8<<20)
			b.longest = []int64{0, 28 << 10}[seed%2]
			s := openMem(t, m, b, Options{})
			if err := s.CreateBucket(bg, storage.Bucket{Name: "b"}); err != nil {
				t.Fatal(err)
			}
			h := storagetest.NewHistory("b")
			for range 3 {
				s, h = crashOnce(t, s, h, r)
				h.Check(t, s)
				s.mustBeClean(t)
				s.checkMisuse(t)
			}
			s.mustClose(t)
		})
	}
}

// crashOnce works on s until the crash and returns the store opened after it,
// with what it must hold.
func crashOnce(t *testing.T, s *testStore, h *storagetest.History, r *rand.Rand) (*testStore, *storagetest.History) {
	t.Helper()
	next := new(world)
	var acked *storagetest.History
	var m *memMeta
	var b *memBlob
	crashed := make(chan struct{})
	at := 20 + r.IntN(500)
	clone := rand.New(rand.NewPCG(r.Uint64(), 0))
	s.w.arm(0, false, false)
	s.w.faultMu.Lock()
	s.w.onOp = func(n int) {
		if n != at {
			return
		}
		acked = h.Clone() // what is acknowledged by now has to be there
		s.w.mu.Lock()
		m, b = s.meta.clone(next), s.blob.clone(next, clone)
		s.w.mu.Unlock()
		acked.Extend(h) // what was tried until now may be there
		close(crashed)
	}
	s.w.faultMu.Unlock()
	var wg sync.WaitGroup
	for g := range 4 {
		r := rand.New(rand.NewPCG(r.Uint64(), uint64(g)))
		wg.Go(func() {
			for {
				select {
				case <-crashed:
					return
				default:
				}
				if err := h.Call(bg, s, r, g); err != nil && !storage.IsNoSuchKey(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	<-crashed
	s.mustClose(t)
	s.checkMisuse(t)
	return openMem(t, m, b, Options{}), acked
}

// TestFaults lets the k-th operation below fail, for every k: before it has
// any effect or, for a batch, after; once, or as all that follow. Then nothing
// acknowledged is lost, and after a restart nothing is left over.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ after, sticky bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("after=%v,sticky=%v", c.after, c.sticky), func(t *testing.T) {
			t.Parallel()
			step := 1
			if raceEnabled {
				step = 7
			}
			for k := 1; ; k += step {
				if !faultOnce(t, k, c.after, c.sticky) {
					if k < 80 {
						t.Fatalf("no fault at operation %d: too few are made", k)
					}
					break
				}
				if t.Failed() {
					t.Fatalf("at operation %d", k)
				}
			}
		})
	}
}

func faultOnce(t *testing.T, k int, after, sticky bool) (fired bool) {
	w := new(world)
	s := openMem(t, newMemMeta(w), newMemBlob(w, 1536<<10), Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	s.blob.longest = 36 << 10
	if err := s.CreateBucket(bg, storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitRestored(bg); err != nil {
		t.Fatal(err)
	}
	h := storagetest.NewHistory("b")
	w.arm(k, after, sticky)
	r := rand.New(rand.NewPCG(1, 2))
	buckets := make(map[string]bool) // exists for certain, or not
	errs := 0
	count := func(err error) error {
		if err != nil && !storage.IsNoSuchKey(err) {
			errs++
		}
		return err
	}
	for range 10 {
		count(h.Call(bg, s, r, 0))
	}
	if count(s.CreateBucket(bg, storage.Bucket{Name: "c"})) == nil {
		buckets["c"] = true
		if count(s.DeleteBucket(bg, "c")) == nil {
			buckets["c"] = false
		} else {
			delete(buckets, "c")
		}
	}
	for s.reap.flush(bg) {
		if sticky {
			break
		}
	}
	fired = w.disarm()
	if !fired && errs > 0 {
		t.Errorf("no fault, yet %d calls failed", errs)
	}
	if got := s.Stats().Doubtful; !sticky && got > 1 {
		t.Errorf("one fault, %d commits in doubt", got)
	}
	before := h.Clone()
	before.Check(t, s) // in the same process
	s.mustClose(t)
	s.checkMisuse(t)

	next := new(world)
	s2 := openMem(t, s.meta.clone(next), s.blob.clone(next, rand.New(rand.NewPCG(uint64(k), 0))), Options{})
	h.Check(t, s2)
	s2.mustBeClean(t)
	for name, there := range maps.Clone(buckets) {
		if _, err := s2.GetBucket(bg, name); (err == nil) != there {
			t.Errorf("bucket %q: %v, want there=%v", name, err, there)
		}
	}
	s2.mustPut(t, "again", storagetest.Pattern(1, 300_000))
	s2.mustClose(t)
	s2.checkMisuse(t)
	return fired
}
