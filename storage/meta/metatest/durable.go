package metatest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/objcached/objcached/storage/meta"
)

// Durable says how a store is opened again.
type Durable struct {
	// Open returns a new, empty store.
	Open func(t testing.TB) meta.Store
	// Reopen opens what a store, closed by now, has left.
	Reopen func(t testing.TB, s meta.Store) meta.Store
	// Crash opens what a crash at this moment would leave of a store that is
	// still open. Of what was not flushed, about percent % has reached the
	// disk, chosen by seed. It may be called beside the store's other methods.
	Crash func(t testing.TB, s meta.Store, percent int, seed uint64) meta.Store
}

// RunDurable runs the tests of durability.
func RunDurable(t *testing.T, d Durable) {
	t.Run("Reopen", func(t *testing.T) {
		t.Parallel()
		testReopen(t, d)
	})
	if d.Crash == nil {
		return
	}
	t.Run("CrashKeepsApplied", func(t *testing.T) {
		t.Parallel()
		testCrash(t, d)
	})
	t.Run("ConflictIsDurable", func(t *testing.T) {
		t.Parallel()
		testConflictIsDurable(t, d)
	})
}

func closeAll(t testing.TB, stores ...meta.Store) {
	t.Helper()
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

func testReopen(t *testing.T, d Durable) {
	s := d.Open(t)
	for round := range 3 {
		for i := range 200 {
			set(t, s, "p"+strconv.Itoa(i%3), fmt.Sprintf("k%03d", i), fmt.Sprintf("%d.%d", round, i))
		}
		var b meta.Batch
		b.Delete([]byte("k000"))
		apply(t, s, "p0", &b)
		closeAll(t, s)
		s = d.Reopen(t, s)
		absent(t, s, "p0", "k000")
		for i := 1; i < 200; i++ {
			want(t, s, "p"+strconv.Itoa(i%3), fmt.Sprintf("k%03d", i), fmt.Sprintf("%d.%d", round, i))
		}
	}
	closeAll(t, s)
}

// testCrash crashes, again and again, under writers that each move their own
// batches of three keys from one generation to the next: after the crash a
// writer's keys are all of one generation, and of none older than the last one
// acknowledged before the crash.
func testCrash(t *testing.T, d Durable) {
	const writers = 6
	s := d.Open(t)
	var mu sync.Mutex
	var acked [writers]int
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for gen := 1; ; gen++ {
				select {
				case <-stop:
					return
				default:
				}
				var b meta.Batch
				v := []byte(strconv.Itoa(gen))
				for i := range 3 {
					b.Set(fmt.Appendf(nil, "w%d.%d", w, i), v)
				}
				b.Set(fmt.Appendf(nil, "only%d.%d", w, gen), nil)
				b.Delete(fmt.Appendf(nil, "only%d.%d", w, gen-1))
				if err := s.Apply(bg, "p", &b); err != nil {
					t.Errorf("apply: %v", err)
					return
				}
				mu.Lock()
				acked[w] = gen
				mu.Unlock()
			}
		})
	}
	for n := range 12 {
		mu.Lock()
		floor := acked
		mu.Unlock()
		after := d.Crash(t, s, []int{0, 30, 70}[n%3], uint64(n))
		for w := range writers {
			if err := oneGeneration(after, w, floor[w]); err != nil {
				t.Errorf("crash %d: %v", n, err)
			}
		}
		closeAll(t, after)
	}
	close(stop)
	wg.Wait()
	closeAll(t, s)
}

func oneGeneration(s meta.Store, w, floor int) error {
	got, err := all(s, "p", fmt.Sprintf("w%d.", w), fmt.Sprintf("w%d/", w))
	if err != nil {
		return err
	}
	if len(got) == 0 && floor == 0 {
		return nil
	}
	if len(got) != 3 || got[0].v != got[1].v || got[0].v != got[2].v {
		return fmt.Errorf("half a batch: %q", got)
	}
	if gen, err := strconv.Atoi(got[0].v); err != nil || gen < floor {
		return fmt.Errorf("generation %q, but %d was acknowledged", got[0].v, floor)
	}
	only, err := all(s, "p", fmt.Sprintf("only%d.", w), fmt.Sprintf("only%d/", w))
	if err != nil {
		return err
	}
	if len(only) != 1 || only[0].k != fmt.Sprintf("only%d.%s", w, got[0].v) {
		return fmt.Errorf("generation %s has %q", got[0].v, only)
	}
	return nil
}

// Who is told that a key exists may rely on it: it is there after a crash.
func testConflictIsDurable(t *testing.T, d Durable) {
	s := d.Open(t)
	for round := range 10 {
		key := fmt.Sprintf("k%d", round)
		err := together(4, func(i int) error {
			var b meta.Batch
			b.IfAbsent([]byte(key))
			b.Set([]byte(key), []byte(strconv.Itoa(i)))
			if err := s.Apply(bg, "p", &b); err != nil && !errors.Is(err, meta.ErrConflict) {
				return err
			}
			after := d.Crash(t, s, 0, 0)
			_, err := after.Get(bg, "p", []byte(key), nil)
			return errors.Join(err, after.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, s)
}
