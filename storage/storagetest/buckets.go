package storagetest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

func testBuckets(t *testing.T, e *env) {
	created := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	want := storage.Bucket{Name: "a.bucket", Owner: "me", Tenant: "acme", Created: created}
	if err := e.CreateBucket(e.ctx, want); err != nil {
		t.Fatal(err)
	}
	got, err := e.GetBucket(e.ctx, want.Name)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("GetBucket: %+v, %v", got, err)
	}
	wantErr(t, "again", e.CreateBucket(e.ctx, storage.Bucket{Name: want.Name, Owner: "you"}), storage.ErrBucketExists)
	list, err := e.ListBuckets(e.ctx, storage.ListBucketsOptions{Max: 10})
	if err != nil || len(list) != 2 || !reflect.DeepEqual(list[0], want) || list[1].Name != "b" || list[1].Created.IsZero() {
		t.Fatalf("ListBuckets: %+v, %v", list, err)
	}

	_, err = e.GetBucket(e.ctx, "none")
	wantErr(t, "GetBucket", err, storage.ErrNoSuchBucket)
	wantErr(t, "DeleteBucket", e.DeleteBucket(e.ctx, "none"), storage.ErrNoSuchBucket)
	_, err = e.Put(e.ctx, "none", "k", bytes.NewReader(nil), storage.PutOptions{})
	wantErr(t, "Put", err, storage.ErrNoSuchBucket)
	_, err = e.Open(e.ctx, "none", "k")
	wantErr(t, "Open", err, storage.ErrNoSuchBucket)
	_, err = e.Stat(e.ctx, "none", "k")
	wantErr(t, "Stat", err, storage.ErrNoSuchBucket)
	wantErr(t, "Delete", e.Delete(e.ctx, "none", "k", storage.Condition{}), storage.ErrNoSuchBucket)
	_, err = e.List(e.ctx, "none", storage.ListOptions{Max: 1})
	wantErr(t, "List", err, storage.ErrNoSuchBucket)

	e.put(t, "k", Pattern(1, 9000))
	wantErr(t, "holds an object", e.DeleteBucket(e.ctx, "b"), storage.ErrBucketNotEmpty)
	kept := e.open(t, "k")
	if err := e.Delete(e.ctx, "b", "k", storage.Condition{}); err != nil {
		t.Fatal(err)
	}
	u, err := e.CreateUpload(e.ctx, "b", "k", storage.PutOptions{}, checksum.None, "")
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "holds an upload", e.DeleteBucket(e.ctx, "b"), storage.ErrBucketNotEmpty)
	if err := e.AbortUpload(e.ctx, "b", "k", u.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteBucket(e.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	_, err = e.Put(e.ctx, "b", "k", bytes.NewReader(nil), storage.PutOptions{})
	wantErr(t, "Put into a deleted bucket", err, storage.ErrNoSuchBucket)
	e.expectObject(t, kept, Pattern(1, 9000)) // though even its bucket is gone
	// A new bucket of the name has nothing of the old one.
	if err := e.CreateBucket(e.ctx, storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	_, err = e.Stat(e.ctx, "b", "k")
	wantErr(t, "Stat in the new bucket", err, storage.ErrNoSuchKey)
	e.put(t, "k", Pattern(2, 9000))
	e.expectObject(t, kept, Pattern(1, 9000))
	kept.Close()
	e.expect(t, "k", Pattern(2, 9000))
}

// testListBuckets pages through buckets by every page size.
func testListBuckets(t *testing.T, e *env) {
	all := []string{"a", "a.b", "a.c", "b", "ba", "bb", "c"}
	for _, name := range all {
		if name != "b" {
			if err := e.CreateBucket(e.ctx, storage.Bucket{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, prefix := range []string{"", "a", "a.", "b", "bb", "c", "d", "\xff"} {
		for _, after := range []string{"", "a", "a.bb", "b", "zz"} {
			var want []string
			for _, name := range all {
				if strings.HasPrefix(name, prefix) && name > after {
					want = append(want, name)
				}
			}
			for n := 1; n < 9; n++ {
				var got []string
				o := storage.ListBucketsOptions{Prefix: prefix, After: after, Max: n}
				for {
					page, err := e.ListBuckets(e.ctx, o)
					if err != nil || len(page) > n {
						t.Fatalf("%+v: %d buckets, %v", o, len(page), err)
					}
					for _, b := range page {
						got = append(got, b.Name)
					}
					if len(page) < n {
						break
					}
					o.After = page[n-1].Name
				}
				if !slices.Equal(got, want) {
					t.Fatalf("prefix %q after %q by %d: %q, want %q", prefix, after, n, got, want)
				}
			}
		}
	}
	if page, err := e.ListBuckets(e.ctx, storage.ListBucketsOptions{}); err != nil || len(page) != 0 {
		t.Fatalf("Max 0: %+v, %v", page, err)
	}
}

// testDeleteBucketRaces: a put either lands, and then the bucket stays, or
// fails because there is no bucket.
func testDeleteBucketRaces(t *testing.T, e *env) {
	for round := range 30 {
		name := keyf("race%d", round)
		if err := e.CreateBucket(e.ctx, storage.Bucket{Name: name}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		putErrs := make([]error, 4)
		delErrs := make([]error, 3)
		for i := range putErrs {
			wg.Go(func() {
				p := Pattern(uint64(i), i*3000)
				_, putErrs[i] = e.Put(e.ctx, name, keyf("k%d", i), bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))})
			})
		}
		for i := range delErrs {
			wg.Go(func() { delErrs[i] = e.DeleteBucket(e.ctx, name) })
		}
		wg.Wait()
		deleted, landed := 0, 0
		for _, err := range delErrs {
			switch {
			case err == nil:
				deleted++
			case !errors.Is(err, storage.ErrBucketNotEmpty) && !errors.Is(err, storage.ErrNoSuchBucket) && !errors.Is(err, storage.ErrConflict):
				t.Fatal(err)
			}
		}
		for i, err := range putErrs {
			if err == nil {
				landed++
				if _, err := e.Stat(e.ctx, name, keyf("k%d", i)); err != nil {
					t.Fatalf("a put that landed: %v", err)
				}
			} else if !errors.Is(err, storage.ErrNoSuchBucket) {
				t.Fatal(err)
			}
		}
		if deleted > 1 || deleted == 1 && landed > 0 || deleted == 0 && landed < len(putErrs) {
			t.Fatalf("%d deletions, %d puts landed", deleted, landed)
		}
		_, err := e.GetBucket(e.ctx, name)
		if deleted == 1 {
			wantErr(t, "GetBucket", err, storage.ErrNoSuchBucket)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
