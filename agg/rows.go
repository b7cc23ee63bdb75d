package agg

// Rows is another order for the same bytes, for memory that takes any order:
// the chunks are cut into rows, row after row, so that no block is needed by
// two of them and each is read and verified once, however many layers it holds.
//
// The boundary between layers l-1 and l is moved up to the next block boundary.
// Row i holds what lies between two of these, in each half of every chunk: with
// slices of whole blocks a row is a layer, with four slices to a block it is
// four. A chunk-major delivery has one row. The blocks at the two ends of the
// window, and of a half, may still be shared with bytes that are not asked for
// or are the other half's.
type Rows struct {
	p     *Plan
	block int64
	run   int64 // bytes of a slice in one half
	first []int // of each row: the layer, from the window's first, it begins in
}

// Rows cuts the plan's chunks for blocks of the given size.
func (p *Plan) Rows(block int64) Rows {
	r := Rows{p: p, block: block, run: p.slice / int64(p.halves)}
	if p.n == 0 {
		return r
	}
	for l := range p.layers {
		empty := true
		for h := range p.halves {
			empty = empty && r.cut(l, h) == r.cut(l+1, h)
		}
		if l == 0 || !p.chunky && !empty {
			r.first = append(r.first, l)
		}
	}
	return r
}

// cut is where layer l begins in a half of a chunk, moved up to a block.
func (r *Rows) cut(l, half int) int64 {
	base := int64(r.p.first)*r.run + int64(half)*r.p.vAt
	end := base + int64(r.p.layers)*r.run
	if l == 0 {
		return base
	}
	at := base + int64(l)*r.run
	return min(end, (at+r.block-1)/r.block*r.block)
}

// Len is the number of rows; 0 if there are no chunks.
func (r *Rows) Len() int { return len(r.first) }

// Range gives the bytes of row i in one half of every chunk: n from off on. n
// may be 0, but not in both halves.
func (r *Rows) Range(i, half int) (off, n int64) {
	off = r.cut(r.first[i], half)
	return off, r.cut(r.Whole(i), half) - off
}

// Whole is how many layers of the window, counted from its first, are whole
// when the rows up to i are in place in all chunks.
func (r *Rows) Whole(i int) int {
	if i+1 == len(r.first) {
		return r.p.layers
	}
	return r.first[i+1]
}

// Layer is the model layer that row i begins in.
func (r *Rows) Layer(i int) int { return r.p.first + r.first[i] }

// RowBytes is about what a row has of one chunk; at least 1.
func (r *Rows) RowBytes() int64 {
	window := int64(r.p.layers) * r.p.slice
	if r.p.chunky {
		return window
	}
	return min(window, max(r.p.slice, r.block*int64(r.p.halves)))
}

// Dst gives the place in the payload of the byte at off of chunk j's half, which
// must be one of a row's, and how many bytes from it on follow it there.
func (r *Rows) Dst(j, half int, off int64) (dst, n int64) {
	p := r.p
	at := off - int64(p.first)*r.run - int64(half)*p.vAt // in the half's window
	if p.chunky && p.halves == 1 {
		window := int64(p.layers) * p.slice
		return int64(j)*window + at, window - at
	}
	l, k := at/r.run, at%r.run
	i := l*int64(p.n) + int64(j)
	if p.chunky {
		i = int64(j)*int64(p.layers) + l
	}
	return i*p.slice + int64(half)*r.run + k, r.run - k
}
