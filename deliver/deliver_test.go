package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport/transporttest"
)

// watch is a sink that checks each layer when it is announced.
type watch struct {
	*transporttest.Memory
	t    *testing.T
	want []byte
	d    *descriptor.Descriptor
	n    int
	mode descriptor.Mode
}

func (w *watch) LayerReady(layer int) error {
	l, s := layer-w.d.FirstLayer, int(w.d.PerLayerChunkBytes)
	for j := range w.n {
		at := (l*w.n + j) * s
		if w.mode == descriptor.Chunk {
			at = (j*w.d.LayerCount + l) * s
		}
		if !bytes.Equal(w.Bytes()[at:at+s], w.want[at:at+s]) {
			w.t.Errorf("layer %d is announced and its slice of chunk %d is not there", layer, j)
		}
	}
	return w.Memory.LayerReady(layer)
}

// deliverBoth delivers d as a body and into memory, and checks every byte.
func deliverBoth(t *testing.T, dl *Deliverer, f *fakeStore, d *descriptor.Descriptor) {
	t.Helper()
	y, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = y.Close() }()
	mode := descriptor.Mode(y.Mode())
	want := expected(d, y.Matched(), mode)
	if y.Size() != int64(len(want)) {
		t.Fatalf("Size %d, want %d", y.Size(), len(want))
	}
	var body bytes.Buffer
	if err := y.WriteTo(t.Context(), &body); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(body.Bytes(), want) {
		t.Fatalf("the body differs")
	}
	w := &watch{Memory: transporttest.NewMemory(len(want)), t: t, want: want, d: d, n: y.Matched(), mode: mode}
	if err := y.Deliver(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w.Bytes(), want) {
		t.Fatal("the memory differs")
	}
	if y.Matched() > 0 && (len(w.Layers()) != d.LayerCount || w.Layers()[0] != d.FirstLayer) {
		t.Fatalf("announced %v", w.Layers())
	}
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	idle(t, dl, f)
}

// TestEveryByte walks through the geometries that differ: slices below, at and
// above a block, odd, with and without room for the window.
func TestEveryByte(t *testing.T) {
	const b = storage.BlockSize
	for _, s := range []int64{1, 2, 7, 1000, 4096, 16 << 10, b - 1, b, b + 2, 3 * b / 2, 2 * b, 3*b + 10} {
		for _, layout := range []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD} {
			if layout == descriptor.TwoLTD && s%2 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/S=%d", layout, s), func(t *testing.T) {
				t.Parallel()
				layers := 4
				if s < 20 {
					layers = 40
				}
				base := desc(t, 3, layers, s, func(d *descriptor.Descriptor) { d.Layout = layout })
				f := newFake(base)
				for i, cfg := range []Config{
					{}, {WindowBytes: -1}, {WindowBytes: 2 * (min(b, s*int64(layers)) + slotBytes)}, {StagingBytes: b}, {StagingBytes: 1 << 20, WindowTotal: 1},
				} {
					dl := New(f, cfg)
					for _, mode := range []descriptor.Mode{descriptor.Auto, descriptor.Chunk} {
						for _, w := range [][2]int{{0, layers}, {1, 2}, {layers - 1, 1}} {
							if i > 1 && w[1] != layers {
								continue
							}
							d := *base
							d.Delivery, d.FirstLayer, d.LayerCount = mode, w[0], w[1]
							deliverBoth(t, dl, f, &d)
						}
					}
				}
			})
		}
	}
}

// TestRandomGeometry looks where the table above does not.
func TestRandomGeometry(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		l := 1 + r.IntN(9)
		first := r.IntN(l)
		d := desc(t, 1+r.IntN(6), l, 1+r.Int64N(100_000), func(d *descriptor.Descriptor) {
			d.FirstLayer, d.LayerCount = first, 1+r.IntN(l-first)
			d.Delivery = []descriptor.Mode{descriptor.Layer, descriptor.Chunk}[r.IntN(2)]
			if d.PerLayerChunkBytes%2 == 0 {
				d.Layout = descriptor.TwoLTD
			}
		})
		f := newFake(d)
		deliverBoth(t, New(f, Config{WindowBytes: r.Int64N(600_000), StagingBytes: r.IntN(300_000)}), f, d)
	}
}

