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

func crash(t testing.TB, s blob.Store, torn bool, seed uint64) blob.Store {
	t.Helper()
	old := s.(*Store)
	var c vfile.Crash
	if torn {
		c.Rand = rand.New(rand.NewPCG(seed, 0))
	}
	after, err := Open(Options{FS: old.fs.(*vfile.Mem).CrashClone(c), Capacity: old.capacity, VolumeSize: old.volumeSize})
	if err != nil {
		t.Error(err) // may run beside the test's own goroutine
	}
	return after
}
