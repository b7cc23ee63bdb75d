package volume

import (
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/blob/blobtest"
	"github.com/objcached/objcached/storage/vfile"
)

func TestContractOnDisk(t *testing.T) {
	blobtest.Run(t, blobtest.Config{
		Open: func(t testing.TB, capacity int64) blob.Store {
			return mustOpen(t, vfile.OS(t.TempDir()), capacity)
		},
		Reopen: func(t testing.TB, s blob.Store) blob.Store {
			old := s.(*Store)
			return mustOpen(t, old.fs, old.capacity)
		},
	})
}

func TestContractInMemory(t *testing.T) {
	blobtest.Run(t, blobtest.Config{
		Open: func(t testing.TB, capacity int64) blob.Store {
			return mustOpen(t, vfile.NewMem(), capacity)
		},
		Reopen: func(t testing.TB, s blob.Store) blob.Store {
			old := s.(*Store)
			return mustOpen(t, old.fs, old.capacity)
		},
		Crash: crash,
	})
}

// Volumes of 1 MiB: what the suite reserves spans several.
func TestContractManyVolumes(t *testing.T) {
	blobtest.Run(t, blobtest.Config{
		Open: func(t testing.TB, capacity int64) blob.Store {
			s, err := Open(Options{FS: vfile.NewMem(), Capacity: capacity, VolumeSize: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Crash: crash,
	})
}

func mustOpen(t testing.TB, fsys vfile.FS, capacity int64) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, Capacity: capacity})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crash is the Crash of a store in a vfile.Mem.
func crash(t testing.TB, s blob.Store, torn bool, seed uint64) blob.Store {
	t.Helper()
	old := s.(*Store)
	return crashed(t, old.fs.(*vfile.Mem), old, torn, seed)
}

// crashed opens what is left of old, which lies in mem, after a crash.
func crashed(t testing.TB, mem *vfile.Mem, old *Store, torn bool, seed uint64) blob.Store {
	t.Helper()
	var c vfile.Crash
	if torn {
		c.Rand = rand.New(rand.NewPCG(seed, 0))
	}
	s, err := Open(Options{FS: mem.CrashClone(c), Capacity: old.capacity, VolumeSize: old.volumeSize})
	if err != nil {
		t.Error(err) // not Fatal: may run beside the test's own goroutine
	}
	return s
}
