// Package agg plans deliveries: which bytes of which chunk object go where in
// the payload, and in what order (ObjectCache §3.3, Table A3). It is pure
// arithmetic over the descriptor; no plan grows with N or L.
//
// Byte k of the slice of layer l and chunk j has one place in the payload,
// whatever the layout of the objects (n chunks, c layers from f, S bytes):
//
//	layer mode  ((l-f)*n + j)*S + k   layer-major: layer by layer, chunks in prefix order
//	chunk mode  (j*c + (l-f))*S + k   chunk-major: chunk by chunk, its layers in order
//
// where the slice is K then V: S bytes at l*S of an l2td object; the S/2 bytes
// at l*S/2 and then the S/2 bytes at (L+l)*S/2 of a 2ltd object. So chunk mode
// of whole l2td chunks is the objects themselves one after the other, and of
// 2ltd chunks it is the same bytes with each layer's K and V brought together.
package agg

import "github.com/objcached/objcached/descriptor"

// Plan is the order of one delivery. It is immutable.
type Plan struct {
	n      int   // chunks
	layers int   // in the window
	first  int   // the window's first layer
	slice  int64 // S
	vAt    int64 // 2ltd: where the V half of an object begins; else 0
	halves int   // reads per slice
	chunky bool  // chunk-major
}

// New plans the delivery of the first n chunks of a validated descriptor; mode
// is descriptor.Layer or descriptor.Chunk.
func New(d *descriptor.Descriptor, n int, mode descriptor.Mode) Plan {
	p := Plan{n: n, layers: d.LayerCount, first: d.FirstLayer, slice: d.PerLayerChunkBytes,
		halves: 1, chunky: mode == descriptor.Chunk}
	// With one layer the two halves lie side by side.
	if d.Layout == descriptor.TwoLTD && d.NumLayers > 1 {
		p.halves = 2
		p.vAt = int64(d.NumLayers) * (p.slice / 2)
	}
	return p
}

// Read is one step: Len bytes at Off of chunk object Chunk are the payload's
// bytes at Dst.
type Read struct {
	Chunk int   // index in chunk_keys
	Half  int   // 0; 1 for a V half that is a step of its own
	Off   int64 // in the object
	Len   int64 // never 0
	Dst   int64 // in the payload
	Layer int   // the model layer it starts in, counted from 0
	// Whole is how many layers of the window, counted from its first, are
	// whole once this step and all steps before it are done.
	Whole int
}

// Size is the number of bytes in the payload.
func (p *Plan) Size() int64 { return int64(p.n) * int64(p.layers) * p.slice }

// First is the first layer of the window, and Layers how many there are.
func (p *Plan) First() int { return p.first }

// Layers is the number of layers in the window.
func (p *Plan) Layers() int { return p.layers }

// Halves is the number of steps that a slice takes in layer mode: 1, or 2 if
// its K and V lie apart. Layer l+1's bytes follow layer l's in each half.
func (p *Plan) Halves() int { return p.halves }

// Steps is the number of steps.
func (p *Plan) Steps() int {
	if p.chunky && p.halves == 1 {
		return p.n // a chunk's layers are one range
	}
	return p.n * p.layers * p.halves
}

// At gives step i, 0 <= i < Steps(). Steps are in the order of the payload:
// each Dst is where the step before ended.
func (p *Plan) At(i int) Read {
	if p.chunky && p.halves == 1 {
		r := Read{Chunk: i, Off: int64(p.first) * p.slice, Len: int64(p.layers) * p.slice, Layer: p.first}
		r.Dst = int64(i) * r.Len
		if i == p.n-1 {
			r.Whole = p.layers
		}
		return r
	}
	half := i % p.halves
	i /= p.halves
	var l, j, whole int
	if p.chunky {
		j, l = i/p.layers, i%p.layers
		if j == p.n-1 {
			whole = l
		}
	} else {
		l, j = i/p.n, i%p.n
		whole = l
	}
	if j == p.n-1 && half == p.halves-1 {
		whole++
	}
	n := p.slice / int64(p.halves)
	return Read{
		Chunk: j,
		Half:  half,
		Off:   int64(p.first+l)*n + int64(half)*p.vAt,
		Len:   n,
		Dst:   int64(i)*p.slice + int64(half)*n,
		Layer: p.first + l,
		Whole: whole,
	}
}
