package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

func openDir(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir, Capacity: 256 << 20, VolumeSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return openDir(t, t.TempDir()) })
}

func put(t testing.TB, s storage.Store, key string, p []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), "b", key, bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))}); err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, s storage.Store, key string, want []byte) {
	t.Helper()
	o, err := s.Open(context.Background(), "b", key)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	defer o.Close()
	p := make([]byte, o.Size())
	if err := o.ReadAt(context.Background(), p, 0, storage.ReadHint{}); err != nil || !bytes.Equal(p, want) {
		t.Fatalf("%s: %d bytes, want %d; %v", key, len(p), len(want), err)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	if err := s.CreateBucket(t.Context(), storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "small", storagetest.Pattern(1, 100))
	put(t, s, "large", storagetest.Pattern(2, 3<<20))
	put(t, s, "gone", storagetest.Pattern(3, 1<<20))
	if err := s.Delete(t.Context(), "b", "gone", storage.Condition{}); err != nil {
		t.Fatal(err)
	}
	uuid := s.UUID()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal("second Close:", err)
	}
	s = openDir(t, dir)
	defer s.Close()
	if s.UUID() != uuid {
		t.Fatalf("UUID %s, was %s", s.UUID(), uuid)
	}
	expect(t, s, "small", storagetest.Pattern(1, 100))
	expect(t, s, "large", storagetest.Pattern(2, 3<<20))
	if err := s.WaitRestored(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats().Blob.Reserved; got != 3<<20 {
		t.Fatalf("%d bytes are reserved, want those of one object", got)
	}
	put(t, s, "after", storagetest.Pattern(4, 1<<20))
	expect(t, s, "after", storagetest.Pattern(4, 1<<20))
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	_, err := Open(t.Context(), Options{Dir: dir, Capacity: 1 << 30})
	var locked *LockedError
	if !errors.As(err, &locked) || !strings.Contains(err.Error(), "process ") {
		t.Fatalf("second Open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openDir(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	if err := openDir(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, storeFile)
	write := func(content string) error {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Options{Dir: dir})
		if err == nil {
			s.Close()
			t.Fatalf("opened with %q", content)
		}
		return err
	}
	var newer *VersionError
	if err := write(`{"version": 2, "uuid": "x", "more": []}`); !errors.As(err, &newer) || newer.Have != 2 {
		t.Fatal(err)
	}
	write(`{"version": 1, "uuid": "another store's"}`)
	write(`{"version": 1}`)
	write(`not JSON`)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir}); err == nil {
		t.Fatal("a directory that lost its STORE was taken for a new one")
	}
}

func TestDefaultCapacity(t *testing.T) {
	dir := t.TempDir()
	before, err := defaultCapacity(dir)
	if err != nil || before <= 0 {
		t.Fatal(before, err)
	}
	s, err := Open(t.Context(), Options{Dir: dir, Now: func() time.Time { return time.Unix(1e9, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Stats().Blob.Capacity; got <= 0 {
		t.Fatalf("capacity %d", got)
	}
}
