package local

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/object"
	"github.com/objcached/objcached/storage/storagetest"
	"github.com/objcached/objcached/storage/vfile"
)

// memStore is a store over two file systems in memory that can crash.
type memStore struct {
	*object.Store
	meta    *vfs.MemFS
	volumes *vfile.Mem
	onOp    atomic.Pointer[func()] // before each operation on a volume
}

func openMem(t *testing.T, meta *vfs.MemFS, volumes *vfile.Mem) *memStore {
	t.Helper()
	m := &memStore{meta: meta, volumes: volumes}
	fsys := vfile.Faulty(volumes, func(vfile.Op) vfile.Fault {
		if fn := m.onOp.Load(); fn != nil {
			(*fn)()
		}
		return vfile.Fault{}
	})
	o := Options{Capacity: 24 << 20, VolumeSize: 8 << 20, Logger: slog.New(slog.DiscardHandler), MetaCacheBytes: 1 << 20}
	s, err := open(t.Context(), o, "uuid", "meta", meta, fsys)
	if err != nil {
		t.Fatal(err)
	}
	m.Store = s
	return m
}

// mustBeClean scrubs and checks that no more space is taken than live objects
// and parts can account for.
func (m *memStore) mustBeClean(t *testing.T) {
	t.Helper()
	if err := m.WaitRestored(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := m.Scrub(t.Context(), object.ScrubOptions{})
	if err != nil || !r.Clean() {
		t.Fatalf("scrub: %+v, %v", r, err)
	}
}

// TestCrash cuts the power at a random operation on the volumes: what Pebble
// and the volumes had not synced by then is lost, or some of it is. Every
// acknowledged object is whole and none is there by halves.
func TestCrash(t *testing.T) {
	seeds := 8
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			s := openMem(t, vfs.NewCrashableMem(), vfile.NewMem())
			if err := s.CreateBucket(t.Context(), storage.Bucket{Name: "b"}); err != nil {
				t.Fatal(err)
			}
			h := storagetest.NewHistory("b")
			for range 2 {
				s, h = crashOnce(t, s, h, r)
				h.Check(t, s)
				s.mustBeClean(t)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func crashOnce(t *testing.T, s *memStore, h *storagetest.History, r *rand.Rand) (*memStore, *storagetest.History) {
	t.Helper()
	var acked *storagetest.History
	var meta *vfs.MemFS
	var volumes *vfile.Mem
	crashed := make(chan struct{})
	var ops atomic.Int64
	at := int64(10 + r.IntN(400))
	metaRand := rand.New(rand.NewPCG(r.Uint64(), 2))
	dataRand := rand.New(rand.NewPCG(r.Uint64(), 1))
	keepMeta := r.IntN(101)
	onOp := func() {
		if ops.Add(1) != at {
			return
		}
		acked = h.Clone()
		volumes = s.volumes.CrashClone(vfile.Crash{Rand: dataRand, While: func() {
			meta = s.meta.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keepMeta, RNG: metaRand})
		}})
		acked.Extend(h)
		close(crashed)
	}
	s.onOp.Store(&onOp)
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
				if err := h.Call(context.Background(), s, r, g); err != nil && !storage.IsNoSuchKey(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	<-crashed
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openMem(t, meta, volumes), acked
}

// TestStalledReader holds deleted objects open while the store is filled many
// times over, so that their space would have been used again.
func TestStalledReader(t *testing.T) {
	s := openMem(t, vfs.NewMem(), vfile.NewMem())
	defer s.Close()
	if err := s.CreateBucket(t.Context(), storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	const n = 3<<20 + 777
	var open []storage.Object
	for i := range 3 {
		key := fmt.Sprint("stalled", i)
		put(t, s, key, storagetest.Pattern(uint64(i), n))
		o, err := s.Open(t.Context(), "b", key)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, o)
		if i == 1 {
			put(t, s, key, nil)
		}
		if err := s.Delete(t.Context(), "b", key, storage.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	half := make([]byte, n/2)
	for i, o := range open {
		if err := o.ReadAt(t.Context(), half, 0, storage.ReadHint{}); err != nil || string(half) != string(storagetest.Pattern(uint64(i), n)[:n/2]) {
			t.Fatalf("object %d: first half: %v", i, err)
		}
	}
	for round := range 24 { // 96 MiB through the 15 MiB that are left
		put(t, s, fmt.Sprint("churn", round%2), storagetest.Pattern(uint64(1000+round), 4<<20))
	}
	for i, o := range open {
		rest := make([]byte, n-n/2)
		if err := o.ReadAt(t.Context(), rest, n/2, storage.ReadHint{}); err != nil || string(rest) != string(storagetest.Pattern(uint64(i), n)[n/2:]) {
			t.Fatalf("object %d: second half: %v", i, err)
		}
		o.Close()
	}
	// Now their space is there too.
	put(t, s, "large", storagetest.Pattern(5, 9<<20))
	expect(t, s, "large", storagetest.Pattern(5, 9<<20))
}
