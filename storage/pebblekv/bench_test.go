package pebblekv

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/storage/meta"
)

// BenchmarkGet looks up 300-byte records, as of chunks, that a flush has moved
// to a table in the block cache; Missing looks up keys that are not there.
func BenchmarkGet(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const n = 20000
	keys := make([][]byte, n)
	var batch meta.Batch
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "ochunk/%032x", i*7919)
		batch.Set(keys[i], make([]byte, 300))
	}
	if err := s.Apply(b.Context(), "b1", &batch); err != nil {
		b.Fatal(err)
	}
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 512)
	b.Run("Present", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := s.Get(b.Context(), "b1", keys[i%n], dst); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Missing", func(b *testing.B) {
		b.ReportAllocs()
		k := []byte("ochunk/................................x")
		for i := 0; b.Loop(); i++ {
			copy(k[7:], keys[i%n][7:])
			if _, err := s.Get(b.Context(), "b1", k, dst); err != meta.ErrNotFound {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkApply is the batch of a put: conditional on one bucket's marker and
// on the key's absence, it writes a record and an extent.
func BenchmarkApply(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var batch meta.Batch
	batch.Set([]byte("m"), []byte("live"))
	if err := s.Apply(b.Context(), "b1", &batch); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	value := make([]byte, 300)
	for _, sides := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(sides), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(max(1, sides/2)) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := n.Add(1)
					key := fmt.Appendf(nil, "ochunk/%032x", i*7919)
					var batch meta.Batch
					batch.IfEqual([]byte("m"), []byte("live"))
					batch.IfAbsent(key)
					batch.Set(key, value)
					batch.Set(fmt.Appendf(nil, "x%016x", i), nil)
					if err := s.Apply(b.Context(), "b1", &batch); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
