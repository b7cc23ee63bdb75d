package storagetest

import (
	"bytes"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

func testTags(t *testing.T, e *env) {
	tags := func(kv ...string) (out []storage.Tag) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, storage.Tag{Key: kv[i], Value: kv[i+1]})
		}
		return out
	}
	stat := func(key string) storage.ObjectInfo {
		t.Helper()
		info, err := e.Stat(e.ctx, "b", key)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, n := range []int{0, 10, 70_000} {
		key := keyf("k%d", n)
		p := Pattern(uint64(n), n)
		put, err := e.Put(e.ctx, "b", key, bytes.NewReader(p), storage.PutOptions{
			Size: int64(n), Tags: tags("z", "1", "a", ""), UserMeta: map[string]string{"k": "v"}, Chain: storage.Chain{Parent: "p", Index: 3},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := stat(key); !reflect.DeepEqual(got, put) || !reflect.DeepEqual(got.Tags, tags("z", "1", "a", "")) {
			t.Fatalf("%+v, want %+v", got, put)
		}
		open := e.open(t, key)
		for _, want := range [][]storage.Tag{tags("ü", strings.Repeat("v", 256)), nil, tags("a", "b", "c", "d", "e", "f")} {
			if err := e.SetTags(e.ctx, "b", key, want); err != nil {
				t.Fatal(err)
			}
			put.Tags = want
			if got := stat(key); !reflect.DeepEqual(got, put) {
				t.Fatalf("%+v, want %+v", got, put)
			}
		}
		// Whoever has the object open is not disturbed, also when it goes.
		e.expectObject(t, open, p)
		if err := e.Delete(e.ctx, "b", key, storage.Condition{}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			e.put(t, keyf("churn%d", i%2), Pattern(uint64(i), 70_000))
		}
		e.expectObject(t, open, p)
		open.Close()
		wantErr(t, "tags of nothing", e.SetTags(e.ctx, "b", key, nil), storage.ErrNoSuchKey)
	}
	wantErr(t, "tags in no bucket", e.SetTags(e.ctx, "none", "k", nil), storage.ErrNoSuchBucket)
	wantErr(t, "tags of no key", e.SetTags(e.ctx, "b", "", nil), storage.ErrNoSuchKey)

	// An upload's tags are the object's; parts and repetition survive new ones.
	u, err := e.CreateUpload(e.ctx, "b", "mp", storage.PutOptions{Tags: tags("a", "b")}, checksum.None, "")
	if err != nil {
		t.Fatal(err)
	}
	p := Pattern(1, 70_000)
	parts := []storage.CompletedPart{e.part(t, u, 7, p)}
	info, err := e.CompleteUpload(e.ctx, "b", "mp", u.ID, parts, storage.CompleteOptions{})
	if err != nil || !reflect.DeepEqual(info.Tags, tags("a", "b")) {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := e.SetTags(e.ctx, "b", "mp", tags("c", "d")); err != nil {
		t.Fatal(err)
	}
	info.Tags = tags("c", "d")
	again, err := e.CompleteUpload(e.ctx, "b", "mp", u.ID, parts, storage.CompleteOptions{})
	if err != nil || !reflect.DeepEqual(again, info) {
		t.Fatalf("%+v, %v; want %+v", again, err, info)
	}
	e.expect(t, "mp", p)

	// Tags and overwrites: whichever is last, the object is whole.
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10 {
				var err error
				if g%2 == 0 {
					err = e.SetTags(e.ctx, "b", "mp", tags("g", keyf("%d-%d", g, i)))
				} else {
					_, err = e.Put(e.ctx, "b", "mp", bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	e.expect(t, "mp", p)
}

func testBucketConfig(t *testing.T, e *env) {
	get := func(bucket, name string) ([]byte, error) { return e.BucketConfig(e.ctx, bucket, name) }
	_, err := get("b", "tagging")
	wantErr(t, "nothing set", err, storage.ErrNoSuchConfig)
	for name, v := range map[string][]byte{"tagging": []byte("x"), "tag": {}, "cors": bytes.Repeat([]byte{7}, storage.MaxBucketConfig)} {
		if err := e.SetBucketConfig(e.ctx, "b", name, v); err != nil {
			t.Fatal(err)
		}
		if got, err := get("b", name); err != nil || !bytes.Equal(got, v) {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := e.SetBucketConfig(e.ctx, "b", "tag", nil); err != nil {
		t.Fatal(err)
	}
	if err := e.SetBucketConfig(e.ctx, "b", "tag", nil); err != nil {
		t.Fatal(err)
	}
	_, err = get("b", "tag")
	wantErr(t, "removed", err, storage.ErrNoSuchConfig)
	if got, err := get("b", "tagging"); err != nil || string(got) != "x" {
		t.Fatalf("%q, %v", got, err)
	}
	wantErr(t, "too large", e.SetBucketConfig(e.ctx, "b", "x", make([]byte, storage.MaxBucketConfig+1)), storage.ErrInvalidRequest)
	wantErr(t, "no name", e.SetBucketConfig(e.ctx, "b", "", []byte("x")), storage.ErrInvalidRequest)
	_, err = get("none", "tagging")
	wantErr(t, "no bucket", err, storage.ErrNoSuchBucket)
	wantErr(t, "no bucket", e.SetBucketConfig(e.ctx, "none", "tagging", []byte("x")), storage.ErrNoSuchBucket)
	// Settings do not keep a bucket, and a new one of the name has none.
	if err := e.DeleteBucket(e.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	_, err = get("b", "tagging")
	wantErr(t, "bucket deleted", err, storage.ErrNoSuchBucket)
	if err := e.CreateBucket(e.ctx, storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	_, err = get("b", "tagging")
	wantErr(t, "bucket made anew", err, storage.ErrNoSuchConfig)
}
