package volume

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/vfile"
)

func benchStore(b *testing.B, capacity int64) (*Store, string) {
	b.Helper()
	dir := b.TempDir()
	s, err := Open(Options{FS: vfile.OS(dir), Capacity: capacity})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := s.Restore(b.Context(), noneLive); err != nil {
		b.Fatal(err)
	}
	return s, dir
}

// BenchmarkReadAt reads 64 KiB pieces of 64 MiB in the page cache into one
// buffer. Pread, the bare system call on the same file, is its limit.
func BenchmarkReadAt(b *testing.B) {
	const total, piece = 64 << 20, 64 << 10
	s, dir := benchStore(b, total)
	ctx, cancel := context.WithCancel(context.Background()) // as a request has
	defer cancel()
	e, err := s.Reserve(ctx, total)
	if err != nil {
		b.Fatal(err)
	}
	for off := int64(0); off < total; off += 1 << 20 {
		if err := s.WriteAt(ctx, e[0], make([]byte, 1<<20), off); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Seal(ctx, e); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, fileName(0)))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())

	buf := make([]byte, piece)
	offset := func(i int) int64 { return int64(i) * 37 * piece % total }
	run := func(name string, read func(off int64) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(piece)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := read(offset(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("Pread", func(off int64) error {
		_, err := unix.Pread(fd, buf, off)
		return err
	})
	run("Volume", func(off int64) error { return s.ReadAt(ctx, e[0], buf, off, false) })
	run("VolumeCold", func(off int64) error { return s.ReadAt(ctx, e[0], buf, off, true) })
}

// BenchmarkPut is the life of a 64 KiB extent, reserved, written, sealed and
// freed, from many sides; flushes/op shows how well flushes are shared.
func BenchmarkPut(b *testing.B) {
	s, _ := benchStore(b, 256<<20)
	if e, err := s.Reserve(b.Context(), 4096); err != nil || s.Free(b.Context(), e) != nil {
		b.Fatal("no volume")
	}
	var flushes atomic.Int64
	v := s.list()[0]
	flush := v.sync.flush
	v.sync.flush = func() error { flushes.Add(1); return flush() }
	data := make([]byte, 64<<10)
	for _, sides := range []int{1, 16, 64} {
		b.Run(map[int]string{1: "1", 16: "16", 64: "64"}[sides], func(b *testing.B) {
			flushes.Store(0)
			b.SetBytes(int64(len(data)))
			b.SetParallelism(max(1, sides/2)) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := put(b.Context(), s, data); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(flushes.Load())/float64(b.N), "flushes/op")
		})
	}
}

func put(ctx context.Context, s *Store, data []byte) error {
	e, err := s.Reserve(ctx, int64(len(data)))
	if err != nil {
		return err
	}
	if err := s.WriteAt(ctx, e[0], data, 0); err != nil {
		return err
	}
	if err := s.Seal(ctx, e); err != nil {
		return err
	}
	return s.Free(ctx, []blob.Extent{e[0]})
}
