package storagetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

const bs = storage.BlockSize

var sizes = []int{
	0, 1, 2, 511, storage.InlineLimit - 1, storage.InlineLimit, storage.InlineLimit + 1,
	2*storage.InlineLimit + 7, bs - 1, bs, bs + 1, 2*bs - 1, 2 * bs, 5*bs + 4097,
	1<<20 - 1, 1 << 20, 1<<20 + 1, 1<<20 + 3, 3<<20 + bs, 4<<20 + 12345,
}

func testSizes(t *testing.T, e *env) {
	for i, n := range sizes {
		want := Pattern(uint64(i), n)
		key := keyf("size/%d", n)
		info, err := e.Put(e.ctx, "b", key, &oddReader{p: want, withEOF: i%2 == 0}, storage.PutOptions{Size: int64(n)})
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if info.Size != int64(n) || info.ETag != md5Hex(want) || info.Key != key || info.Modified.IsZero() {
			t.Fatalf("%d bytes: %+v", n, info)
		}
		e.expect(t, key, want)
		// Overwritten by another of the same size, then by nothing.
		other := Pattern(uint64(i)+1000, n)
		e.put(t, key, other)
		e.expect(t, key, other)
	}
	for i, n := range sizes {
		e.expect(t, keyf("size/%d", n), Pattern(uint64(i)+1000, n))
	}
}

func testInfo(t *testing.T, e *env) {
	for _, n := range []int{10, 100_000} {
		o := storage.PutOptions{
			Size:     int64(n),
			Headers:  map[string]string{"Content-Type": "text/x", "Cache-Control": "no"},
			UserMeta: map[string]string{"a": "1", "ü": "\x01 é"},
			Chain:    storage.Chain{Parent: "some/key", Index: 7},
			Checksum: func() checksum.Sum {
				return checksum.Sum{Algorithm: checksum.CRC32C, Type: checksum.FullObject, Value: "AAAAAA=="}
			},
		}
		want, err := e.Put(e.ctx, "b", "k", bytes.NewReader(Pattern(1, n)), o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(want.Headers, o.Headers) || !reflect.DeepEqual(want.UserMeta, o.UserMeta) ||
			want.Chain != o.Chain || want.Checksum != o.Checksum() || want.Parts != 0 {
			t.Fatalf("Put returned %+v", want)
		}
		got, err := e.Stat(e.ctx, "b", "k")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("Stat: %+v, %v; want %+v", got, err, want)
		}
		obj := e.open(t, "k")
		got, err = obj.Info()
		obj.Close()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("Info: %+v, %v; want %+v", got, err, want)
		}
	}
	given := e.putOptions(t, "etag", 5000, storage.PutOptions{ETag: "given-3", Chain: storage.Chain{Index: -1}})
	got, err := e.Stat(e.ctx, "b", "etag")
	if err != nil || given.ETag != "given-3" || got.ETag != "given-3" || got.Chain.Index != -1 {
		t.Fatalf("given ETag: %+v, %v", got, err)
	}
}

