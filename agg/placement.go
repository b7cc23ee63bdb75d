package agg

import "github.com/objcached/objcached/descriptor"

// Placement says where in the client's memory each byte of the payload lands.
// Addresses are counted from the start of the target's window. It is pure
// arithmetic over the descriptor's target, which it keeps; it never changes.
type Placement struct {
	n      int64 // chunks
	layers int64 // in the window of layers
	slice  int64
	chunky bool

	layerStride, chunkStride int64 // simple

	t     *descriptor.Target // paged: else nil
	first int
	block int64
	plane int64 // bytes of one plane of a slice
}

// Place gives the placement of the first n chunks of a validated descriptor
// that has a target; mode is the plan's.
func Place(d *descriptor.Descriptor, n int, mode descriptor.Mode) Placement {
	t := d.Target
	p := Placement{n: int64(n), layers: int64(d.LayerCount), slice: d.PerLayerChunkBytes, chunky: mode == descriptor.Chunk, first: d.FirstLayer}
	if t.Paged() {
		p.t, p.block, p.plane = t, t.BlockBytes(p.slice), p.slice/int64(t.Planes)
		return p
	}
	p.layerStride, p.chunkStride = t.LayerStride, t.ChunkStride
	if p.layerStride == 0 {
		p.layerStride = p.n * p.slice
	}
	return p
}

// At gives the address of the payload's byte off, 0 <= off < Plan.Size(), and
// how many bytes from it on, in the order of the payload, follow it there. The
// run is at least 1 and does not end before a slice does unless the placement
// is paged.
func (p *Placement) At(off int64) (addr, run int64) {
	i, k := off/p.slice, off%p.slice
	var l, j int64
	if p.chunky {
		j, l = i/p.layers, i%p.layers
	} else {
		l, j = i/p.n, i%p.n
	}
	if p.t != nil {
		plane, x := k/p.plane, k%p.plane
		b, x := x/p.block, x%p.block
		slot := p.t.Slots[j*int64(p.t.BlocksPerChunk)+b]
		return p.t.LayerBases[p.first+int(l)] + plane*p.t.PlaneStride + slot*p.t.BlockStride + x - p.t.Offset, p.block - x
	}
	run = p.slice - k
	switch {
	case p.chunky && p.layerStride == p.slice:
		run += (p.layers - 1 - l) * p.slice
	case !p.chunky && p.chunkStride == p.slice:
		run += (p.n - 1 - j) * p.slice
	}
	return l*p.layerStride + j*p.chunkStride + k, run
}
