package local

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/vfile"
)

// TestRefusalIsDurable: "the key exists" is taken for "my chunk is stored", so
// it must not be said of a put that a crash could still undo.
func TestRefusalIsDurable(t *testing.T) {
	var armed, released atomic.Bool
	release := make(chan struct{})
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && strings.HasSuffix(op.Path, ".log") &&
			(op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			<-release
		}
		return nil
	}))
	o := Options{Capacity: 24 << 20, VolumeSize: 8 << 20, Logger: slog.New(slog.DiscardHandler), MetaCacheBytes: 1 << 20}
	s, err := open(t.Context(), o, "uuid", "meta", fsys, vfile.NewMem())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.CreateBucket(t.Context(), storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	write := func(c storage.Condition) error {
		_, err := s.Put(t.Context(), "b", "k", bytes.NewReader(make([]byte, 10)), storage.PutOptions{Size: 10, Cond: c})
		return err
	}
	armed.Store(true)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- write(storage.Condition{}) }()
	for { // until the first put is visible
		if _, err := s.Stat(t.Context(), "b", "k"); err == nil {
			break
		} else if !storage.IsNoSuchKey(err) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	go func() {
		err := write(storage.Condition{IfNoneMatch: "*"})
		if !released.Load() {
			t.Error("refused before the put that it rests on was durable")
		}
		second <- err
	}()
	time.Sleep(20 * time.Millisecond) // time to go wrong in
	released.Store(true)
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("second put: %v", err)
	}
}
