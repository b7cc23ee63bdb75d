package object

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

// chunkStore holds n chunks of 2 MiB/16 in memory.
func chunkStore(t testing.TB, n int, o Options) (*testStore, []string) {
	t.Helper()
	const size = 128 << 10
	s := withBucket(t, int64(n+8)*size, o)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("model/0123456789abcdef0123456789abcdef/%06d", i)
		_, err := s.Put(bg, "b", keys[i], bytes.NewReader(storagetest.Pattern(uint64(i), size)), storage.PutOptions{
			Size: size, Headers: map[string]string{"Content-Type": "application/octet-stream"},
			Chain: storage.Chain{Parent: keys[max(0, i-1)], Index: int64(i)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s, keys
}

// TestOpenAllocs: a chunk that is opened costs one piece of memory, one look-up
// and one pin; of many that are opened together, hundreds share one piece.
func TestOpenAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("counts allocations")
	}
	s, keys := chunkStore(t, 512, Options{})
	defer s.mustClose(t)
	open := func() {
		o, err := s.Open(bg, "b", keys[7])
		if err != nil {
			t.Fatal(err)
		}
		o.Close()
	}
	open()
	s.w.arm(0, false, false)
	open()
	if s.w.ops != 1 {
		t.Errorf("opening a chunk takes %d operations below", s.w.ops)
	}
	if n := testing.AllocsPerRun(200, open); n > 1 {
		t.Errorf("Open allocates %v times", n)
	}
	many := func() {
		objs, err := s.OpenMany(bg, "b", keys)
		if err != nil {
			t.Fatal(err)
		}
		storage.CloseAll(objs)
	}
	s.w.arm(0, false, false)
	many()
	if s.w.ops != len(keys) {
		t.Errorf("opening %d chunks takes %d operations below", len(keys), s.w.ops)
	}
	// The result, a piece for each batch of objects, and what growing maps of
	// pins and goroutines need.
	if n := testing.AllocsPerRun(50, many); n > 32 {
		t.Errorf("OpenMany of %d allocates %v times", len(keys), n)
	}
}

// TestReadAllocs: reading allocates nothing, whole blocks or parts of them.
func TestReadAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("counts allocations")
	}
	for _, mode := range []storage.VerifyMode{storage.VerifyAlways, storage.VerifyFirstRead, storage.VerifyOff} {
		s, keys := chunkStore(t, 1, Options{Verify: mode})
		o, err := s.Open(bg, "b", keys[0])
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 128<<10)
		for _, r := range [][2]int{{0, 128 << 10}, {64 << 10, 64 << 10}, {100, 70_000}, {5, 10}} {
			n := testing.AllocsPerRun(100, func() {
				if err := o.ReadAt(bg, p[:r[1]], int64(r[0]), storage.ReadHint{Class: storage.ClassLayer}); err != nil {
					t.Fatal(err)
				}
			})
			// A pool may be emptied by a collection in between; whole blocks use none.
			if n > 0 && (r[0]%storage.BlockSize == 0 || n >= 1) {
				t.Errorf("mode %d: ReadAt %v allocates %v times", mode, r, n)
			}
			dst := [][]byte{p[:r[1]/2], p[r[1]/2 : r[1]]}
			if n := testing.AllocsPerRun(100, func() {
				if err := storage.ReadInto(bg, o, dst, int64(r[0]), storage.ReadHint{Class: storage.ClassLayer}); err != nil {
					t.Fatal(err)
				}
			}); n >= 1 {
				t.Errorf("mode %d: ReadInto %v allocates %v times", mode, r, n)
			}
		}
		o.Close()
		s.mustClose(t)
	}
}

func BenchmarkOpenMany(b *testing.B) {
	s, keys := chunkStore(b, 224, Options{})
	defer s.mustClose(b)
	b.ReportAllocs()
	for b.Loop() {
		objs, err := s.OpenMany(bg, "b", keys)
		if err != nil {
			b.Fatal(err)
		}
		storage.CloseAll(objs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/chunk")
}

// BenchmarkReadAt reads a slice of 64 KiB, from memory, verified.
func BenchmarkReadAt(b *testing.B) {
	s, keys := chunkStore(b, 1, Options{})
	defer s.mustClose(b)
	o, err := s.Open(bg, "b", keys[0])
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	p := make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if err := o.ReadAt(bg, p, 64<<10, storage.ReadHint{Class: storage.ClassLayer}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIngest is the CPU's share of a put, with the MD5 in turn and beside
// the rest; the byte store is memory.
func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{256 << 10, 1 << 20, 2 << 20, 14 << 20} {
		for _, beside := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dKiB/beside=%v", size>>10, beside), func(b *testing.B) {
				s := withBucket(b, 32<<20, Options{})
				defer s.mustClose(b)
				p := storagetest.Pattern(1, size)
				b.SetBytes(int64(size))
				rec := record{size: int64(size), kind: kindExtents}
				var err error
				if rec.exts, err = s.reserve(bg, rec.size); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					rec.crcs = rec.crcs[:0]
					body := io.Reader(bytes.NewReader(p))
					if beside {
						_, err = s.writeBeside(bg, body, &rec)
					} else {
						_, err = s.writeThrough(bg, body, true, &rec)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