// TestBlocksAreReadOnce: with room for the window no block is verified twice,
// in whatever layout, mode and geometry.
func TestBlocksAreReadOnce(t *testing.T) {
	const b = storage.BlockSize
	for _, c := range []struct {
		l    int
		s    int64
		opts []func(*descriptor.Descriptor)
	}{
		{64, 1 << 10, nil}, {100, 1000, nil}, {7, 3 * b / 2, nil}, {5, b + 2, nil}, {4, 2 * b, nil},
		{64, 1 << 10, []func(*descriptor.Descriptor){twoLTD}}, {200, 1000, []func(*descriptor.Descriptor){twoLTD}},
		{5, b + 2, []func(*descriptor.Descriptor){twoLTD}}, {200, 1000, []func(*descriptor.Descriptor){twoLTD, inChunk}},
		{5, 5*b + 4, []func(*descriptor.Descriptor){inChunk}}, {64, 1 << 10, []func(*descriptor.Descriptor){inChunk}},
		{31, 1 << 10, []func(*descriptor.Descriptor){twoLTD, inChunk}},
	} {
		d := desc(t, 5, c.l, c.s, c.opts...)
		f := newFake(d)
		dl := New(f, Config{})
		y, err := dl.Prepare(t.Context(), "b", d)
		if err != nil {
			t.Fatal(err)
		}
		if err := y.WriteTo(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		_ = y.Close()
		perChunk := (d.ChunkBytes() + b - 1) / b
		want := 5 * perChunk
		// The block where the V half begins belongs to K's end as well.
		if d.Layout == descriptor.TwoLTD && perChunk > 1 && d.ChunkBytes()/2%b != 0 {
			want += 5
		}
		if got := f.blocks.Load(); got != want {
			t.Errorf("L=%d S=%d %s %s: %d blocks verified, want %d", c.l, c.s, d.Layout, d.Delivery, got, want)
		}
	}
	// Without the window the same is many times that: the test above means something.
	d := desc(t, 5, 64, 1<<10)
	f := newFake(d)
	dl := New(f, Config{WindowBytes: -1})
	y, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = y.Close() }()
	if err := y.WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := f.blocks.Load(); got != 5*64 {
		t.Errorf("without the window: %d blocks, want %d", got, 5*64)
	}
}

// TestAlignedSlicesAreOneRead: S a multiple of the block, one read each.
func TestAlignedSlicesAreOneRead(t *testing.T) {
	d := desc(t, 6, 4, storage.BlockSize)
	f := newFake(d)
	var hints []storage.ReadHint
	f.onRead = func(_ int64, h storage.ReadHint) { hints = append(hints, h) }
	y, err := New(f, Config{}).Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if f.reads.Load() != 24 || f.blocks.Load() != 24 || f.opens.Load() != 1 {
		t.Errorf("%d reads of %d blocks, %d look-ups", f.reads.Load(), f.blocks.Load(), f.opens.Load())
	}
	for i, h := range hints {
		if h.Class != storage.ClassLayer || h.Layer != i/6 {
			t.Fatalf("read %d has hint %+v", i, h)
		}
	}
	_ = y.Close()
	d.Delivery = descriptor.Chunk
	hints = nil
	if y, err = New(f, Config{}).Prepare(t.Context(), "b", d); err != nil {
		t.Fatal(err)
	}
	if err := y.WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if hints[0].Class != storage.ClassChunk {
		t.Errorf("chunk mode reads as %+v", hints[0])
	}
}

