package agg

import (
	"fmt"
	"testing"

	"github.com/objcached/objcached/descriptor"
)

// TestRows compares rows with the plan's steps, byte by byte: the same bytes,
// each once, no block in two rows but at the ends, and layers whole in time.
func TestRows(t *testing.T) {
	const block = 64
	for _, slice := range []int64{2, 6, 16, 22, 64, 96, 100, 128, 190} {
		for _, layout := range []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD} {
			for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
				for layers := 1; layers <= 9; layers++ {
					for first := range layers {
						for count := 1; first+count <= layers; count++ {
							d := &descriptor.Descriptor{NumLayers: layers, PerLayerChunkBytes: slice, Layout: layout, FirstLayer: first, LayerCount: count}
							p := New(d, 3, mode)
							checkRows(t, fmt.Sprintf("S=%d %s %s layers %d+%d of %d", slice, layout, mode, first, count, layers), &p, block)
						}
					}
				}
			}
		}
	}
	p := New(&descriptor.Descriptor{NumLayers: 4, PerLayerChunkBytes: 8, LayerCount: 4}, 0, descriptor.Layer)
	if r := p.Rows(block); r.Len() != 0 {
		t.Errorf("%d rows of no chunks", r.Len())
	}
}

func checkRows(t *testing.T, name string, p *Plan, block int64) {
	t.Helper()
	type place struct {
		chunk int
		off   int64
	}
	want := map[int64]place{} // by place in the payload
	for i := range p.Steps() {
		s := p.At(i)
		for k := range s.Len {
			want[s.Dst+k] = place{s.Chunk, s.Off + k}
		}
	}
	r := p.Rows(block)
	inRow := map[place]int{} // of each byte, by chunk and offset
	blocks := map[place]int{}
	layers := 0
	for i := range r.Len() {
		total := int64(0)
		for h := range p.Halves() {
			off, n := r.Range(i, h)
			if n < 0 {
				t.Fatalf("%s: row %d half %d has %d bytes", name, i, h, n)
			}
			total += n
			for j := range p.n {
				for at := off; at < off+n; {
					dst, run := r.Dst(j, h, at)
					run = min(run, off+n-at)
					if run <= 0 {
						t.Fatalf("%s: row %d: a run of %d", name, i, run)
					}
					for k := range run {
						if want[dst+k] != (place{j, at + k}) {
							t.Fatalf("%s: chunk %d byte %d goes to %d, the plan has %+v there", name, j, at+k, dst+k, want[dst+k])
						}
						if _, twice := inRow[place{j, at + k}]; twice {
							t.Fatalf("%s: chunk %d byte %d is in two rows", name, j, at+k)
						}
						inRow[place{j, at + k}] = i
					}
					at += run
				}
			}
			for b := off / block; n > 0 && b <= (off+n-1)/block; b++ {
				key := place{h, b}
				if was, ok := blocks[key]; ok && was != i {
					t.Fatalf("%s: block %d of half %d is in rows %d and %d", name, b, h, was, i)
				}
				blocks[key] = i
			}
		}
		if total == 0 {
			t.Fatalf("%s: row %d is empty", name, i)
		}
		if r.Layer(i) != p.First()+layers {
			t.Fatalf("%s: row %d begins in layer %d", name, i, r.Layer(i))
		}
		layers = r.Whole(i)
	}
	if len(inRow) != len(want) || layers != p.Layers() {
		t.Fatalf("%s: %d bytes in rows, %d in the plan; %d layers whole", name, len(inRow), len(want), layers)
	}
	// A layer counts as whole only when its last byte has come.
	for i := range r.Len() {
		for l := range r.Whole(i) {
			for h := range p.Halves() {
				last := int64(p.first+l+1)*r.run + int64(h)*p.vAt - 1
				if row := inRow[place{0, last}]; row > i {
					t.Fatalf("%s: layer %d is said to be whole after row %d, and ends in row %d", name, l, i, row)
				}
			}
		}
	}
	if r.RowBytes() < 1 || r.RowBytes() > p.Size()/int64(p.n) {
		t.Errorf("%s: RowBytes %d", name, r.RowBytes())
	}
}
