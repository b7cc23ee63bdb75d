package agg

import (
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/descriptor"
)

// address is the wire's definition of where byte k of layer l (the model's)
// and chunk j lands, counted from the window's start.
func address(d *descriptor.Descriptor, n int, l, j int, k int64) int64 {
	t, s := d.Target, d.PerLayerChunkBytes
	if t.LayerBases == nil {
		ls := t.LayerStride
		if ls == 0 {
			ls = int64(n) * s
		}
		return int64(l-d.FirstLayer)*ls + int64(j)*t.ChunkStride + k
	}
	plane := s / int64(t.Planes)
	block := plane / int64(t.BlocksPerChunk)
	p, b := k/plane, k%plane/block
	return t.LayerBases[l] + p*t.PlaneStride + t.Slots[int64(j*t.BlocksPerChunk)+b]*t.BlockStride + k%block - t.Offset
}

// checkPlacement compares every byte's address, and every run, with the definition.
func checkPlacement(t *testing.T, d *descriptor.Descriptor, n int, mode descriptor.Mode) {
	t.Helper()
	p := Place(d, n, mode)
	c, s := d.LayerCount, d.PerLayerChunkBytes
	var want []int64
	slice := func(l, j int) {
		for k := range s {
			want = append(want, address(d, n, l, j, k))
		}
	}
	if mode == descriptor.Layer {
		for l := range c {
			for j := range n {
				slice(d.FirstLayer+l, j)
			}
		}
	} else {
		for j := range n {
			for l := range c {
				slice(d.FirstLayer+l, j)
			}
		}
	}
	for off := range want {
		a, run := p.At(int64(off))
		if a != want[off] || run < 1 || int64(off)+run > int64(len(want)) {
			t.Fatalf("n=%d %s %+v %+v: byte %d: address %d and a run of %d, want %d", n, mode, d, d.Target, off, a, run, want[off])
		}
		for i := range run {
			if want[int64(off)+i] != a+i {
				t.Fatalf("n=%d %s %+v %+v: byte %d: the run of %d ends at %d", n, mode, d, d.Target, off, run, i)
			}
		}
	}
}

func TestPlacementAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	checked := 0
	for range 4000 {
		d := &descriptor.Descriptor{ChunkKeys: []string{"a", "b", "c", "d"}[:1+r.IntN(4)], NumLayers: 1 + r.IntN(4), PerLayerChunkBytes: 1 + r.Int64N(12)}
		d.FirstLayer = r.IntN(d.NumLayers)
		d.LayerCount = 1 + r.IntN(d.NumLayers-d.FirstLayer)
		tg := &descriptor.Target{Handle: "h", Offset: r.Int64N(10), Length: 1 << 20}
		d.Target = tg
		n := int64(len(d.ChunkKeys))
		switch r.IntN(4) {
		case 0: // the defaults
		case 1:
			tg.ChunkStride = d.PerLayerChunkBytes + r.Int64N(3)
			tg.LayerStride = n*tg.ChunkStride + r.Int64N(3)
		case 2:
			tg.LayerStride = d.PerLayerChunkBytes + r.Int64N(2)
			tg.ChunkStride = int64(d.LayerCount) * tg.LayerStride
		case 3:
			tg.Planes, tg.BlocksPerChunk, tg.PlaneStride = 1+r.IntN(2), 1+r.IntN(3), 300
			for l := range d.NumLayers {
				tg.LayerBases = append(tg.LayerBases, tg.Offset+1000*int64(l^1))
			}
			for _, s := range r.Perm(20)[:int(n)*tg.BlocksPerChunk] {
				tg.Slots = append(tg.Slots, int64(s))
			}
		}
		if d.Validate() != nil {
			continue // the slice does not divide
		}
		checked++
		for m := 1; m <= int(n); m++ { // truncated too
			checkPlacement(t, d, m, descriptor.Layer)
			checkPlacement(t, d, m, descriptor.Chunk)
		}
	}
	if checked < 2000 {
		t.Errorf("only %d placements", checked)
	}
}

// TestPlacementOfVLLM lays a prefix out as vLLM's cache is: one tensor per
// layer of [2, blocks, 16 tokens, bytes per token], chunks of 64 tokens.
func TestPlacementOfVLLM(t *testing.T) {
	const layers, blocks, chunks, tokenBytes = 3, 40, 5, 8
	const block = 16 * tokenBytes // of one plane
	d := &descriptor.Descriptor{NumLayers: layers, PerLayerChunkBytes: 2 * 4 * block}
	tg := &descriptor.Target{Handle: "h", Length: layers * 2 * blocks * block, PlaneStride: blocks * block, BlocksPerChunk: 4, BlockStride: block}
	for l := range int64(layers) {
		tg.LayerBases = append(tg.LayerBases, l*2*blocks*block)
	}
	for _, s := range rand.New(rand.NewPCG(1, 1)).Perm(blocks)[:chunks*4] {
		tg.Slots = append(tg.Slots, int64(s))
	}
	for range chunks {
		d.ChunkKeys = append(d.ChunkKeys, "k")
	}
	d.Target = tg
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	p := Place(d, chunks, descriptor.Layer)
	for l := range layers {
		for token := range chunks * 64 {
			for plane := range 2 {
				// The engine looks a token up by its block table.
				want := ((int64(l)*2+int64(plane))*blocks+tg.Slots[token/16])*block + int64(token%16)*tokenBytes
				off := int64(l*chunks+token/64)*d.PerLayerChunkBytes + int64(plane*4*block+token%64*tokenBytes)
				if a, run := p.At(off); a != want || run != int64(16-token%16)*tokenBytes {
					t.Fatalf("layer %d token %d plane %d: %d and %d, want %d", l, token, plane, a, run, want)
				}
			}
		}
	}
	checkPlacement(t, d, chunks, descriptor.Chunk)
	if n := testing.AllocsPerRun(100, func() { p.At(rand.Int64N(1000)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