func TestPrepareErrors(t *testing.T) {
	d := desc(t, 4, 2, 100)
	f := newFake(d)
	dl := New(f, Config{})
	if _, err := dl.Prepare(t.Context(), "other", d); !errors.Is(err, storage.ErrNoSuchBucket) {
		t.Errorf("no bucket: %v", err)
	}
	delete(f.chunks, d.ChunkKeys[2])
	_, err := dl.Prepare(t.Context(), "b", d)
	var missing *descriptor.MissingError
	if !errors.As(err, &missing) || missing.Key != d.ChunkKeys[2] || missing.Matched != 2 {
		t.Errorf("missing: %v", err)
	}
	f.chunks[d.ChunkKeys[2]] = make([]byte, 199)
	var size *descriptor.ChunkSizeError
	for _, m := range []descriptor.OnMissing{descriptor.Fail, descriptor.Truncate} {
		d.OnMissing = m
		_, err = dl.Prepare(t.Context(), "b", d)
		if !errors.As(err, &size) || size.Key != d.ChunkKeys[2] || size.Size != 199 || size.Want != 200 {
			t.Errorf("size: %v", err)
		}
	}
	f.openErr = errFault
	if _, err := dl.Prepare(t.Context(), "b", d); !errors.Is(err, errFault) {
		t.Errorf("open: %v", err)
	}
	idle(t, dl, f)
}

func TestTruncate(t *testing.T) {
	for have := range 5 {
		d := desc(t, 4, 3, 1000, trunc)
		f := newFake(d)
		for _, k := range d.ChunkKeys[have:] {
			delete(f.chunks, k)
		}
		dl := New(f, Config{})
		y, err := dl.Prepare(t.Context(), "b", d)
		if err != nil {
			t.Fatal(err)
		}
		if y.Matched() != have || y.Size() != int64(have)*3000 || dl.held.all.open != int64(have) {
			t.Errorf("matched %d, size %d, %d held, want %d chunks", y.Matched(), y.Size(), dl.held.all.open, have)
		}
		_ = y.Close()
		deliverBoth(t, dl, f, d)
	}
}

// TestMode: below Θ chunk-major, at Θ and above layer-major, by what is
// served and not by what was asked; a mode that is asked for is obeyed.
func TestMode(t *testing.T) {
	const w = 4 * 2 * 100 // 4 chunks, a window of 2 layers
	for _, c := range []struct {
		theta int64
		ask   descriptor.Mode
		have  int
		want  string
	}{
		{0, descriptor.Auto, 4, "layer"}, {0, descriptor.Auto, 0, "layer"}, {w, descriptor.Auto, 4, "layer"},
		{w + 1, descriptor.Auto, 4, "chunk"}, {w, descriptor.Auto, 3, "chunk"}, {1 << 40, descriptor.Layer, 4, "layer"},
		{0, descriptor.Chunk, 4, "chunk"},
	} {
		d := desc(t, 4, 3, 100, trunc, window(1, 2), func(d *descriptor.Descriptor) { d.Delivery = c.ask })
		f := newFake(d)
		for _, k := range d.ChunkKeys[c.have:] {
			delete(f.chunks, k)
		}
		y, err := New(f, Config{Threshold: c.theta}).Prepare(t.Context(), "b", d)
		if err != nil {
			t.Fatal(err)
		}
		if y.Mode() != c.want {
			t.Errorf("%+v: mode %s", c, y.Mode())
		}
		_ = y.Close()
	}
}

type recorder struct {
	mu      sync.Mutex
	reports []Report
	refused []string
}

func (r *recorder) Delivered(p Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, p)
}

func (r *recorder) Refused(limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, limit)
}

