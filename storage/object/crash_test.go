package object

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

// state is what a key held, or should: the pattern of a seed, or nothing.
type state struct {
	seed  uint64
	n     int
	there bool
}

// history keeps what was tried and acknowledged, key by key. The calls for one
// key follow each other.
type history struct {
	mu   sync.Mutex
	keys map[string]*keyHistory
}

type keyHistory struct {
	tried []state // the first: absent
	acked int     // index of the last acknowledged
}

func newHistory() *history { return &history{keys: make(map[string]*keyHistory)} }

// do runs op, which should bring key into st.
func (h *history) do(key string, st state, op func() error) error {
	h.mu.Lock()
	k := h.keys[key]
	if k == nil {
		k = &keyHistory{tried: []state{{}}}
		h.keys[key] = k
	}
	i := len(k.tried)
	k.tried = append(k.tried, st)
	h.mu.Unlock()
	err := op()
	if err == nil {
		h.mu.Lock()
		k.acked = i
		h.mu.Unlock()
	}
	return err
}

func (h *history) clone() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := newHistory()
	for key, k := range h.keys {
		c.keys[key] = &keyHistory{tried: slices.Clone(k.tried), acked: k.acked}
	}
	return c
}

// check finds every key in one of the states it may be in: the last
// acknowledged or one tried after it. That becomes its history.
func (h *history) check(t testing.TB, s *testStore) {
	t.Helper()
	for key, k := range h.keys {
		got := state{}
		var content []byte
		o, err := s.Open(bg, "b", key)
		if err == nil {
			content = make([]byte, o.Size())
			err = o.ReadAt(bg, content, 0, storage.ReadHint{})
			o.Close()
			got.there = true
		}
		if err != nil && !storage.IsNoSuchKey(err) {
			t.Fatalf("key %q: %v", key, err)
		}
		ok := false
		for _, want := range k.tried[k.acked:] {
			if want.there == got.there && (!want.there || bytes.Equal(content, storagetest.Pattern(want.seed, want.n))) {
				got, ok = want, true
				break
			}
		}
		if !ok {
			t.Fatalf("key %q: there=%v, %d bytes; want one of %+v", key, got.there, len(content), k.tried[k.acked:])
		}
		k.tried, k.acked = []state{got}, 0
	}
}

// someCall puts, replaces, deletes, uploads or aborts one of four keys of
// client g.
func someCall(s *testStore, h *history, r *rand.Rand, g int) error {
	key := fmt.Sprintf("%d/%d", g, r.IntN(4))
	st := state{seed: r.Uint64(), n: []int{0, 100, 5000, 70_000, 200_000}[r.IntN(5)], there: true}
	p := storagetest.Pattern(st.seed, st.n)
	switch r.IntN(8) {
	case 0, 1:
		return h.do(key, state{}, func() error { return s.Delete(bg, "b", key, storage.Condition{}) })
	case 2, 3:
		u, err := s.CreateUpload(bg, "b", key, storage.PutOptions{}, checksum.None, "")
		if err != nil {
			return err
		}
		part := func(number int, p []byte) storage.CompletedPart {
			got, perr := s.PutPart(bg, "b", key, u.ID, number, bytes.NewReader(p), storage.PartOptions{Size: int64(len(p))})
			err = errors.Join(err, perr)
			return storage.CompletedPart{Number: number, ETag: got.ETag}
		}
		part(1, storagetest.Pattern(1, 9000))
		part(2, storagetest.Pattern(2, 9000))
		c := part(1, p) // in place of the first
		if err != nil {
			return err
		}
		switch r.IntN(4) {
		case 0:
			return s.AbortUpload(bg, "b", key, u.ID)
		case 1:
			return nil // left unfinished
		}
		return h.do(key, st, func() error {
			_, err := s.CompleteUpload(bg, "b", key, u.ID, []storage.CompletedPart{c}, storage.CompleteOptions{})
			return err
		})
	}
	return h.do(key, st, func() error {
		_, err := s.Put(bg, "b", key, bytes.NewReader(p), storage.PutOptions{Size: int64(st.n)})
		return err
	})
}

// TestCrash stops the world at a random operation and goes on from what a
// crash would have left there: sealed bytes and applied batches, and of the
// bytes not sealed some. Three times in a row for each seed.
func TestCrash(t *testing.T) {
	seeds := 24
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed), 99))
			w := new(world)
			m, b := newMemMeta(w), newMemBlob(w, 12<<20)
			b.longest = []int64{0, 28 << 10}[seed%2]
			s := openMem(t, m, b, Options{})
			if err := s.CreateBucket(bg, storage.Bucket{Name: "b"}); err != nil {
				t.Fatal(err)
			}
			h := newHistory()
			for range 3 {
				s, h = crashOnce(t, s, h, r)
				h.check(t, s)
				s.mustBeClean(t)
				s.checkMisuse(t)
			}
			s.mustClose(t)
		})
	}
}

// crashOnce works on s until the crash and returns the store opened after it,
// with what it must hold.
func crashOnce(t *testing.T, s *testStore, h *history, r *rand.Rand) (*testStore, *history) {
	t.Helper()
	next := new(world)
	var acked *history
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
		acked = h.clone() // what is acknowledged by now has to be there
		s.w.mu.Lock()
		m, b = s.meta.clone(next), s.blob.clone(next, clone)
		s.w.mu.Unlock()
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
				if err := someCall(s, h, r, g); err != nil && !storage.IsNoSuchKey(err) {
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
	// States tried while the world stood still may be in the clone too.
	for key, k := range h.clone().keys {
		if acked.keys[key] == nil {
			acked.keys[key] = &keyHistory{tried: []state{{}}}
		}
		acked.keys[key].tried = k.tried
	}
	return openMem(t, m, b, Options{}), acked
}

// TestFaults lets the k-th operation below fail, for every k: before it has
// any effect or, for a batch, after; once, or as all that follow. Then nothing
// acknowledged is lost, and after a restart nothing is left over.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ after, sticky bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("after=%v,sticky=%v", c.after, c.sticky), func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
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
	s := openMem(t, newMemMeta(w), newMemBlob(w, 2<<20), Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	s.blob.longest = 36 << 10
	if err := s.CreateBucket(bg, storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitRestored(bg); err != nil {
		t.Fatal(err)
	}
	h := newHistory()
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
	for range 14 {
		count(someCall(s, h, r, 0))
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
	before := h.clone()
	before.check(t, s) // in the same process
	s.mustClose(t)
	s.checkMisuse(t)

	next := new(world)
	s2 := openMem(t, s.meta.clone(next), s.blob.clone(next, rand.New(rand.NewPCG(uint64(k), 0))), Options{})
	h.check(t, s2)
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
