package object

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/meta"
	"github.com/objcached/objcached/storage/storagetest"
)

var bg = context.Background()

func (s *testStore) mustPut(t testing.TB, key string, p []byte) {
	t.Helper()
	if _, err := s.Put(bg, "b", key, bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))}); err != nil {
		t.Fatalf("Put %q: %v", key, err)
	}
}

func (s *testStore) mustClose(t testing.TB) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func withBucket(t testing.TB, size int64, o Options) *testStore {
	t.Helper()
	s := newMem(t, size, o)
	if err := s.CreateBucket(bg, storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// mustBeClean scrubs, and checks that the space taken is exactly what live
// extents need.
func (s *testStore) mustBeClean(t testing.TB) ScrubReport {
	t.Helper()
	if err := s.WaitRestored(bg); err != nil {
		t.Fatal(err)
	}
	for s.reap.flush(bg) {
	}
	r, err := s.Scrub(bg, ScrubOptions{})
	if err != nil {
		t.Fatal("scrub:", err)
	}
	if !r.Clean() {
		t.Fatalf("scrub: %d bad blocks %+v, %d problems %q", r.BadBlocks, r.Bad, r.ProblemCount, r.Problems)
	}
	if live, taken := s.liveBytes(t), s.blob.Stats().Reserved; live != taken {
		t.Fatalf("%d bytes are reserved, live extents need %d", taken, live)
	}
	return r
}

func (s *testStore) liveBytes(t testing.TB) (n int64) {
	t.Helper()
	s.meta.mu.RLock()
	defer s.meta.mu.RUnlock()
	for _, p := range s.meta.parts {
		for k, v := range p.m {
			if e, _, ok := parseExtent([]byte(k), v); ok {
				n += blob.Roundup(e.Len)
			}
		}
	}
	return n
}

func (s *testStore) partition(t testing.TB) string {
	t.Helper()
	b, err := s.bucket(bg, "b")
	if err != nil {
		t.Fatal(err)
	}
	return b.part
}

// first returns the first pair of a kind in bucket b's partition.
func (s *testStore) first(t testing.TB, kind byte) (k, v []byte) {
	t.Helper()
	err := s.meta.Scan(bg, s.partition(t), []byte{kind}, []byte{kind + 1}, func(key, value []byte) (bool, error) {
		k, v = bytes.Clone(key), bytes.Clone(value)
		return false, nil
	})
	if err != nil || k == nil {
		t.Fatalf("no entry of kind %c: %v", kind, err)
	}
	return k, v
}

func (s *testStore) edit(t testing.TB, b *meta.Batch) {
	t.Helper()
	if err := s.meta.Apply(bg, s.partition(t), b); err != nil {
		t.Fatal(err)
	}
}

func TestCorruptBlock(t *testing.T) {
	var seen []*storage.CorruptError
	s := withBucket(t, 16<<20, Options{OnCorrupt: func(e *storage.CorruptError) { seen = append(seen, e) }})
	defer s.mustClose(t)
	s.blob.longest = 40 << 10
	want := storagetest.Pattern(1, 5*storage.BlockSize+100)
	s.mustPut(t, "k", want)
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	at := int64(3*storage.BlockSize + 77)
	for _, e := range o.(*object).rec.exts { // flip one bit of block 3
		if at < e.Len {
			s.blob.data[e.Offset+at] ^= 4
			break
		}
		at -= e.Len
	}
	read := func(off, n int) error {
		p := make([]byte, n)
		err := o.ReadAt(bg, p, int64(off), storage.ReadHint{})
		if err == nil && !bytes.Equal(p, want[off:off+n]) {
			t.Fatalf("[%d,%d): wrong bytes and no error", off, off+n)
		}
		return err
	}
	const bs = storage.BlockSize
	for _, r := range [][2]int{{0, 3 * bs}, {4 * bs, bs + 100}, {3*bs - 1, 1}, {4*bs + 1, 5}} {
		if err := read(r[0], r[1]); err != nil {
			t.Errorf("%v, beside the bad block: %v", r, err)
		}
	}
	bad := [][2]int{{0, len(want)}, {3 * bs, 1}, {4*bs - 1, 1}, {3 * bs, bs}, {2 * bs, 2 * bs}, {1, 4 * bs}, {4*bs - 1, 2}}
	for _, r := range bad {
		var c *storage.CorruptError
		if err := read(r[0], r[1]); !errors.As(err, &c) || *c != (storage.CorruptError{Bucket: "b", Key: "k", Block: 3}) {
			t.Errorf("%v: %v", r, err)
		}
	}
	if n := s.Stats().CorruptBlocks; n != int64(len(bad)) || len(seen) != len(bad) {
		t.Errorf("%d corrupt blocks counted, %d reported, want %d", n, len(seen), len(bad))
	}
	r, err := s.Scrub(bg, ScrubOptions{})
	if err != nil || r.BadBlocks != 1 || r.Bad[0].Block != 3 || r.Bad[0].Key != "k" || r.Bad[0].Bucket != "b" || r.ProblemCount != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestCorruptSegment has the bad block in the second part, whose blocks do
// not start on block boundaries of the object.
func TestCorruptSegment(t *testing.T) {
	s := withBucket(t, 32<<20, Options{Verify: storage.VerifyFirstRead})
	defer s.mustClose(t)
	p := [][]byte{storagetest.Pattern(1, minPartSize+1000), storagetest.Pattern(2, 200_000)}
	s.complete(t, "k", p...)
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	buf := make([]byte, o.Size())
	if err := o.ReadAt(bg, buf, 0, storage.ReadHint{}); err != nil || !bytes.Equal(buf, bytes.Join(p, nil)) {
		t.Fatal(err)
	}
	g, err := o.(*object).segment(bg, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.blob.data[g.rec.exts[0].Offset+storage.BlockSize] ^= 1
	// What was verified once is trusted in this mode, by reads.
	if err := o.ReadAt(bg, buf, 0, storage.ReadHint{}); err != nil {
		t.Fatal(err)
	}
	want := int64((minPartSize + 1000 + storage.BlockSize) / storage.BlockSize)
	var c *storage.CorruptError
	if err := o.ReadAt(bg, buf, 0, storage.ReadHint{Class: storage.ClassScrub}); !errors.As(err, &c) || c.Block != want {
		t.Fatalf("%v, want block %d", err, want)
	}
	r, err := s.Scrub(bg, ScrubOptions{})
	if err != nil || r.BadBlocks != 1 || r.Bad[0].Block != want {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestVerifyOff reads exactly what is asked for, whatever it is.
func TestVerifyOff(t *testing.T) {
	s := withBucket(t, 16<<20, Options{Verify: storage.VerifyOff})
	defer s.mustClose(t)
	s.blob.longest = 20 << 10
	want := storagetest.Pattern(1, 300_001)
	s.mustPut(t, "k", want)
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	e := o.(*object).rec.exts[1]
	s.blob.data[e.Offset+3] ^= 0xff
	want[20<<10+3] ^= 0xff
	for _, r := range [][2]int{{0, len(want)}, {20<<10 + 3, 1}, {1, 100_000}, {65535, 2}, {300_000, 1}} {
		p := make([]byte, r[1])
		if err := o.ReadAt(bg, p, int64(r[0]), storage.ReadHint{}); err != nil || !bytes.Equal(p, want[r[0]:r[0]+r[1]]) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// complete makes a multipart object.
func (s *testStore) complete(t testing.TB, key string, parts ...[]byte) {
	t.Helper()
	u, err := s.CreateUpload(bg, "b", key, storage.PutOptions{}, checksum.None, "")
	if err != nil {
		t.Fatal(err)
	}
	var list []storage.CompletedPart
	for i, p := range parts {
		got, err := s.PutPart(bg, "b", key, u.ID, i+1, bytes.NewReader(p), storage.PartOptions{Size: int64(len(p))})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, storage.CompletedPart{Number: i + 1, ETag: got.ETag})
	}
	if _, err := s.CompleteUpload(bg, "b", key, u.ID, list, storage.CompleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestReadError(t *testing.T) {
	s := withBucket(t, 16<<20, Options{})
	defer s.mustClose(t)
	s.mustPut(t, "k", storagetest.Pattern(1, 300_000))
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	bad := errors.New("device gone")
	s.blob.onRead = func() error { return bad }
	if err := o.ReadAt(bg, make([]byte, 10), 5, storage.ReadHint{}); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	r, err := s.Scrub(bg, ScrubOptions{})
	if err != nil || r.BadBlocks != 5 || !errors.Is(r.Bad[4].Err, bad) || r.Bad[4].Block != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	if s.Stats().CorruptBlocks != 0 {
		t.Error("a read error was counted as corruption")
	}
	s.blob.onRead = nil
}

// TestScrubFindings damages the metadata in every way that scrub looks for.
func TestScrubFindings(t *testing.T) {
	other := ID{7, 7, 7}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, s *testStore, b *meta.Batch)
		want   string
	}{
		{"extent of nobody", func(t *testing.T, s *testStore, b *meta.Batch) {
			e := blob.Extent{Offset: 15 << 20, Len: 4096}
			b.Set(extentKey(e), extentValue(e, other))
		}, "belongs to nobody"},
		{"extent not listed", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, _ := s.first(t, keyExtent)
			b.Delete(k)
		}, "claimed"},
		{"extent of another", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, v := s.first(t, keyExtent)
			e, _, _ := parseExtent(k, v)
			b.Set(k, extentValue(e, other))
		}, "belongs to nobody"},
		{"extent of another length", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, v := s.first(t, keyExtent)
			e, owner, _ := parseExtent(k, v)
			e.Len--
			b.Set(k, extentValue(e, owner))
		}, "belongs to nobody"},
		{"overlap", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, v := s.first(t, keyExtent)
			e, _, _ := parseExtent(k, v)
			e.Offset += 4096
			b.Set(extentKey(e), extentValue(e, other))
		}, "overlap"},
		{"segment of nobody", func(t *testing.T, s *testStore, b *meta.Batch) {
			b.Set(idKey(keySegment, other), appendRecord(nil, &record{kind: kindInline, id: other}, nil))
		}, "belongs to nobody"},
		{"segment lost", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, _ := s.first(t, keySegment)
			b.Delete(k)
		}, "there is none"},
		{"segment under another id", func(t *testing.T, s *testStore, b *meta.Batch) {
			_, v := s.first(t, keySegment)
			b.Set(idKey(keySegment, other), v)
		}, "another id"},
		{"damaged object", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, v := s.first(t, keyObject)
			v[len(v)-1] ^= 1
			b.Set(k, v)
		}, "damaged record"},
		{"part without upload", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, _ := s.first(t, keyUpload)
			b.Delete(k)
		}, "which is unknown"},
		{"damaged part", func(t *testing.T, s *testStore, b *meta.Batch) {
			k, v := s.first(t, keyPart)
			v[7] ^= 1
			b.Set(k, v)
		}, "damaged record"},
		{"unknown entry", func(t *testing.T, s *testStore, b *meta.Batch) { b.Set([]byte("z"), nil) }, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := withBucket(t, 16<<20, Options{})
			defer s.mustClose(t)
			s.mustPut(t, "a", storagetest.Pattern(1, 70_000))
			s.mustPut(t, "inline", storagetest.Pattern(1, 70))
			s.complete(t, "multi", storagetest.Pattern(2, 90_000))
			u, err := s.CreateUpload(bg, "b", "unfinished", storage.PutOptions{}, checksum.None, "")
			if err != nil {
				t.Fatal(err)
			}
			p := storagetest.Pattern(3, 6000)
			if _, err := s.PutPart(bg, "b", "unfinished", u.ID, 3, bytes.NewReader(p), storage.PartOptions{Size: 6000}); err != nil {
				t.Fatal(err)
			}
			r := s.mustBeClean(t)
			if r.Objects != 3 || r.Parts != 1 || r.Bytes != 70_000+70+90_000+6000 {
				t.Fatalf("%+v", r)
			}
			var b meta.Batch
			c.damage(t, s, &b)
			s.edit(t, &b)
			r, err = s.Scrub(bg, ScrubOptions{})
			if err != nil || r.Clean() || int64(len(r.Problems)) != r.ProblemCount {
				t.Fatalf("%+v, %v", r, err)
			}
			if !strings.Contains(strings.Join(r.Problems, "\n"), c.want) {
				t.Fatalf("%q, want %q", r.Problems, c.want)
			}
		})
	}
}