func TestLimits(t *testing.T) {
	d := desc(t, 4, 1, 10)
	f := newFake(d)
	rec := new(recorder)
	dl := New(f, Config{MaxDeliveries: 2, MaxOpen: 7, Observer: rec})
	first, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	var busy *descriptor.BusyError
	if _, err := dl.Prepare(t.Context(), "b", d); !errors.As(err, &busy) {
		t.Fatalf("8 of 7 chunks: %v", err)
	}
	small := desc(t, 1, 1, 10)
	second, err := dl.Prepare(t.Context(), "b", small)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dl.Prepare(t.Context(), "b", small); !errors.As(err, &busy) {
		t.Fatalf("3 of 2 deliveries: %v", err)
	}
	if len(rec.refused) != 2 || rec.refused[0] == rec.refused[1] {
		t.Errorf("refused %q", rec.refused)
	}
	_ = first.Close()
	_ = second.Close()
	_ = second.Close()
	idle(t, dl, f)
	// One delivery above the limit runs alone.
	big := desc(t, 9, 1, 10)
	f = newFake(big)
	dl = New(f, Config{MaxOpen: 7})
	deliverBoth(t, dl, f, big)
}

// TestReadFails lets the k-th read fail for every k: the body is a prefix of
// the payload, layers announced are whole, and nothing stays held.
func TestReadFails(t *testing.T) {
	for _, d := range []*descriptor.Descriptor{
		desc(t, 3, 4, 1000), desc(t, 3, 4, 90_000), desc(t, 2, 3, storage.BlockSize), desc(t, 3, 4, 90_000, inChunk), desc(t, 2, 4, 90_000, twoLTD),
	} {
		want := expected(d, len(d.ChunkKeys), func() descriptor.Mode {
			if d.Delivery == descriptor.Chunk {
				return descriptor.Chunk
			}
			return descriptor.Layer
		}())
		for k := int64(1); ; k++ {
			f := newFake(d)
			f.failAt = k
			rec := new(recorder)
			dl := New(f, Config{StagingBytes: 64 << 10, Observer: rec})
			y, err := dl.Prepare(t.Context(), "b", d)
			if err != nil {
				t.Fatal(err)
			}
			var body bytes.Buffer
			err = y.WriteTo(t.Context(), &body)
			_ = y.Close()
			idle(t, dl, f)
			if !bytes.HasPrefix(want, body.Bytes()) {
				t.Fatalf("fault at read %d: the body is no prefix of the payload", k)
			}
			r := rec.reports[0]
			if y.Mode() == "layer" && body.Len() < r.Layers*len(want)/d.LayerCount {
				t.Fatalf("fault at read %d: %d layers announced, %d bytes there", k, r.Layers, body.Len())
			}
			if err == nil {
				if k == 1 || body.Len() != len(want) || r.Err != nil || r.Layers != d.LayerCount {
					t.Fatalf("%d reads, %d bytes, report %+v", k-1, body.Len(), r)
				}
				break
			}
			if !errors.Is(err, errFault) || r.Err == nil || body.Len() == len(want) {
				t.Fatalf("fault at read %d: %v, report %+v", k, err, r)
			}
		}
	}
}

// TestCorruptBlock: layers before it arrive, the layer that touches it never does.
func TestCorruptBlock(t *testing.T) {
	const s = storage.BlockSize
	d := desc(t, 3, 5, s)
	f := newFake(d)
	f.corrupt = map[string]int64{d.ChunkKeys[1]: 2}
	rec := new(recorder)
	dl := New(f, Config{Observer: rec})
	y, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	m := transporttest.NewMemory(int(y.Size()))
	err = y.Deliver(t.Context(), m)
	var corrupt *storage.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Key != d.ChunkKeys[1] || corrupt.Block != 2 {
		t.Fatalf("got %v", err)
	}
	if !slices.Equal(m.Layers(), []int{0, 1}) || rec.reports[0].Layers != 2 {
		t.Errorf("announced %v, report %+v", m.Layers(), rec.reports[0])
	}
	_ = y.Close()
	idle(t, dl, f)
}

// failingWriter takes whole writes until the k-th.
type failingWriter struct {
	bytes.Buffer
	left int
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errFault
	}
	return w.Buffer.Write(p)
}

