package pebblekv

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcached/objcached/storage/meta"
	"github.com/objcached/objcached/storage/meta/metatest"
)

func openTest(t testing.TB, fs vfs.FS, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{FS: fs, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	metatest.Run(t, func(t *testing.T) meta.Store { return openTest(t, vfs.NewMem(), "db") })
}

func TestContractOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("flushes a real disk")
	}
	metatest.Run(t, func(t *testing.T) meta.Store { return openTest(t, nil, t.TempDir()) })
}
