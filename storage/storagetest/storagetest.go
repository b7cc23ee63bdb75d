// Package storagetest is the contract of storage.Store as tests. A backend
// and every wrapper of one runs it:
//
//	func TestContract(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) storage.Store { … })
//	}
package storagetest

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/objcached/objcached/storage"
)

// Factory makes an empty store with room for 256 MiB or more. The suite
// closes it.
type Factory func(t *testing.T) storage.Store

// Run checks every promise of package storage against the stores that f makes.
func Run(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"Buckets", testBuckets},
		{"ListBuckets", testListBuckets},
		{"DeleteBucketRaces", testDeleteBucketRaces},
		{"Sizes", testSizes},
		{"Info", testInfo},
		{"Body", testBody},
		{"Ranges", testRanges},
		{"Keys", testKeys},
		{"Tags", testTags},
		{"BucketConfig", testBucketConfig},
		{"Pins", testPins},
		{"Conditions", testConditions},
		{"ConcurrentWinners", testConcurrentWinners},
		{"ConcurrentOverwrites", testConcurrentOverwrites},
		{"OpenMany", testOpenMany},
		{"MatchPrefix", testMatchPrefix},
		{"ListModel", testListModel},
		{"ListDeep", testListDeep},
		{"Multipart", testMultipart},
		{"MultipartErrors", testMultipartErrors},
		{"MultipartChecksums", testMultipartChecksums},
		{"MultipartRaces", testMultipartRaces},
		{"ListParts", testListParts},
		{"ListUploads", testListUploads},
		{"Close", testClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := f(t)
			e := &env{Store: s, ctx: t.Context()}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			if err := s.CreateBucket(e.ctx, storage.Bucket{Name: "b", Owner: "o"}); err != nil {
				t.Fatal(err)
			}
			c.test(t, e)
		})
	}
}

// env is a store with an empty bucket "b".
type env struct {
	storage.Store
	ctx context.Context
}

// Pattern returns n bytes that depend on seed and place only.
//
//go:norace
func Pattern(seed uint64, n int) []byte {
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		// splitmix64 of the place
		z := seed*0x9e3779b97f4a7c15 + uint64(i) + 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(p[i:], z^z>>31)
	}
	return p[:n]
}

func md5Hex(p []byte) string {
	sum := md5.Sum(p)
	return hex.EncodeToString(sum[:])
}

func (e *env) put(t *testing.T, key string, p []byte) storage.ObjectInfo {
	t.Helper()
	info, err := e.Put(e.ctx, "b", key, bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))})
	if err != nil {
		t.Fatalf("Put %q: %v", key, err)
	}
	return info
}

func (e *env) open(t *testing.T, key string) storage.Object {
	t.Helper()
	o, err := e.Open(e.ctx, "b", key)
	if err != nil {
		t.Fatalf("Open %q: %v", key, err)
	}
	return o
}

// expect reads the object whole.
func (e *env) expect(t *testing.T, key string, want []byte) {
	t.Helper()
	o := e.open(t, key)
	defer o.Close()
	e.expectObject(t, o, want)
}

func (e *env) expectObject(t *testing.T, o storage.Object, want []byte) {
	t.Helper()
	if o.Size() != int64(len(want)) {
		t.Fatalf("size %d, want %d", o.Size(), len(want))
	}
	e.expectRange(t, o, want, 0, len(want))
}

func (e *env) expectRange(t *testing.T, o storage.Object, want []byte, off, n int) {
	t.Helper()
	got := bytes.Repeat([]byte{0xa5}, n)
	if err := o.ReadAt(e.ctx, got, int64(off), storage.ReadHint{}); err != nil {
		t.Fatalf("ReadAt [%d,%d): %v", off, off+n, err)
	}
	if i := differ(got, want[off:off+n]); i >= 0 {
		t.Fatalf("ReadAt [%d,%d): byte %d is wrong", off, off+n, off+i)
	}
}

// differ returns the first index at which a and b differ, -1 if none.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// oddReader gives a body in pieces of odd sizes, its EOF along with the last
// bytes or after them, and sometimes nothing at all.
type oddReader struct {
	p       []byte
	n       int
	withEOF bool
	end     error // in place of io.EOF
}

func (r *oddReader) Read(p []byte) (int, error) {
	end := r.end
	if end == nil {
		end = io.EOF
	}
	if len(r.p) == 0 {
		return 0, end
	}
	r.n++
	if r.n%5 == 0 {
		return 0, nil
	}
	n := copy(p, r.p[:min(len(r.p), 1+r.n*7919%100_000)])
	r.p = r.p[n:]
	if r.withEOF && len(r.p) == 0 {
		return n, end
	}
	return n, nil
}

func keyf(format string, args ...any) string { return fmt.Sprintf(format, args...) }
