package agg

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/descriptor"
)

// place is one byte of one object.
type place struct {
	chunk int
	off   int64
	layer int
}

// oracle lists the payload byte by byte, straight from the definitions: for
// every layer, for every chunk (or the other way round), K and then V.
func oracle(d *descriptor.Descriptor, n int, mode descriptor.Mode) []place {
	var out []place
	slice := func(l, j int) {
		s := d.PerLayerChunkBytes
		for k := range s {
			off := int64(l)*s + k
			if d.Layout == descriptor.TwoLTD {
				if k < s/2 {
					off = int64(l)*(s/2) + k
				} else {
					off = int64(d.NumLayers)*(s/2) + int64(l)*(s/2) + k - s/2
				}
			}
			out = append(out, place{j, off, l})
		}
	}
	last := d.FirstLayer + d.LayerCount
	if mode == descriptor.Layer {
		for l := d.FirstLayer; l < last; l++ {
			for j := range n {
				slice(l, j)
			}
		}
		return out
	}
	for j := range n {
		for l := d.FirstLayer; l < last; l++ {
			slice(l, j)
		}
	}
	return out
}

// check compares a plan with the oracle, byte by byte.
func check(d *descriptor.Descriptor, n int, mode descriptor.Mode) error {
	p := New(d, n, mode)
	want := oracle(d, n, mode)
	if p.Size() != int64(len(want)) {
		return fmt.Errorf("Size %d, want %d", p.Size(), len(want))
	}
	left := make([]int64, d.NumLayers) // bytes missing of each layer
	for _, w := range want {
		left[w.layer]++
	}
	var at int64
	for i := range p.Steps() {
		r := p.At(i)
		if r.Dst != at || r.Len <= 0 {
			return fmt.Errorf("step %d: %+v does not begin at %d", i, r, at)
		}
		if half := p.Halves() == 2 && r.Off >= int64(d.NumLayers)*d.PerLayerChunkBytes/2; half != (r.Half == 1) {
			return fmt.Errorf("step %d: half %d", i, r.Half)
		}
		if r.Layer != want[at].layer {
			return fmt.Errorf("step %d: layer %d, want %d", i, r.Layer, want[at].layer)
		}
		for k := range r.Len {
			if w := want[at+k]; w.chunk != r.Chunk || w.off != r.Off+k {
				return fmt.Errorf("step %d, payload byte %d: chunk %d at %d, want %d at %d", i, at+k, r.Chunk, r.Off+k, w.chunk, w.off)
			}
			left[want[at+k].layer]--
		}
		at += r.Len
		whole := 0
		for whole < d.LayerCount && left[d.FirstLayer+whole] == 0 {
			whole++
		}
		if r.Whole != whole {
			return fmt.Errorf("step %d: %d layers whole, want %d", i, r.Whole, whole)
		}
	}
	if at != p.Size() {
		return fmt.Errorf("steps end at %d of %d", at, p.Size())
	}
	return nil
}

func TestPlanAgainstOracle(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for l := 1; l <= 4; l++ {
			for s := int64(1); s <= 6; s++ {
				for first := range l {
					for count := 1; count <= l-first; count++ {
						for _, layout := range []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD} {
							if layout == descriptor.TwoLTD && s%2 != 0 {
								continue
							}
							for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
								d := &descriptor.Descriptor{NumLayers: l, PerLayerChunkBytes: s, FirstLayer: first, LayerCount: count, Layout: layout}
								if err := check(d, n, mode); err != nil {
									t.Fatalf("n=%d %+v %s: %v", n, d, mode, err)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestLargePlan checks the arithmetic at the limits, where a plan cannot be listed.
func TestLargePlan(t *testing.T) {
	d := &descriptor.Descriptor{NumLayers: 1024, PerLayerChunkBytes: 64 << 20, LayerCount: 1024, Layout: descriptor.TwoLTD}
	p := New(d, 65536, descriptor.Layer)
	if p.Size() != 1<<52 || p.Steps() != 1<<27 {
		t.Fatalf("size %d, steps %d", p.Size(), p.Steps())
	}
	want := Read{Chunk: 65535, Half: 1, Off: 1<<36 - 32<<20, Len: 32 << 20, Dst: 1<<52 - 32<<20, Layer: 1023, Whole: 1024}
	if r := p.At(p.Steps() - 1); r != want {
		t.Errorf("last step %+v, want %+v", r, want)
	}
}

// TestChunkModeCoalesces: a whole l2td chunk is one range.
func TestChunkModeCoalesces(t *testing.T) {
	d := &descriptor.Descriptor{NumLayers: 32, PerLayerChunkBytes: 100, FirstLayer: 2, LayerCount: 7, Layout: descriptor.L2TD}
	p := New(d, 3, descriptor.Chunk)
	if p.Steps() != 3 {
		t.Fatalf("%d steps", p.Steps())
	}
	if r := p.At(2); r != (Read{Chunk: 2, Off: 200, Len: 700, Dst: 1400, Layer: 2, Whole: 7}) {
		t.Errorf("%+v", r)
	}
}

func TestAtDoesNotAllocate(t *testing.T) {
	d := &descriptor.Descriptor{NumLayers: 32, PerLayerChunkBytes: 100, LayerCount: 32, Layout: descriptor.TwoLTD}
	p := New(d, 224, descriptor.Layer)
	var sum int64
	if n := testing.AllocsPerRun(100, func() { sum += p.At(rand.IntN(p.Steps())).Off }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint8(3), uint8(4), uint8(6), uint8(1), uint8(2), true, false)
	f.Fuzz(func(t *testing.T, n, l, s, first, count uint8, two, chunky bool) {
		d := &descriptor.Descriptor{ChunkKeys: make([]string, int(n)%9+1), NumLayers: int(l)%20 + 1, PerLayerChunkBytes: int64(s)%40 + 1,
			FirstLayer: int(first), LayerCount: int(count)}
		for i := range d.ChunkKeys {
			d.ChunkKeys[i] = "k"
		}
		if two {
			d.Layout = descriptor.TwoLTD
		}
		if d.Validate() != nil {
			return
		}
		mode := descriptor.Layer
		if chunky {
			mode = descriptor.Chunk
		}
		if err := check(d, len(d.ChunkKeys), mode); err != nil {
			t.Fatalf("%+v %s: %v", d, mode, err)
		}
	})
}

func BenchmarkAt(b *testing.B) {
	d := &descriptor.Descriptor{NumLayers: 32, PerLayerChunkBytes: 64 << 10, LayerCount: 32, Layout: descriptor.L2TD}
	p := New(d, 224, descriptor.Layer)
	i := 0
	var sum int64
	for b.Loop() {
		sum += p.At(i).Dst
		if i++; i == p.Steps() {
			i = 0
		}
	}
	_ = sum
}
