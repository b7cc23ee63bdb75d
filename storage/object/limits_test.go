package object

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

// TestMaxBuckets: a tenant has its number of buckets and no more, whoever
// comes at once and whatever came before the start.
func TestMaxBuckets(t *testing.T) {
	s := newMem(t, 1<<20, Options{MaxBuckets: 5})
	create := func(tenant, name string) error {
		return s.CreateBucket(bg, storage.Bucket{Name: name, Tenant: tenant})
	}
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			switch err := create("blue", fmt.Sprintf("blue-%d", i)); {
			case err == nil:
				made.Add(1)
			case errors.Is(err, storage.ErrTooManyBuckets):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 5 || refused.Load() != 15 {
		t.Fatalf("%d made, %d refused", made.Load(), refused.Load())
	}
	if err := create("red", "red-1"); err != nil {
		t.Fatal(err)
	}
	for range 10 { // a name that is taken counts for nobody
		if err := create("red", "red-1"); !errors.Is(err, storage.ErrBucketExists) {
			t.Fatal(err)
		}
	}
	m := s.meta
	s.mustClose(t)
	s = openMem(t, m, newMemBlob(m.w, 1<<20), Options{MaxBuckets: 5})
	defer s.mustClose(t)
	if err := create("blue", "one-more"); !errors.Is(err, storage.ErrTooManyBuckets) {
		t.Fatalf("after a start: %v", err)
	}
	page, err := s.ListBuckets(bg, storage.ListBucketsOptions{Prefix: "blue-", Max: 1})
	if err != nil || len(page) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if err := s.DeleteBucket(bg, page[0].Name); err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, storage.ErrTooManyBuckets} {
		if err := create("blue", fmt.Sprintf("again-%d", i)); !errors.Is(err, want) {
			t.Fatalf("bucket %d after a deletion: %v, want %v", i, err, want)
		}
	}
	for i := range 4 {
		if err := create("red", fmt.Sprintf("red-%d", i+2)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMaxUploads: so it is with the unfinished uploads of a bucket.
func TestMaxUploads(t *testing.T) {
	s := withBucket(t, 4<<20, Options{MaxUploads: 5})
	var mu sync.Mutex
	var open []storage.Upload
	begin := func() error {
		u, err := s.CreateUpload(bg, "b", "k", storage.PutOptions{}, checksum.None, "")
		if err == nil {
			mu.Lock()
			open = append(open, u)
			mu.Unlock()
		}
		return err
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := begin(); err != nil && !errors.Is(err, storage.ErrTooManyUploads) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(open) != 5 {
		t.Fatalf("%d uploads", len(open))
	}
	m := s.meta
	s.mustClose(t)
	s = openMem(t, m, newMemBlob(m.w, 4<<20), Options{MaxUploads: 5})
	defer s.mustClose(t)
	// The first that this process does with the bucket is to end one.
	if err := s.AbortUpload(bg, "b", "k", open[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := s.AbortUpload(bg, "b", "k", open[0].ID); !errors.Is(err, storage.ErrNoSuchUpload) {
		t.Fatal(err)
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	if err := begin(); !errors.Is(err, storage.ErrTooManyUploads) {
		t.Fatal(err)
	}
	c := s.part(t, open[1], 1, storagetest.Pattern(1, 5000))
	for range 2 { // the second time is a repetition and ends nothing
		if _, err := s.CompleteUpload(bg, "b", "k", open[1].ID, []storage.CompletedPart{c}, storage.CompleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []error{nil, storage.ErrTooManyUploads} {
		if err := begin(); !errors.Is(err, want) {
			t.Fatalf("upload %d after a completion: %v, want %v", i, err, want)
		}
	}
}
