package local

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

func benchStore(b *testing.B) *Store {
	b.Helper()
	s, err := Open(b.Context(), Options{Dir: b.TempDir(), Capacity: 2 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if err := s.CreateBucket(b.Context(), storage.Bucket{Name: "b"}); err != nil {
		b.Fatal(err)
	}
	return s
}

// onlyReader hides what else a bytes.Reader can do.
type onlyReader struct{ io.Reader }

// BenchmarkPut overwrites a few objects on disk, flushes included.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1 << 10, 256 << 10, 2 << 20, 14 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := benchStore(b)
			p := storagetest.Pattern(1, size)
			b.SetBytes(int64(size))
			i := 0
			for b.Loop() {
				i++
				_, err := s.Put(b.Context(), "b", fmt.Sprint(i%8), onlyReader{bytes.NewReader(p)}, storage.PutOptions{Size: int64(size)})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPutParallel has 64 clients put small objects: flushes are shared.
func BenchmarkPutParallel(b *testing.B) {
	s := benchStore(b)
	p := storagetest.Pattern(1, 64<<10)
	b.SetBytes(int64(len(p)))
	b.SetParallelism(32)
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, err := s.Put(b.Context(), "b", fmt.Sprint(n.Add(1)%4096), bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkReadLayer reads one 64 KiB layer of 224 chunks from the page
// cache, verified; BenchmarkReadLimit does the same work bare, pread apart:
// it copies the same bytes in memory and sums them.
func BenchmarkReadLayer(b *testing.B) {
	const chunks, slice, layers = 224, 64 << 10, 4
	s := benchStore(b)
	keys := make([]string, chunks)
	p := storagetest.Pattern(1, layers*slice)
	for i := range keys {
		keys[i] = fmt.Sprintf("chunk/%06d", i)
		put(b, s, keys[i], p)
	}
	objs, err := s.OpenMany(b.Context(), "b", keys)
	if err != nil {
		b.Fatal(err)
	}
	defer storage.CloseAll(objs)
	buf := make([]byte, chunks*slice)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	l := 0
	for b.Loop() {
		for i, o := range objs {
			if err := o.ReadAt(b.Context(), buf[i*slice:(i+1)*slice], int64(l*slice), storage.ReadHint{Class: storage.ClassLayer, Layer: l}); err != nil {
				b.Fatal(err)
			}
		}
		l = (l + 1) % layers
	}
}

func BenchmarkReadLimit(b *testing.B) {
	const chunks, slice = 224, 64 << 10
	src := storagetest.Pattern(1, chunks*slice)
	buf := make([]byte, chunks*slice)
	b.SetBytes(int64(len(buf)))
	sum := uint32(0)
	for b.Loop() {
		for i := 0; i < len(buf); i += slice {
			copy(buf[i:i+slice], src[i:])
			sum += checksum.Block(buf[i : i+slice])
		}
	}
	if sum == 1 {
		b.Log("unlikely")
	}
}

func BenchmarkOpenMany(b *testing.B) {
	const chunks = 3584
	s := benchStore(b)
	keys := make([]string, chunks)
	p := storagetest.Pattern(1, 8<<10)
	for i := range keys {
		keys[i] = fmt.Sprintf("chunk/%06d", i)
	}
	var next atomic.Int64
	done := make(chan error, 64)
	for range cap(done) {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= chunks {
					done <- nil
					return
				}
				if _, err := s.Put(b.Context(), "b", keys[i], bytes.NewReader(p), storage.PutOptions{Size: int64(len(p))}); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		objs, err := s.OpenMany(b.Context(), "b", keys)
		if err != nil {
			b.Fatal(err)
		}
		storage.CloseAll(objs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunks), "ns/chunk")
}
