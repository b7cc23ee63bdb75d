package metatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/storage/meta"
)

// together runs fn in n goroutines that start as one and returns the first error.
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

// Of 64 that create one key if it is absent, one does.
func testOneWinner(t *testing.T, s meta.Store) {
	for round := range 25 {
		key := []byte("k" + strconv.Itoa(round))
		var winner atomic.Int64
		winner.Store(-1)
		err := together(64, func(i int) error {
			var b meta.Batch
			b.IfAbsent(key)
			b.Set(key, []byte(strconv.Itoa(i)))
			switch err := s.Apply(bg, "p", &b); {
			case errors.Is(err, meta.ErrConflict):
				// Who lost sees who won.
				if _, err := s.Get(bg, "p", key, nil); err != nil {
					return fmt.Errorf("lost, but to whom: %w", err)
				}
				return nil
			case err != nil:
				return err
			case !winner.CompareAndSwap(-1, int64(i)):
				return fmt.Errorf("%d won, and so did %d", i, winner.Load())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, s, "p", string(key), strconv.FormatInt(winner.Load(), 10))
	}
}

// Compare-and-swap increments are never lost.
func testCounter(t *testing.T, s meta.Store) {
	set(t, s, "p", "n", "0")
	const workers, each = 8, 12
	err := together(workers, func(int) error {
		for done := 0; done < each; {
			old, err := s.Get(bg, "p", []byte("n"), nil)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(old))
			if err != nil {
				return err
			}
			var b meta.Batch
			b.IfEqual([]byte("n"), old)
			b.Set([]byte("n"), []byte(strconv.Itoa(n+1)))
			switch err := s.Apply(bg, "p", &b); {
			case err == nil:
				done++
			case !errors.Is(err, meta.ErrConflict):
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, s, "p", "n", strconv.Itoa(workers*each))
}

// Puts conditional on a marker that somebody changes: none lands after the
// change. This is how a bucket is deleted under load.
func testSharedCondition(t *testing.T, s meta.Store) {
	for round := range 5 {
		part := "p" + strconv.Itoa(round)
		set(t, s, part, "m", "live")
		var after []pair
		err := together(16, func(i int) error {
			if i == 0 {
				var b meta.Batch
				b.IfEqual([]byte("m"), []byte("live"))
				b.Set([]byte("m"), []byte("deleting"))
				if err := s.Apply(bg, part, &b); err != nil {
					return err
				}
				var err error
				after, err = all(s, part, "o", "p")
				return err
			}
			for j := range 20 {
				var b meta.Batch
				b.IfEqual([]byte("m"), []byte("live"))
				b.Set(fmt.Appendf(nil, "o%d.%d", i, j), nil)
				if err := s.Apply(bg, part, &b); errors.Is(err, meta.ErrConflict) {
					return nil
				} else if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		end, err := all(s, part, "o", "p")
		if err != nil {
			t.Fatal(err)
		}
		if len(end) != len(after) {
			t.Fatalf("%d puts landed after the marker had changed", len(end)-len(after))
		}
	}
}

// Batches that write the same keys in different orders neither hang nor mix.
func testOverlapping(t *testing.T, s meta.Store) {
	const keys = 12
	err := together(8, func(i int) error {
		for j := range 15 {
			var b meta.Batch
			v := fmt.Appendf(nil, "%d.%d", i, j)
			for k := range keys {
				no := (k*(2*(i%3)+1) + i) % keys // 1, 3, 5: not all coprime to 12, so some keys come twice
				b.Set(fmt.Appendf(nil, "k%02d", no), v)
				b.Set(fmt.Appendf(nil, "k%02d", k), v)
			}
			if err := s.Apply(bg, "p", &b); err != nil {
				return err
			}
			got, err := all(s, "p", "", "")
			if err != nil {
				return err
			}
			for _, p := range got {
				if len(got) != keys || p.v != got[0].v {
					return fmt.Errorf("half a batch seen: %q", got)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A Get that starts after an Apply has returned, in whatever goroutine, sees it.
func testReadYourWrites(t *testing.T, s meta.Store) {
	var written atomic.Int64
	done := make(chan struct{})
	err := together(5, func(i int) error {
		if i == 0 {
			defer close(done)
			for n := int64(1); n <= 60; n++ {
				var b meta.Batch
				b.Set([]byte("k"), binary.BigEndian.AppendUint64(nil, uint64(n)))
				if err := s.Apply(bg, "p", &b); err != nil {
					return err
				}
				written.Store(n)
			}
			return nil
		}
		var buf []byte
		for {
			select {
			case <-done:
				return nil
			default:
			}
			floor := written.Load()
			got, err := s.Get(bg, "p", []byte("k"), buf[:0])
			if errors.Is(err, meta.ErrNotFound) && floor == 0 {
				continue
			}
			if err != nil {
				return err
			}
			buf = got
			if n := int64(binary.BigEndian.Uint64(got)); n < floor {
				return fmt.Errorf("got %d after %d was written", n, floor)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A scan sees one moment: writers move a token from key to key, so every
// scan finds exactly one.
func testScanSnapshot(t *testing.T, s meta.Store) {
	const keys = 40
	set(t, s, "p", "k00", "token")
	done := make(chan struct{})
	err := together(3, func(i int) error {
		if i == 0 {
			defer close(done)
			at := 0
			for n := range 150 {
				to := (at + 1 + n%7*5) % keys
				if to == at {
					continue
				}
				var b meta.Batch
				b.Delete(fmt.Appendf(nil, "k%02d", at))
				b.Set(fmt.Appendf(nil, "k%02d", to), []byte("token"))
				if err := s.Apply(bg, "p", &b); err != nil {
					return err
				}
				at = to
			}
			return nil
		}
		for {
			select {
			case <-done:
				return nil
			default:
			}
			got, err := all(s, "p", "", "")
			if err != nil {
				return err
			}
			if len(got) != 1 {
				return fmt.Errorf("a scan found %q", got)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Close waits for what runs and refuses the rest; a scan's callback that uses
// the store meanwhile gets an answer.
func testCloseUnderLoad(t *testing.T, s meta.Store) {
	set(t, s, "p", "a", "1", "b", "2", "c", "3")
	inside := make(chan struct{})
	var once sync.Once
	err := together(10, func(i int) error {
		if i == 0 {
			<-inside
			return s.Close()
		}
		for n := 0; ; n++ {
			var err error
			switch i % 3 {
			case 0:
				_, err = s.Get(bg, "p", []byte("a"), nil)
			case 1:
				var b meta.Batch
				b.Set(fmt.Appendf(nil, "x%d.%d", i, n), nil)
				err = s.Apply(bg, "p", &b)
			case 2:
				err = s.Scan(bg, "p", nil, nil, func(k, _ []byte) (bool, error) {
					once.Do(func() { close(inside) })
					_, err := s.Get(bg, "p", k, nil)
					return true, err
				})
			}
			if errors.Is(err, meta.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
