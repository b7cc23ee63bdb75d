package deliver

import (
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/agg"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport/transporttest"
)

// TestEachBlockOnceIntoMemory: however slices lie in blocks, each block is read
// and verified once, and nothing is kept from one layer to the next.
func TestEachBlockOnceIntoMemory(t *testing.T) {
	manyWorkers(t)
	const b = storage.BlockSize
	for _, s := range []int64{1000, 16 << 10, 24 << 10, b, 3 * b / 2, b + 1, 4 * b} {
		for kind := range 4 {
			for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
				d := desc(t, 5, 9, s, func(d *descriptor.Descriptor) { d.Delivery = mode })
				target(t, d, kind, rand.New(rand.NewPCG(1, 2)))
				f := newFake(d)
				dl := New(f, Config{Workers: 3})
				f.onRead = func(int64, storage.ReadHint) {
					dl.held.mu.Lock()
					defer dl.held.mu.Unlock()
					if dl.held.window != 0 {
						t.Error("window memory is held")
					}
				}
				y, err := dl.Prepare(t.Context(), "b", d)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := y.DeliverInto(t.Context(), transporttest.NewMemory(int(d.Target.Length))); err != nil {
					t.Fatal(err)
				}
				if want := 5 * ((9*s + b - 1) / b); f.blocks.Load() != want {
					t.Errorf("S=%d placement %d %s: %d blocks verified, want %d", s, kind, mode, f.blocks.Load(), want)
				}
				_ = y.Close()
			}
		}
	}
}

// TestAggBytes: the aggregation size says how much of a layer one worker
// gathers, within its share.
func TestAggBytes(t *testing.T) {
	for _, c := range []struct {
		n       int
		s, agg  int64
		workers int
		want    int
	}{
		{224, 64 << 10, 0, 2, 8}, {224, 64 << 10, 512 << 10, 2, 8}, {224, 64 << 10, 8 << 20, 2, 112}, {224, 64 << 10, 1 << 20, 2, 16},
		{224, 64 << 10, 1, 2, 1}, {14, 1 << 20, 0, 2, 1}, {14, 1 << 20, 8 << 20, 2, 7}, {1, 10, 8 << 20, 2, 1},
		{224, 16 << 10, 0, 2, 8}, // four slices share a block, and are read with it
		{100, 1000, 0, 2, 12},    // a whole chunk is one row, and a worker's share is shared in four
	} {
		d := desc(t, c.n, 32, c.s)
		plan := agg.New(d, c.n, descriptor.Layer)
		rows := plan.Rows(storage.BlockSize)
		y := &Delivery{d: New(nil, Config{AggBytes: c.agg}), objs: make([]storage.Object, c.n)}
		if got := y.chunksPerItem(&rows, c.workers, 0); got != c.want {
			t.Errorf("%+v: %d chunks", c, got)
		}
	}
}