// TestScrubWhileServing: whatever goes on, a scrub finds nothing wrong.
func TestScrubWhileServing(t *testing.T) {
	s := withBucket(t, 16<<20, Options{})
	defer s.mustClose(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := string(rune('a' + (g+i)%4))
				n := (i*7919 + g) % 200_000
				_, err := s.Put(bg, "b", key, bytes.NewReader(storagetest.Pattern(uint64(i), n)), storage.PutOptions{Size: int64(n)})
				if err == nil && i%3 == 0 {
					err = s.Delete(bg, "b", key, storage.Condition{})
				}
				if err == nil && i%4 == g {
					s.churnUpload(t, key, i)
				}
				if err != nil && !storage.IsNoSuchKey(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 40 {
		r, err := s.Scrub(bg, ScrubOptions{})
		if err != nil || !r.Clean() {
			t.Errorf("%+v, %v", r, err)
		}
	}
	close(stop)
	wg.Wait()
	s.mustBeClean(t)
	s.checkMisuse(t)
}

func (s *testStore) churnUpload(t *testing.T, key string, i int) {
	u, err := s.CreateUpload(bg, "b", key, storage.PutOptions{}, checksum.None, "")
	if err != nil {
		t.Error(err)
		return
	}
	var list []storage.CompletedPart
	for _, number := range []int{1, 2, 1} {
		p := storagetest.Pattern(uint64(i), 5000+number)
		got, err := s.PutPart(bg, "b", key, u.ID, number, bytes.NewReader(p), storage.PartOptions{Size: int64(len(p))})
		if err != nil {
			t.Error(err)
			return
		}
		list = append(list[:0], storage.CompletedPart{Number: number, ETag: got.ETag})
	}
	if i%2 == 0 {
		err = s.AbortUpload(bg, "b", key, u.ID)
	} else {
		_, err = s.CompleteUpload(bg, "b", key, u.ID, list, storage.CompleteOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// fakeClock moves only when somebody waits, and then by as much.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
	sum time.Duration
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.sum += d
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}

func TestScrubRate(t *testing.T) {
	clock := &fakeClock{now: time.Unix(1e9, 0)}
	s := withBucket(t, 16<<20, Options{Now: clock.Now, After: clock.After})
	defer s.mustClose(t)
	for _, k := range []string{"a", "b", "c"} {
		s.mustPut(t, k, storagetest.Pattern(1, 3<<20))
	}
	calls := 0
	r, err := s.Scrub(bg, ScrubOptions{Rate: 1 << 20, Progress: func(r *ScrubReport) {
		if calls++; r.Objects != int64(calls) {
			t.Errorf("progress %d: %+v", calls, r)
		}
	}})
	if err != nil || r.Bytes != 9<<20 || calls != 3 {
		t.Fatalf("%+v, %v, %d calls", r, err, calls)
	}
	// 9 MiB at 1 MiB/s: the last MiB is read when the eighth second ends.
	if clock.sum != 8*time.Second {
		t.Fatalf("waited %v", clock.sum)
	}
}

func TestScrubLoop(t *testing.T) {
	tick := make(chan time.Time)
	found := make(chan *storage.CorruptError, 10)
	s := withBucket(t, 16<<20, Options{ScrubInterval: time.Hour,
		After: func(d time.Duration) <-chan time.Time {
			if d != time.Hour {
				t.Errorf("waited %v", d)
			}
			return tick
		},
		OnCorrupt: func(e *storage.CorruptError) { found <- e }})
	defer s.mustClose(t)
	s.mustPut(t, "k", storagetest.Pattern(1, 70_000))
	_, v := s.first(t, keyObject)
	var r record
	if err := r.decode(v); err != nil {
		t.Fatal(err)
	}
	s.blob.data[r.exts[0].Offset+65536] ^= 1
	for range 2 {
		tick <- time.Time{}
		if e := <-found; e.Block != 1 {
			t.Fatal(e)
		}
	}
}
