// Package local is the embedded store: package object over Pebble and volume
// files in one directory.
//
//	STORE      version and UUID, JSON
//	LOCK       held (flock) while the store is open; says by whom
//	meta/      Pebble
//	volumes/   volume files
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/object"
	"github.com/objcached/objcached/storage/pebblekv"
	"github.com/objcached/objcached/storage/vfile"
	"github.com/objcached/objcached/storage/volume"
)

// Options configures a store. Only Dir is required.
type Options struct {
	Dir string
	// Capacity is the most the volume files may take, in bytes; 0 means 90 % of
	// what the file system has free, the files there are counted as free.
	Capacity int64
	// VolumeSize is the size of new volume files, in bytes; 0: the default of
	// package volume, or less if Capacity is small.
	VolumeSize int64
	Verify     storage.VerifyMode
	Logger     *slog.Logger // default: discards
	// MetaCacheBytes is the size of the metadata's block cache; 0: 64 MiB.
	MetaCacheBytes int64
	// ScrubInterval and ScrubRate (bytes per second): see object.Options.
	ScrubInterval time.Duration
	ScrubRate     int64
	// OnCorrupt is called for every bad block.
	OnCorrupt func(*storage.CorruptError)
	// Now, After and Rand are the clock and the source of ids; nil: the system's.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	Rand  io.Reader
}

// Store is an embedded store: an object.Store and the lock on its directory.
type Store struct {
	*object.Store
	dir  string
	lock *os.File
}

// Open opens the store in o.Dir and makes it, and the directory, if there is
// none. It serves reads when it returns. A directory that another process has
// open is a *LockedError.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	if o.Dir == "" {
		return nil, errors.New("local: no directory given")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	lock, err := acquire(o.Dir, o.Now())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	id, err := identify(o.Dir, o.Now(), o.Rand)
	if err != nil {
		return nil, err
	}
	volumes := filepath.Join(o.Dir, volumesDir)
	for _, dir := range []string{filepath.Join(o.Dir, metaDir), volumes} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
	}
	if err := syncDir(o.Dir); err != nil {
		return nil, err
	}
	if o.Capacity == 0 {
		if o.Capacity, err = defaultCapacity(volumes); err != nil {
			return nil, err
		}
	}
	o.Logger.Info("opening the store", slog.String("dir", o.Dir), slog.String("uuid", id.UUID), slog.Int64("capacity", o.Capacity))
	s, err := open(ctx, o, id.UUID, filepath.Join(o.Dir, metaDir), vfs.Default, vfile.OS(volumes))
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, dir: o.Dir, lock: lock}, nil
}

// open puts the layers together; a test gives its own file systems.
func open(ctx context.Context, o Options, uuid, metaPath string, metaFS vfs.FS, volumeFS vfile.FS) (*object.Store, error) {
	if o.VolumeSize == 0 {
		o.VolumeSize = min(volume.DefaultVolumeSize, max(o.Capacity/8, 64<<20), o.Capacity)
	}
	kv, err := pebblekv.Open(metaPath, pebblekv.Options{FS: metaFS, CacheBytes: o.MetaCacheBytes, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	vol, err := volume.Open(volume.Options{FS: volumeFS, Capacity: o.Capacity, VolumeSize: o.VolumeSize})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("local: %w", err), kv.Close())
	}
	return object.Open(ctx, kv, vol, object.Options{
		Verify: o.Verify, Logger: o.Logger, Now: o.Now, After: o.After, Rand: o.Rand, UUID: uuid,
		ScrubInterval: o.ScrubInterval, ScrubRate: o.ScrubRate, OnCorrupt: o.OnCorrupt,
	})
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// Close closes the store, then lets go of its directory.
func (s *Store) Close() error {
	err := s.Store.Close()
	if cerr := s.lock.Close(); !errors.Is(cerr, fs.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	return err
}

// defaultCapacity is 90 % of the space that is free or taken by our own files.
func defaultCapacity(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("local: free space of %s: %w", dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("local: %w", err)
	}
	for _, e := range entries {
		var fst unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, e.Name()), &fst); err != nil {
			return 0, fmt.Errorf("local: size of %s: %w", e.Name(), err)
		}
		free += fst.Blocks * 512
	}
	return free / 10 * 9, nil
}
