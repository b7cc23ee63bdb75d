package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport/transporttest"
)

// manyWorkers lets a test use more workers than the machine has cores.
func manyWorkers(t *testing.T) {
	old := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

// target gives d a target with room around it; kind chooses the placement.
func target(t testing.TB, d *descriptor.Descriptor, kind int, r *rand.Rand) {
	t.Helper()
	n, s := int64(len(d.ChunkKeys)), d.PerLayerChunkBytes
	tg := &descriptor.Target{Handle: "h", Offset: 100, Tag: 1}
	d.Target = tg
	switch kind {
	case 0:
		tg.Length = n * int64(d.LayerCount) * s
	case 1: // gaps everywhere
		tg.ChunkStride, tg.LayerStride = s+3, n*(s+3)+5
		tg.Length = int64(d.LayerCount) * tg.LayerStride
	case 2: // chunk by chunk
		tg.LayerStride, tg.ChunkStride = s, int64(d.LayerCount)*s+1
		tg.Length = n * tg.ChunkStride
	case 3: // a serving engine's blocks: one tensor per layer, K and V planes
		tg.Planes, tg.BlocksPerChunk = 2, 4
		for s%int64(tg.Planes*tg.BlocksPerChunk) != 0 {
			if tg.BlocksPerChunk > 1 {
				tg.BlocksPerChunk /= 2
			} else {
				tg.Planes = 1
			}
		}
		block := s / int64(tg.Planes*tg.BlocksPerChunk)
		pool := n*int64(tg.BlocksPerChunk) + 3
		tg.BlockStride = block
		tg.PlaneStride = pool * block
		for l := range int64(d.NumLayers) {
			tg.LayerBases = append(tg.LayerBases, tg.Offset+l*int64(tg.Planes)*pool*block)
		}
		tg.Length = int64(d.NumLayers) * int64(tg.Planes) * pool * block
		for _, slot := range r.Perm(int(pool))[:n*int64(tg.BlocksPerChunk)] {
			tg.Slots = append(tg.Slots, int64(slot))
		}
	}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
}

// placed is the window as it must be in the end, byte by byte from the wire's
// definition; bytes that belong to no slice are 0.
func placed(d *descriptor.Descriptor, n int) []byte {
	tg, s := d.Target, d.PerLayerChunkBytes
	out := make([]byte, tg.Length)
	payload := expected(d, n, descriptor.Layer)
	ls, block := tg.LayerStride, s
	if ls == 0 {
		ls = int64(n) * s
	}
	if tg.Paged() {
		block = s / int64(tg.Planes*tg.BlocksPerChunk)
	}
	for i := int64(0); i < int64(len(payload)); i += block {
		k := i % s
		j, l := i/s%int64(n), i/s/int64(n)
		at := l*ls + j*tg.ChunkStride
		if tg.Paged() {
			plane := s / int64(tg.Planes)
			slot := tg.Slots[j*int64(tg.BlocksPerChunk)+k%plane/block]
			at = tg.LayerBases[d.FirstLayer+int(l)] + k/plane*tg.PlaneStride + slot*tg.BlockStride - tg.Offset
		}
		copy(out[at:], payload[i:i+block])
	}
	return out
}

// TestEveryByteIntoMemory walks through placements, layouts, modes, windows
// and slices of every kind, with several workers.
func TestEveryByteIntoMemory(t *testing.T) {
	manyWorkers(t)
	const b = storage.BlockSize
	r := rand.New(rand.NewPCG(7, 8))
	for _, s := range []int64{1, 6, 1000, 16 << 10, b, 3*b/2 + 2} {
		for kind := range 4 {
			for _, layout := range []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD} {
				if layout == descriptor.TwoLTD && s%2 != 0 {
					continue
				}
				for i, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
					chunks, layers := 9, 4
					if s >= 16<<10 {
						chunks, layers = 4, 3
					}
					first, missing := r.IntN(layers), r.IntN(2)
					d := desc(t, chunks, layers, s, window(first, 1+r.IntN(layers-first)), trunc, func(d *descriptor.Descriptor) {
						d.Layout, d.Delivery = layout, mode
					})
					target(t, d, kind, r)
					f := newFake(d)
					n := len(d.ChunkKeys) - missing
					if missing > 0 {
						delete(f.chunks, d.ChunkKeys[n])
					}
					f.into = i == 0
					dl := New(f, Config{Workers: 4, WindowBytes: []int64{0, -1, 200_000}[(i+kind)%3]})
					y, err := dl.Prepare(t.Context(), "b", d)
					if err != nil {
						t.Fatal(err)
					}
					m := transporttest.NewMemory(int(d.Target.Length))
					res, err := y.DeliverInto(t.Context(), m)
					if err != nil {
						t.Fatal(err)
					}
					name := fmt.Sprintf("S=%d %s %s placement %d layers %d+%d n=%d", s, layout, mode, kind, d.FirstLayer, d.LayerCount, n)
					want := placed(d, n)
					if !bytes.Equal(m.Bytes(), want) {
						for i, c := range m.Bytes() {
							if c != want[i] {
								t.Fatalf("%s: byte %d of the window is %#x, want %#x", name, i, c, want[i])
							}
						}
					}
					if res.Bytes != y.Size() || len(res.Layers) != d.LayerCount || len(m.Layers()) != d.LayerCount || m.Layers()[0] != d.FirstLayer {
						t.Errorf("%s: %d bytes, layers %v and %v", name, res.Bytes, res.Layers, m.Layers())
					}
					_ = y.Close()
					idle(t, dl, f)
				}
			}
		}
	}
}