func TestWriteFails(t *testing.T) {
	d := desc(t, 3, 4, 90_000)
	want := expected(d, 3, descriptor.Layer)
	for k := 0; ; k++ {
		f := newFake(d)
		dl := New(f, Config{StagingBytes: 128 << 10})
		y, err := dl.Prepare(t.Context(), "b", d)
		if err != nil {
			t.Fatal(err)
		}
		w := &failingWriter{left: k}
		err = y.WriteTo(t.Context(), w)
		_ = y.Close()
		idle(t, dl, f)
		if !bytes.HasPrefix(want, w.Bytes()) {
			t.Fatal("not a prefix")
		}
		if err == nil {
			if k < 5 {
				t.Errorf("only %d writes", k)
			}
			return
		}
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
	}
}

// TestCancel: a delivery whose context ends stops at the next slice.
func TestCancel(t *testing.T) {
	d := desc(t, 3, 40, 1000)
	f := newFake(d)
	ctx, cancel := context.WithCancel(t.Context())
	f.onRead = func(n int64, _ storage.ReadHint) {
		if n == 2 {
			cancel()
		}
	}
	dl := New(f, Config{WindowBytes: -1})
	y, err := dl.Prepare(ctx, "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.WriteTo(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := f.reads.Load(); n > 3 {
		t.Errorf("%d reads after the end", n-2)
	}
	_ = y.Close()
	if err := y.WriteTo(t.Context(), io.Discard); err == nil {
		t.Error("a closed delivery was written")
	}
	idle(t, dl, f)
}

func TestReport(t *testing.T) {
	d := desc(t, 4, 3, 1000, trunc, window(1, 2))
	f := newFake(d)
	delete(f.chunks, d.ChunkKeys[3])
	rec := new(recorder)
	now := time.Unix(0, 0)
	f.onRead = func(int64, storage.ReadHint) { now = now.Add(time.Second) }
	dl := New(f, Config{Observer: rec, Now: func() time.Time { return now }, WindowBytes: -1})
	y, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	_ = y.Close()
	want := Report{Mode: descriptor.Layer, Requested: 4, Matched: 3, Layers: 2, Bytes: 6000, FirstLayer: 3 * time.Second, Total: 6 * time.Second}
	if len(rec.reports) != 1 || rec.reports[0] != want {
		t.Errorf("got %+v, want %+v", rec.reports, want)
	}
}

// TestManyAtOnce delivers from many goroutines, some of which give up, with
// window memory for a few of them.
func TestManyAtOnce(t *testing.T) {
	d := desc(t, 5, 6, 10_000)
	f := newFake(d)
	want := expected(d, 5, descriptor.Layer)
	dl := New(f, Config{MaxDeliveries: 8, WindowTotal: 300_000})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 10 {
				y, err := dl.Prepare(t.Context(), "b", d)
				var busy *descriptor.BusyError
				if errors.As(err, &busy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if (g+i)%3 == 0 {
					_ = y.WriteTo(t.Context(), &failingWriter{left: 2})
				} else {
					var b bytes.Buffer
					if err := y.WriteTo(t.Context(), &b); err != nil || !bytes.Equal(b.Bytes(), want) {
						t.Errorf("a wrong body (%v)", err)
					}
				}
				_ = y.Close()
			}
		})
	}
	wg.Wait()
	idle(t, dl, f)
}

// TestNoAllocationPerSlice: what a delivery allocates does not grow with the
// number of slices.
func TestNoAllocationPerSlice(t *testing.T) {
	for _, s := range []int64{storage.BlockSize, 1000, 40_000} {
		allocs := func(n, l int) float64 {
			d := desc(t, n, l, s)
			f := newFake(d)
			y, err := New(f, Config{WindowBytes: 3 << 20}).Prepare(t.Context(), "b", d)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = y.Close() }()
			return testing.AllocsPerRun(5, func() {
				if err := y.WriteTo(t.Context(), io.Discard); err != nil {
					t.Fatal(err)
				}
			})
		}
		small, large := allocs(2, 2), allocs(20, 8)
		if large > small+6 { // slabs of the window may have left the pool
			t.Errorf("S=%d: %v allocations for 4 slices, %v for 160", s, small, large)
		}
	}
}