func (e *env) putOptions(t *testing.T, key string, n int, o storage.PutOptions) storage.ObjectInfo {
	t.Helper()
	o.Size = int64(n)
	info, err := e.Put(e.ctx, "b", key, bytes.NewReader(Pattern(9, n)), o)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func testBody(t *testing.T, e *env) {
	bad := errors.New("the signature at the end is wrong")
	for _, n := range []int{0, 100, 4096, 5000, bs, 3<<20 + 5} {
		before := Pattern(77, 6000)
		e.put(t, "k", before)
		for _, c := range []struct {
			name string
			body *oddReader
			want error
		}{
			{"short", &oddReader{p: Pattern(1, max(n-1, 0))}, storage.ErrIncompleteBody},
			{"short, EOF along", &oddReader{p: Pattern(1, n/2), withEOF: true}, storage.ErrIncompleteBody},
			{"long", &oddReader{p: Pattern(1, n+1)}, storage.ErrIncompleteBody},
			{"error at the end", &oddReader{p: Pattern(1, n), end: bad}, bad},
			{"error along with the last bytes", &oddReader{p: Pattern(1, n), end: bad, withEOF: true}, bad},
			{"error half way", &oddReader{p: Pattern(1, n/2), end: bad}, bad},
		} {
			if n == 0 && strings.HasPrefix(c.name, "short") {
				continue
			}
			for _, key := range []string{"k", "new"} {
				body := *c.body
				_, err := e.Put(e.ctx, "b", key, &body, storage.PutOptions{Size: int64(n), Checksum: func() checksum.Sum {
					t.Errorf("%d bytes, %s: Checksum was called", n, c.name)
					return checksum.Sum{}
				}})
				wantErr(t, keyf("%d bytes, %s", n, c.name), err, c.want)
			}
			e.expect(t, "k", before)
			_, err := e.Stat(e.ctx, "b", "new")
			wantErr(t, "nothing may be left", err, storage.ErrNoSuchKey)
		}
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.Put(ctx, "b", "new", bytes.NewReader(Pattern(1, 3<<20)), storage.PutOptions{Size: 3 << 20})
	wantErr(t, "cancelled", err, context.Canceled)
	_, err = e.Stat(e.ctx, "b", "new")
	wantErr(t, "cancelled", err, storage.ErrNoSuchKey)
	_, err = e.Put(e.ctx, "b", "new", bytes.NewReader(nil), storage.PutOptions{Size: -1})
	wantErr(t, "negative size", err, storage.ErrInvalidRequest)
}

func testRanges(t *testing.T, e *env) {
	r := rand.New(rand.NewPCG(3, 4))
	for i, n := range sizes {
		want := Pattern(uint64(i), n)
		e.put(t, "k", want)
		o := e.open(t, "k")
		for _, class := range []storage.ReadClass{storage.ClassPlain, storage.ClassLayer, storage.ClassChunk, storage.ClassScrub} {
			p := make([]byte, n)
			if err := o.ReadAt(e.ctx, p, 0, storage.ReadHint{Class: class, Layer: 3}); err != nil || !bytes.Equal(p, want) {
				t.Fatalf("%d bytes, class %d: %v", n, class, err)
			}
		}
		tries := 40
		if n > 1<<20 {
			tries = 8
		}
		for range tries {
			off := r.IntN(n + 1)
			e.expectRange(t, o, want, off, r.IntN(n-off+1))
		}
		for off := 0; off < min(n, 6*bs); off += bs { // whole blocks, and one byte beside them
			m := min(bs, n-off)
			e.expectRange(t, o, want, off, m)
			e.expectRange(t, o, want, off, m-1)
			e.expectRange(t, o, want, off+1, m-1)
		}
		for _, bad := range [][2]int64{{-1, 1}, {int64(n), 1}, {int64(n) + 1, 0}, {0, int64(n) + 1}, {1<<63 - 1, 1}} {
			err := o.ReadAt(e.ctx, make([]byte, bad[1]), bad[0], storage.ReadHint{})
			wantErr(t, keyf("%d bytes at %d of %d", bad[1], bad[0], n), err, storage.ErrInvalidRange)
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				p := make([]byte, n)
				for j := range 2 {
					off := n * (g + j) / 8
					if err := o.ReadAt(e.ctx, p[off:], int64(off), storage.ReadHint{}); err != nil || !bytes.Equal(p[off:], want[off:]) {
						t.Errorf("concurrent read: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Fatal("second Close:", err)
		}
	}
}

func testKeys(t *testing.T, e *env) {
	keys := []string{
		"a", "a/", "/", "//", "/a", "a//b", "ü/日本語", "\x00", "a\x00b", "\xff\xfe", "a b+c%20",
		"..", "../x", ".", strings.Repeat("k", 1024), "a\n", "\U0001f600",
	}
	for i, k := range keys {
		e.put(t, k, Pattern(uint64(i), 5000))
	}
	for i, k := range keys {
		e.expect(t, k, Pattern(uint64(i), 5000))
	}
	for _, k := range keys {
		if err := e.Delete(e.ctx, "b", k, storage.Condition{}); err != nil {
			t.Fatalf("Delete %q: %v", k, err)
		}
		_, err := e.Open(e.ctx, "b", k)
		wantErr(t, "Open after Delete", err, storage.ErrNoSuchKey)
		wantErr(t, "second Delete", e.Delete(e.ctx, "b", k, storage.Condition{}), storage.ErrNoSuchKey)
	}
	for _, k := range []string{"", strings.Repeat("k", 1025)} {
		_, err := e.Put(e.ctx, "b", k, bytes.NewReader(nil), storage.PutOptions{})
		wantErr(t, "bad key", err, storage.ErrInvalidRequest)
		_, err = e.Stat(e.ctx, "b", k)
		wantErr(t, "bad key", err, storage.ErrNoSuchKey)
	}
}

// testPins fills the store over and over while deleted and overwritten
// objects are open.
func testPins(t *testing.T, e *env) {
	const n = 3<<20 + 5
	kept := make([]storage.Object, 4)
	for i := range kept {
		key := keyf("k%d", i)
		e.put(t, key, Pattern(uint64(i), n))
		kept[i] = e.open(t, key)
		if i%2 == 0 {
			e.put(t, key, Pattern(100, n))
		}
		if err := e.Delete(e.ctx, "b", key, storage.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 14 {
		e.put(t, keyf("churn%d", round%3), Pattern(uint64(round)+1000, 5<<20))
	}
	for i, o := range kept {
		e.expectObject(t, o, Pattern(uint64(i), n))
		if info, err := o.Info(); err != nil || info.ETag != md5Hex(Pattern(uint64(i), n)) {
			t.Fatalf("Info of a deleted object: %+v, %v", info, err)
		}
		o.Close()
	}
	for round := range 3 {
		e.expect(t, keyf("churn%d", (11+round)%3), Pattern(uint64(11+round)+1000, 5<<20))
	}
}

func testConditions(t *testing.T, e *env) {
	put := func(n int, c storage.Condition) error {
		_, err := e.Put(e.ctx, "b", "k", bytes.NewReader(Pattern(1, n)), storage.PutOptions{Size: int64(n), Cond: c})
		return err
	}
	etag := md5Hex(Pattern(1, 10))
	wantErr(t, "If-Match, no object", put(5, storage.Condition{IfMatch: etag}), storage.ErrNoSuchKey)
	wantErr(t, "If-Match *, no object", put(5, storage.Condition{IfMatch: "*"}), storage.ErrNoSuchKey)
	wantErr(t, "delete If-Match, no object", e.Delete(e.ctx, "b", "k", storage.Condition{IfMatch: "*"}), storage.ErrNoSuchKey)
	if err := put(10, storage.Condition{IfNoneMatch: "*"}); err != nil {
		t.Fatal(err)
	}
	// The body of a put that must fail is not read.
	_, err := e.Put(e.ctx, "b", "k", failReader{t}, storage.PutOptions{Size: 1 << 20, Cond: storage.Condition{IfNoneMatch: "*"}})
	wantErr(t, "If-None-Match *", err, storage.ErrPrecondition)
	wantErr(t, "If-Match, other", put(10, storage.Condition{IfMatch: "other"}), storage.ErrPrecondition)
	e.expect(t, "k", Pattern(1, 10))
	if err := put(5000, storage.Condition{IfMatch: etag}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "If-Match, old", put(10, storage.Condition{IfMatch: etag}), storage.ErrPrecondition)
	if err := put(70000, storage.Condition{IfMatch: "*"}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "delete If-Match, old", e.Delete(e.ctx, "b", "k", storage.Condition{IfMatch: etag}), storage.ErrPrecondition)
	e.expect(t, "k", Pattern(1, 70000))
	if err := e.Delete(e.ctx, "b", "k", storage.Condition{IfMatch: md5Hex(Pattern(1, 70000))}); err != nil {
		t.Fatal(err)
	}
}

type failReader struct{ t *testing.T }

func (r failReader) Read([]byte) (int, error) {
	r.t.Error("the body was read")
	return 0, errors.New("must not be read")
}

// testConcurrentWinners lets 64 calls race for each key: one wins.
func testConcurrentWinners(t *testing.T, e *env) {
	for _, n := range []int{100, 9000} {
		key := keyf("once%d", n)
		var won atomic.Int64
		winner := make(chan int, 64)
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				_, err := e.Put(e.ctx, "b", key, bytes.NewReader(Pattern(uint64(g), n)),
					storage.PutOptions{Size: int64(n), Cond: storage.Condition{IfNoneMatch: "*"}})
				switch {
				case err == nil:
					won.Add(1)
					winner <- g
				case !errors.Is(err, storage.ErrPrecondition) && !errors.Is(err, storage.ErrConflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d puts with If-None-Match won", won.Load())
		}
		e.expect(t, key, Pattern(uint64(<-winner), n))

		info, err := e.Stat(e.ctx, "b", key)
		if err != nil {
			t.Fatal(err)
		}
		won.Store(0)
		for range 64 {
			wg.Go(func() {
				err := e.Delete(e.ctx, "b", key, storage.Condition{IfMatch: info.ETag})
				if err == nil {
					won.Add(1)
				} else if !storage.IsNoSuchKey(err) && !errors.Is(err, storage.ErrConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d deletes with If-Match won", won.Load())
		}
	}
}

// testConcurrentOverwrites: all succeed, readers see whole objects only.
func testConcurrentOverwrites(t *testing.T, e *env) {
	const writers, rounds = 8, 12
	size := func(seed uint64) int { return int(seed%5) * 30_000 }
	e.put(t, "k", Pattern(5, size(5)))
	var writing, reading sync.WaitGroup
	stop := make(chan struct{})
	for g := range writers {
		writing.Go(func() {
			for i := range rounds {
				seed := uint64(g*1000 + i)
				_, err := e.Put(e.ctx, "b", "k", bytes.NewReader(Pattern(seed, size(seed))), storage.PutOptions{Size: int64(size(seed)),
					UserMeta: map[string]string{"seed": keyf("%d", seed)}})
				if err != nil {
					t.Errorf("overwrite: %v", err)
				}
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o, err := e.Open(e.ctx, "b", "k")
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				info, err := o.Info()
				p := make([]byte, o.Size())
				if rerr := o.ReadAt(e.ctx, p, 0, storage.ReadHint{}); rerr != nil || err != nil {
					t.Errorf("read: %v, %v", rerr, err)
				}
				if md5Hex(p) != info.ETag {
					t.Errorf("the bytes of %s are not its own", info.UserMeta["seed"])
				}
				o.Close()
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
}

func testOpenMany(t *testing.T, e *env) {
	var keys []string
	for i := range 600 {
		keys = append(keys, keyf("chunk%04d", i))
		e.put(t, keys[i], Pattern(uint64(i), 10+i*20)) // inline and not
	}
	check := func(objs []storage.Object, n int) {
		t.Helper()
		if len(objs) != n {
			t.Fatalf("%d objects, want %d", len(objs), n)
		}
		for i, o := range objs {
			e.expectObject(t, o, Pattern(uint64(i), 10+i*20))
		}
		storage.CloseAll(objs)
	}
	objs, err := storage.OpenMany(e.ctx, e.Store, "b", keys)
	if err != nil {
		t.Fatal(err)
	}
	check(objs, len(keys))
	for _, missing := range []int{0, 1, 63, 64, 255, 256, 300, 599} {
		if err := e.Delete(e.ctx, "b", keys[missing], storage.Condition{}); err != nil {
			t.Fatal(err)
		}
		objs, err := storage.OpenMany(e.ctx, e.Store, "b", keys)
		wantErr(t, "a key is missing", err, storage.ErrNoSuchKey)
		check(objs, missing)
		n, err := e.MatchPrefix(e.ctx, "b", keys)
		if err != nil || n != missing {
			t.Fatalf("MatchPrefix: %d, %v; want %d", n, err, missing)
		}
		e.put(t, keys[missing], Pattern(uint64(missing), 10+missing*20))
	}
	objs, err = storage.OpenMany(e.ctx, e.Store, "none", keys)
	wantErr(t, "no bucket", err, storage.ErrNoSuchBucket)
	check(objs, 0)
	objs, err = storage.OpenMany(e.ctx, e.Store, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	check(objs, 0)
}

func testMatchPrefix(t *testing.T, e *env) {
	e.put(t, "a", nil)
	e.put(t, "b", Pattern(1, 100_000))
	for _, c := range []struct {
		keys []string
		want int
	}{
		{nil, 0}, {[]string{"a"}, 1}, {[]string{"x"}, 0}, {[]string{"a", "b", "a"}, 3},
		{[]string{"a", "x", "b"}, 1}, {[]string{"b", strings.Repeat("k", 5000)}, 1}, {[]string{""}, 0},
	} {
		if n, err := e.MatchPrefix(e.ctx, "b", c.keys); err != nil || n != c.want {
			t.Errorf("%q: %d, %v; want %d", c.keys, n, err, c.want)
		}
	}
	_, err := e.MatchPrefix(e.ctx, "none", []string{"a"})
	wantErr(t, "no bucket", err, storage.ErrNoSuchBucket)
}

func testClose(t *testing.T, e *env) {
	e.put(t, "k", Pattern(1, 100_000))
	o := e.open(t, "k")
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	e.expectObject(t, o, Pattern(1, 100_000)) // while Close waits
	o.Close()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	_, err := e.Open(e.ctx, "b", "k")
	wantErr(t, "Open", err, storage.ErrClosed)
	_, err = e.Put(e.ctx, "b", "k", bytes.NewReader(nil), storage.PutOptions{})
	wantErr(t, "Put", err, storage.ErrClosed)
	_, err = e.ListBuckets(e.ctx, storage.ListBucketsOptions{Max: 1})
	wantErr(t, "ListBuckets", err, storage.ErrClosed)
	_, err = e.List(e.ctx, "b", storage.ListOptions{Max: 1})
	wantErr(t, "List", err, storage.ErrClosed)
}