// TestPagedVerifiesOnce: small blocks do not make the store verify a block of
// its own more than once.
func TestPagedVerifiesOnce(t *testing.T) {
	d := desc(t, 6, 4, storage.BlockSize)
	target(t, d, 3, rand.New(rand.NewPCG(1, 2)))
	f := newFake(d)
	y, err := New(f, Config{}).Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.DeliverInto(t.Context(), transporttest.NewMemory(int(d.Target.Length))); err != nil {
		t.Fatal(err)
	}
	if f.blocks.Load() != 24 || f.reads.Load() != 24 {
		t.Errorf("%d blocks verified by %d reads, want 24", f.blocks.Load(), f.reads.Load())
	}
	_ = y.Close()
}

// TestLayersComeWhileLaterOnesAreRead: a layer is announced although a slice
// of the next one does not come.
func TestLayersComeWhileLaterOnesAreRead(t *testing.T) {
	manyWorkers(t)
	d := desc(t, 8, 3, storage.BlockSize)
	target(t, d, 0, nil)
	f := newFake(d)
	seen, once := make(chan struct{}), sync.Once{}
	m := &announced{Memory: transporttest.NewMemory(int(d.Target.Length)), on: func(l int) {
		if l == 0 {
			once.Do(func() { close(seen) })
		}
	}}
	f.onRead = func(_ int64, h storage.ReadHint) {
		if h.Layer == 1 {
			<-seen // no slice of layer 1 before layer 0 is announced
		}
	}
	y, err := New(f, Config{Workers: 3}).Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.DeliverInto(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	_ = y.Close()
}

type announced struct {
	*transporttest.Memory
	on func(layer int)
}

func (a *announced) LayerReady(l int) error {
	a.on(l)
	return a.Memory.LayerReady(l)
}

// TestReadFailsIntoMemory lets the k-th read fail for every k: what was
// announced is whole, and nothing is written after the end.
func TestReadFailsIntoMemory(t *testing.T) {
	manyWorkers(t)
	for _, s := range []int64{1000, storage.BlockSize} {
		for kind := range 4 {
			if s > 1000 && kind > 0 {
				continue // slow, and different only to the store
			}
			d := desc(t, 5, 4, s)
			target(t, d, kind, rand.New(rand.NewPCG(1, 2)))
			want := placed(d, 5)
			masks := make([][]bool, 4) // of the first layers
			for l := range masks {
				part := *d
				part.LayerCount = l
				masks[l] = placedMask(&part, 5)
			}
			for k := int64(1); ; k++ {
				f := newFake(d)
				f.failAt = k
				dl := New(f, Config{Workers: 3, WindowBytes: 1 << 20})
				y, err := dl.Prepare(t.Context(), "b", d)
				if err != nil {
					t.Fatal(err)
				}
				m := transporttest.NewMemory(int(d.Target.Length))
				res, err := y.DeliverInto(t.Context(), m)
				_ = y.Close()
				idle(t, dl, f)
				if err == nil {
					if k == 1 || len(m.Layers()) != 4 {
						t.Fatalf("%d reads, layers %v", k-1, m.Layers())
					}
					break
				}
				if !errors.Is(err, errFault) || len(m.Layers()) == 4 || len(res.Layers) != len(m.Layers()) {
					t.Fatalf("fault at read %d: %v, layers %v, %+v", k, err, m.Layers(), res)
				}
				for i, c := range masks[len(m.Layers())] {
					if c && m.Bytes()[i] != want[i] {
						t.Fatalf("fault at read %d: layers %v are announced, byte %d is wrong", k, m.Layers(), i)
					}
				}
				if _, err := m.Grab(0, 1); err == nil {
					t.Fatal("the sink is still open")
				}
			}
		}
	}
}

// placedMask marks the bytes of the window that belong to a slice.
func placedMask(d *descriptor.Descriptor, n int) []bool {
	out := make([]bool, d.Target.Length)
	for i, c := range placed(d, n) {
		out[i] = c != 0 // a slice byte of 0 equals memory never written
	}
	return out
}

// TestCorruptIntoMemory: the layers before the bad block are announced, its
// own is not, with however many workers.
func TestCorruptIntoMemory(t *testing.T) {
	manyWorkers(t)
	for workers := 1; workers <= 4; workers++ {
		d := desc(t, 9, 5, storage.BlockSize)
		target(t, d, 0, nil)
		f := newFake(d)
		f.corrupt = map[string]int64{d.ChunkKeys[4]: 2}
		y, err := New(f, Config{Workers: workers}).Prepare(t.Context(), "b", d)
		if err != nil {
			t.Fatal(err)
		}
		m := transporttest.NewMemory(int(d.Target.Length))
		_, err = y.DeliverInto(t.Context(), m)
		var corrupt *storage.CorruptError
		if !errors.As(err, &corrupt) || len(m.Layers()) != 2 {
			t.Errorf("%d workers: %v, layers %v", workers, err, m.Layers())
		}
		_ = y.Close()
	}
}

// TestCancelIntoMemory: the workers stop, and the cause is told.
func TestCancelIntoMemory(t *testing.T) {
	manyWorkers(t)
	d := desc(t, 20, 40, 1000)
	target(t, d, 0, nil)
	f := newFake(d)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	var after atomic.Int64 // reads that began when it was over
	f.onRead = func(n int64, _ storage.ReadHint) {
		if ctx.Err() != nil {
			after.Add(1)
		}
		if n == 20 {
			cancel(gone)
		}
	}
	dl := New(f, Config{Workers: 4, WindowBytes: -1})
	y, err := dl.Prepare(ctx, "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.DeliverInto(ctx, transporttest.NewMemory(int(d.Target.Length))); !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := after.Load(); n > 4 { // each worker may have looked just before
		t.Errorf("%d reads after the end", n)
	}
	_ = y.Close()
	idle(t, dl, f)
}

// TestNoAllocationPerSliceIntoMemory: as for bodies.
func TestNoAllocationPerSliceIntoMemory(t *testing.T) {
	for _, s := range []int64{storage.BlockSize, 1000} {
		for _, kind := range []int{0, 3} {
			allocs := func(n int) float64 {
				d := desc(t, n, 8, s)
				target(t, d, kind, rand.New(rand.NewPCG(1, 2)))
				f := newFake(d)
				f.into = true // the fallback's pool drops buffers under the race detector
				y, err := New(f, Config{}).Prepare(t.Context(), "b", d)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = y.Close() }()
				w := newPlain(int(d.Target.Length))
				return testing.AllocsPerRun(5, func() {
					if _, err := y.DeliverInto(t.Context(), w); err != nil {
						t.Fatal(err)
					}
				})
			}
			if small, large := allocs(8), allocs(80); large > small+8 { // slabs may have left the pool
				t.Errorf("S=%d placement %d: %v allocations for 64 slices, %v for 640", s, kind, small, large)
			}
		}
	}
}

// plain is memory that checks nothing and allocates nothing.
type plain struct{ mem []byte }

func newPlain(n int) *plain { return &plain{make([]byte, n)} }

func (p *plain) Ordered() bool                         { return false }
func (p *plain) Grab(off int64, n int) ([]byte, error) { return p.mem[off : off+int64(n)], nil }
func (p *plain) Commit(int64, int) error               { return nil }
func (p *plain) LayerReady(int) error                  { return nil }
func (p *plain) Close() error                          { return nil }
