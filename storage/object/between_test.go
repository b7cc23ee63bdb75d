package object

import (
	"bytes"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
	"github.com/objcached/objcached/storage/storagetest"
)

// These tests let one call run in the middle of another, where a race would
// have to hit exactly.

// between runs fn once, before the next batch that sets a key of a kind.
func (s *testStore) between(kind byte, fn func()) {
	var once atomic.Bool
	s.meta.beforeApply = func(b *meta.Batch) {
		for _, op := range b.Ops {
			if !op.Delete && op.Key[0] == kind && once.CompareAndSwap(false, true) {
				fn()
				return
			}
		}
	}
}

// TestDropBetweenLookupAndPin: an object is deleted when a reader has seen its
// record and not pinned it yet.
func TestDropBetweenLookupAndPin(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	want := storagetest.Pattern(1, 300_000)
	s.mustPut(t, "k", want)
	var once atomic.Bool
	s.meta.afterGet = func(key []byte) {
		if string(key) != "ok" || !once.CompareAndSwap(false, true) {
			return
		}
		deleted := make(chan error)
		go func() { deleted <- s.Delete(bg, "b", "k", storage.Condition{}) }()
		if err := <-deleted; err != nil {
			t.Error(err)
		}
		// A reaper that does not wait for us would have freed it by then.
		for range 50 {
			if s.blob.Stats().Reserved == 0 {
				t.Error("freed under a reader")
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := o.ReadAt(bg, got, 0, storage.ReadHint{}); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v", err)
	}
	o.Close()
	s.meta.afterGet = nil
	s.mustBeClean(t)
	if n := s.blob.Stats().Reserved; n != 0 {
		t.Fatalf("%d bytes are still taken", n)
	}
}

func TestBucketDeletedBeforeCommit(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	s.between(keyObject, func() {
		if err := s.DeleteBucket(bg, "b"); err != nil {
			t.Error(err)
		}
	})
	p := storagetest.Pattern(1, 9000)
	_, err := s.Put(bg, "b", "k", bytes.NewReader(p), storage.PutOptions{Size: 9000})
	if !errors.Is(err, storage.ErrNoSuchBucket) {
		t.Fatal(err)
	}
	if parts, _ := s.meta.Partitions(bg); len(parts) != 1 {
		t.Fatalf("partitions left: %q", parts)
	}
	s.mustBeClean(t)
}

// TestPutDuringDeleteBucket: the put finds the marker at "deleting", waits for
// the outcome and lands, since the bucket is not empty.
func TestPutDuringDeleteBucket(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	var once atomic.Bool
	put := make(chan error, 1)
	s.meta.beforeApply = func(b *meta.Batch) {
		if len(b.Ops) != 1 || b.Ops[0].Key[0] != keyMarker || !once.CompareAndSwap(false, true) {
			return
		}
		s.mustPut(t, "first", nil) // lands before the bucket closes, after the first look
		go func() {
			_, err := s.Put(bg, "b", "second", bytes.NewReader(nil), storage.PutOptions{})
			put <- err
		}()
	}
	if err := s.DeleteBucket(bg, "b"); !errors.Is(err, storage.ErrBucketNotEmpty) {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Fatal(err)
	}
}

func (s *testStore) upload(t *testing.T, parts ...[]byte) (storage.Upload, []storage.CompletedPart) {
	t.Helper()
	u, err := s.CreateUpload(bg, "b", "k", storage.PutOptions{}, checksum.None, "")
	if err != nil {
		t.Fatal(err)
	}
	var list []storage.CompletedPart
	for i, p := range parts {
		list = append(list, s.part(t, u, i+1, p))
	}
	return u, list
}

func (s *testStore) part(t *testing.T, u storage.Upload, number int, p []byte) storage.CompletedPart {
	t.Helper()
	got, err := s.PutPart(bg, "b", "k", u.ID, number, bytes.NewReader(p), storage.PartOptions{Size: int64(len(p))})
	if err != nil {
		t.Fatal(err)
	}
	return storage.CompletedPart{Number: number, ETag: got.ETag}
}

func TestUploadEndsBeforePartCommits(t *testing.T) {
	for name, end := range map[string]func(*testStore, storage.Upload, []storage.CompletedPart) error{
		"abort": func(s *testStore, u storage.Upload, _ []storage.CompletedPart) error {
			return s.AbortUpload(bg, "b", "k", u.ID)
		},
		"complete": func(s *testStore, u storage.Upload, list []storage.CompletedPart) error {
			_, err := s.CompleteUpload(bg, "b", "k", u.ID, list, storage.CompleteOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withBucket(t, 4<<20, Options{})
			defer s.mustClose(t)
			p := storagetest.Pattern(1, 9000)
			u, list := s.upload(t, p)
			s.between(keyPart, func() {
				if err := end(s, u, list); err != nil {
					t.Error(err)
				}
				for s.reap.flush(bg) {
				}
			})
			_, err := s.PutPart(bg, "b", "k", u.ID, 2, bytes.NewReader(p), storage.PartOptions{Size: 9000})
			if !errors.Is(err, storage.ErrNoSuchUpload) {
				t.Fatal(err)
			}
			s.mustBeClean(t)
		})
	}
}

func TestPartReplacedBeforeComplete(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	u, list := s.upload(t, storagetest.Pattern(1, 9000))
	s.between(keyObject, func() {
		s.part(t, u, 1, storagetest.Pattern(2, 9000))
		for s.reap.flush(bg) {
		}
	})
	_, err := s.CompleteUpload(bg, "b", "k", u.ID, list, storage.CompleteOptions{})
	if !errors.Is(err, storage.ErrInvalidPart) {
		t.Fatal(err)
	}
	s.mustBeClean(t)
	// The same bytes again are a part with the same ETag: the completion takes it.
	list[0] = s.part(t, u, 1, storagetest.Pattern(3, 9000))
	s.between(keyObject, func() {
		s.part(t, u, 1, storagetest.Pattern(3, 9000))
		for s.reap.flush(bg) {
		}
	})
	if _, err := s.CompleteUpload(bg, "b", "k", u.ID, list, storage.CompleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := s.mustBeClean(t); r.Objects != 1 || r.Parts != 0 || r.Bytes != 9000 {
		t.Fatalf("%+v", r)
	}
}

func TestCompletedTwice(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	u, list := s.upload(t, storagetest.Pattern(1, 9000))
	var first storage.ObjectInfo
	s.between(keyObject, func() {
		var err error
		if first, err = s.CompleteUpload(bg, "b", "k", u.ID, list, storage.CompleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// It finds the upload gone and the object it was made into.
	second, err := s.CompleteUpload(bg, "b", "k", u.ID, list, storage.CompleteOptions{})
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Fatalf("%+v, then %+v, %v", first, second, err)
	}
	if r := s.mustBeClean(t); r.Objects != 1 {
		t.Fatalf("%+v", r)
	}
}

func TestCompletedBeforeAbort(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	u, list := s.upload(t, storagetest.Pattern(1, 9000))
	s.between(keyGarbage, func() {
		if _, err := s.CompleteUpload(bg, "b", "k", u.ID, list, storage.CompleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if err := s.AbortUpload(bg, "b", "k", u.ID); !errors.Is(err, storage.ErrNoSuchUpload) {
		t.Fatal(err)
	}
	if r := s.mustBeClean(t); r.Objects != 1 {
		t.Fatalf("%+v", r)
	}
}

func TestBucketDeletedBeforeUpload(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	s.between(keyUpload, func() {
		if err := s.DeleteBucket(bg, "b"); err != nil {
			t.Error(err)
		}
	})
	_, err := s.CreateUpload(bg, "b", "k", storage.PutOptions{}, checksum.None, "")
	if !errors.Is(err, storage.ErrNoSuchBucket) {
		t.Fatal(err)
	}
}

// TestOverwrittenBeforeCommit: the put that comes second replaces the first,
// and the extents of both that are gone are freed.
func TestOverwrittenBeforeCommit(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	defer s.mustClose(t)
	s.mustPut(t, "k", storagetest.Pattern(1, 9000))
	s.between(keyObject, func() { s.mustPut(t, "k", storagetest.Pattern(2, 9001)) })
	s.mustPut(t, "k", storagetest.Pattern(3, 9002))
	if r := s.mustBeClean(t); r.Objects != 1 || r.Bytes != 9002 {
		t.Fatalf("%+v", r)
	}
	// With a condition the second loses.
	s.between(keyObject, func() { s.mustPut(t, "new", nil) })
	_, err := s.Put(bg, "b", "new", bytes.NewReader(storagetest.Pattern(3, 9000)), storage.PutOptions{Size: 9000, Cond: storage.Condition{IfNoneMatch: "*"}})
	if !errors.Is(err, storage.ErrPrecondition) {
		t.Fatal(err)
	}
	s.mustBeClean(t)
}

// TestGate: whoever saw a thing before it was withdrawn has left when pass returns.
func TestGate(t *testing.T) {
	type thing struct{ freed atomic.Bool }
	g := newGate()
	var public atomic.Pointer[thing]
	public.Store(new(thing))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := g.enter()
				x := public.Load()
				for range 20 {
					if x.freed.Load() {
						t.Error("freed under a reader")
						break
					}
				}
				g.leave(p)
			}
		})
	}
	rounds := 3000
	if raceEnabled {
		rounds = 500
	}
	for range rounds {
		old := public.Swap(new(thing))
		g.pass()
		old.freed.Store(true)
	}
	close(stop)
	wg.Wait()
}

// TestFreeGrace: dropped extents stay for the time that readers elsewhere may need.
func TestFreeGrace(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1e9, 0)
	timer := make(chan time.Time)
	s := withBucket(t, 4<<20, Options{FreeGrace: time.Minute,
		Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
		After: func(d time.Duration) <-chan time.Time {
			if d <= 0 || d > time.Minute {
				t.Errorf("waits %v", d)
			}
			return timer
		}})
	defer s.mustClose(t)
	s.mustPut(t, "k", storagetest.Pattern(1, 9000))
	if err := s.Delete(bg, "b", "k", storage.Condition{}); err != nil {
		t.Fatal(err)
	}
	timer <- time.Time{} // the reaper has looked and waits
	timer <- time.Time{}
	if s.blob.Stats().Reserved == 0 {
		t.Fatal("freed before its time")
	}
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	for s.reap.flush(bg) {
	}
	if n := s.blob.Stats().Reserved; n != 0 {
		t.Fatalf("%d bytes are still taken", n)
	}
}

// TestNewerStore: a store of a newer version is refused, and so is another store's metadata.
func TestNewerStore(t *testing.T) {
	w := new(world)
	m := newMemMeta(w)
	s := openMem(t, m, newMemBlob(w, 1<<20), Options{UUID: "one"})
	s.mustClose(t)
	if _, err := Open(bg, m, newMemBlob(w, 1<<20), Options{UUID: "two"}); err == nil {
		t.Fatal("took the metadata of another store")
	}
	m.parts[sysPartition].m[string(rune(sysStore))][0]++
	if _, err := Open(bg, m, newMemBlob(w, 1<<20), Options{UUID: "one"}); err == nil {
		t.Fatal("took a newer version")
	}
}

// TestRestoreFails: with a free list that cannot be restored reads are served and writes refused.
func TestRestoreFails(t *testing.T) {
	s := withBucket(t, 4<<20, Options{})
	want := storagetest.Pattern(1, 9000)
	s.mustPut(t, "k", want)
	s.mustPut(t, "gone", want)
	var b meta.Batch
	k, v := s.first(t, keyExtent)
	e, _, _ := parseExtent(k, v)
	e.Offset += 4096
	b.Set(extentKey(e), extentValue(e, ID{9}))
	s.edit(t, &b)
	s.mustClose(t)
	w := new(world)
	s = openMem(t, s.meta.clone(w), s.blob, Options{})
	defer s.mustClose(t)
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := o.ReadAt(bg, got, 0, storage.ReadHint{}); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
	o.Close()
	if _, err := s.Put(bg, "b", "new", bytes.NewReader(want), storage.PutOptions{Size: 9000}); err == nil {
		t.Fatal("took a write")
	}
	if err := s.Delete(bg, "b", "gone", storage.Condition{}); err != nil {
		t.Fatal(err)
	}
}
