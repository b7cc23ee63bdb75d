package pebblekv

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcached/objcached/storage/meta"
	"github.com/objcached/objcached/storage/meta/metatest"
)

func testOptions(fs vfs.FS) Options {
	return Options{FS: fs, CacheBytes: 1 << 20, MemTableBytes: 256 << 10, Logger: slog.New(slog.DiscardHandler)}
}

func openTest(t testing.TB, fs vfs.FS, dir string) *Store {
	t.Helper()
	s, err := Open(dir, testOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	metatest.Run(t, func(t *testing.T) meta.Store { return openTest(t, vfs.NewMem(), "db") })
}

func TestContractOnDisk(t *testing.T) {
	metatest.Run(t, func(t *testing.T) meta.Store { return openTest(t, nil, t.TempDir()) })
}

// memStore knows the file system it lies in.
type memStore struct {
	*Store
	fs *vfs.MemFS
}

func openMem(t testing.TB, fs *vfs.MemFS) meta.Store {
	s, err := Open("db", testOptions(fs))
	if err != nil {
		t.Error(err) // not Fatal: may run beside the test's own goroutine
	}
	return memStore{s, fs}
}

func crash(t testing.TB, fs *vfs.MemFS, percent int, seed uint64) meta.Store {
	return openMem(t, fs.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0)),
	}))
}

func TestDurable(t *testing.T) {
	metatest.RunDurable(t, metatest.Durable{
		Open:   func(t testing.TB) meta.Store { return openMem(t, vfs.NewCrashableMem()) },
		Reopen: func(t testing.TB, s meta.Store) meta.Store { return openMem(t, s.(memStore).fs) },
		Crash: func(t testing.TB, s meta.Store, percent int, seed uint64) meta.Store {
			return crash(t, s.(memStore).fs, percent, seed)
		},
	})
}

func TestPartitionOfOnes(t *testing.T) {
	t.Parallel()
	s := openTest(t, vfs.NewMem(), "db")
	defer s.Close()
	last := strings.Repeat("\xff", MaxPartition)
	for _, p := range []string{last, last[:MaxPartition-1]} {
		var b meta.Batch
		b.Set([]byte("\xff\xff"), []byte("v"))
		if err := s.Apply(t.Context(), p, &b); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := s.Scan(t.Context(), p, nil, nil, func(k, _ []byte) (bool, error) {
			n++
			return string(k) == "\xff\xff", nil
		}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	if names, err := s.Partitions(t.Context()); err != nil || len(names) != 2 {
		t.Fatalf("%d partitions, %v", len(names), err)
	}
	var b meta.Batch
	b.Set(nil, nil)
	if err := s.Apply(t.Context(), last+"x", &b); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	for range 200 {
		var g gate
		g.init()
		var mu sync.Mutex
		closed := false
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					mu.Lock()
					if closed {
						t.Error("inside after close")
					}
					mu.Unlock()
					g.leave()
				}
			})
		}
		if !g.close() || g.close() {
			t.Error("the first close is the one")
		}
		mu.Lock()
		closed = true
		mu.Unlock()
		wg.Wait()
	}
}

// raceDetector: under it sync.Pool forgets at random, so allocations cannot be counted.
var raceDetector bool

func TestGetAllocs(t *testing.T) {
	if raceDetector {
		t.Skip("race detector")
	}
	s := openTest(t, vfs.NewMem(), "db")
	defer s.Close()
	var b meta.Batch
	key := []byte("okey/of/some/length/0123456789abcdef")
	b.Set(key, make([]byte, 300))
	if err := s.Apply(t.Context(), "b1", &b); err != nil {
		t.Fatal(err)
	}
	check := func(where string, most float64) {
		t.Helper()
		dst := make([]byte, 0, 512)
		if n := testing.AllocsPerRun(200, func() {
			v, err := s.Get(t.Context(), "b1", key, dst)
			if err != nil || len(v) != 300 {
				t.Fatal(err)
			}
		}); n > most {
			t.Errorf("a Get from %s allocates %v times", where, n)
		}
	}
	check("the memtable", 0)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	// Pebble's own 16 bytes: a filter against obsolete points.
	check("a table in the cache", 1)
}
