package deliver

import (
	"math/rand/v2"
	"sync/atomic"
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

// sending is memory that is sent to.
type sending struct {
	*transporttest.Memory
	at []int // what was committed when each layer was announced
	n  atomic.Int64
}

func (*sending) Gather() int { return 1 << 20 }

func (m *sending) Commit(off int64, n int) error {
	m.n.Add(int64(n))
	return m.Memory.Commit(off, n)
}

func (m *sending) LayerReady(l int) error {
	m.at = append(m.at, int(m.n.Load()))
	return m.Memory.LayerReady(l)
}

// TestLayerByLayerWhereSent: a layer that has to be sent waits for no bytes of
// another, though their blocks are the same.
func TestLayerByLayerWhereSent(t *testing.T) {
	for _, s := range []int64{1000, 16 << 10, 3 * storage.BlockSize / 2} {
		d := desc(t, 5, 9, s, func(d *descriptor.Descriptor) { d.Delivery = descriptor.Layer })
		target(t, d, 0, rand.New(rand.NewPCG(1, 2)))
		y, err := New(newFake(d), Config{Workers: 1}).Prepare(t.Context(), "b", d)
		if err != nil {
			t.Fatal(err)
		}
		m := &sending{Memory: transporttest.NewMemory(int(d.Target.Length))}
		if _, err := y.DeliverInto(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for l, n := range m.at {
			if want := (l + 1) * 5 * int(s); n != want {
				t.Errorf("S=%d: %d bytes sent when layer %d was announced, want %d", s, n, l, want)
			}
		}
		if len(m.at) != 9 {
			t.Errorf("S=%d: %d layers announced", s, len(m.at))
		}
		_ = y.Close()
	}
}

// TestAggBytes: the aggregation size, or the size of a sink's writes, says how
// much of a layer one worker gathers, within its share.
func TestAggBytes(t *testing.T) {
	const k, m = 1 << 10, 1 << 20
	for _, c := range []struct {
		n              int
		s, agg, gather int64
		workers        int
		want           int
	}{
		{224, 64 * k, 0, 0, 2, 8}, {224, 64 * k, 512 * k, 0, 2, 8}, {224, 64 * k, 8 * m, 0, 2, 112}, {224, 64 * k, m, 0, 2, 16},
		{224, 64 * k, 1, 0, 2, 1}, {14, m, 0, 0, 2, 1}, {14, m, 8 * m, 0, 2, 7}, {1, 10, 8 * m, 0, 2, 1}, {10, 64 * k, 0, 0, 2, 1},
		{224, 16 * k, 0, 0, 2, 8},       // four slices share a block, and are read with it
		{100, 1000, 0, 0, 2, 12},        // a whole chunk is one row, and a worker's share is shared in four
		{224, 64 * k, 0, m, 2, 16},      // a write
		{224, 64 * k, 0, 8 * m, 2, 112}, // a write would be 128: one for each worker
		{224, 64 * k, 0, 4 * k, 2, 8},   // small writes are no reason for small items
		{14, m, 0, 8 * m, 2, 7}, {1, m, 0, 8 * m, 4, 1},
		{224, 64 * k, 512 * k, m, 2, 8}, // what is set wins
	} {
		d := desc(t, c.n, 32, c.s)
		plan := agg.New(d, c.n, descriptor.Layer)
		rows := plan.Rows(storage.BlockSize)
		y := &Delivery{d: New(nil, Config{AggBytes: c.agg}), objs: make([]storage.Object, c.n)}
		if got := y.chunksPerItem(&rows, c.workers, c.gather); got != c.want {
			t.Errorf("%+v: %d chunks", c, got)
		}
	}
}
