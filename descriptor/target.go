package descriptor

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Target is rdma_target: where in registered memory a delivery goes. Byte
// addresses are counted from the first byte of that memory, and every byte
// lands in the window [Offset, Offset+Length).
//
// Byte k of the slice of layer l and chunk j has one address, in either mode.
// Simple placement, l counted from first_layer, n the chunks that are served:
//
//	offset + l*layer_stride + j*chunk_stride + k
//
// Paged placement, a serving engine's own blocks, l the model's layer. A slice
// is `planes` planes of blocks_per_chunk blocks each, one after the other, of
// B = S / planes / blocks_per_chunk bytes; byte x of block b of plane p goes to
//
//	layer_bases[l] + p*plane_stride + slots[j*blocks_per_chunk+b]*block_stride + x
//
// With one plane plane_stride is not used. In JSON:
//
//	{"handle": "...", "offset": 0, "length": 1048576, "tag": 1,
//	 "layer_stride": 65536, "chunk_stride": 4096}
//	{"handle": "...", "offset": 0, "length": 1048576, "tag": 2,
//	 "layer_bases": [0, 65536], "planes": 2, "plane_stride": 32768,
//	 "blocks_per_chunk": 4, "block_stride": 1024, "slots": [3, 0, 7, 5]}
//
// Of the first four all are needed. layer_bases makes the placement paged; then
// slots is needed, and the strides of the simple placement are refused (and the
// other way round).
type Target struct {
	Handle string // from kv-register
	Offset int64  // of the window, in bytes
	Length int64  // of the window, in bytes
	// Tag names this delivery among those of the handle. Each works once; the
	// transport says which may come next.
	Tag int64

	LayerStride int64 // 0: n*S
	ChunkStride int64 // 0: S

	LayerBases     []int64 // num_layers of them; nil: simple
	Planes         int     // 1 or 2; 0: 2
	PlaneStride    int64   // needed with two planes
	BlocksPerChunk int     // 0: 1
	BlockStride    int64   // 0: B
	Slots          []int64 // one for each block of each chunk, in prefix order
}

// Paged reports whether the placement is paged.
func (t *Target) Paged() bool { return t.LayerBases != nil }

// BlockBytes is B, the bytes of a slice that lie together in the paged placement.
func (t *Target) BlockBytes(slice int64) int64 {
	return slice / int64(t.Planes) / int64(t.BlocksPerChunk)
}

// targetPrefix stands before a field of the target in an error.
const targetPrefix = "rdma_target."

// targetFields is the table of rdma_target.
var targetFields = append(windowFields((*Target).window), []field[Target]{
	stride("layer_stride", func(t *Target) *int64 { return &t.LayerStride }),
	stride("chunk_stride", func(t *Target) *int64 { return &t.ChunkStride }),
	{"layer_bases", false,
		func(r reader, t *Target, lim *Limits) (err error) {
			t.LayerBases, err = addresses(r, lim.Layers)
			return err
		},
		func(w writer, t *Target) { writeAddresses(w, t.LayerBases) },
		func(t *Target) bool { return t.LayerBases != nil }},
	{"planes", false,
		func(r reader, t *Target, _ *Limits) error { return parseCount(r, &t.Planes) },
		func(w writer, t *Target) { w.integer(int64(t.Planes)) },
		func(t *Target) bool { return t.Planes != 0 }},
	stride("plane_stride", func(t *Target) *int64 { return &t.PlaneStride }),
	{"blocks_per_chunk", false,
		func(r reader, t *Target, _ *Limits) error { return parseCount(r, &t.BlocksPerChunk) },
		func(w writer, t *Target) { w.integer(int64(t.BlocksPerChunk)) },
		func(t *Target) bool { return t.BlocksPerChunk != 0 }},
	stride("block_stride", func(t *Target) *int64 { return &t.BlockStride }),
	{"slots", false,
		// The body's own limit bounds how many there are.
		func(r reader, t *Target, _ *Limits) (err error) { t.Slots, err = addresses(r, maxCount); return err },
		func(w writer, t *Target) { writeAddresses(w, t.Slots) },
		func(t *Target) bool { return t.Slots != nil }},
}...)

func (t *Target) window() window { return window{&t.Handle, &t.Offset, &t.Length, &t.Tag} }

// stride is a row for an optional positive number of bytes.
func stride(name string, of func(t *Target) *int64) field[Target] {
	return field[Target]{name, false,
		func(r reader, t *Target, _ *Limits) (err error) { *of(t), err = positive(r); return err },
		func(w writer, t *Target) { w.integer(*of(t)) },
		func(t *Target) bool { return *of(t) != 0 }}
}

func parseTarget(r reader, d *Descriptor, lim *Limits) error {
	if err := want(r, kindObject); err != nil {
		return err
	}
	d.Target = new(Target)
	return parseObject(r, *lim, targetPrefix, targetFields, d.Target, func() error { return nil })
}

func writeTarget(w writer, d *Descriptor) { writeObject(w, targetFields, d.Target) }

func addresses(r reader, most int) ([]int64, error) {
	if err := want(r, kindArray); err != nil {
		return nil, err
	}
	out := []int64{}
	err := r.array(func() error {
		if len(out) == most {
			return valueErrorf("over the limit of %d entries", most)
		}
		n, err := notNegative(r)
		out = append(out, n)
		return err
	})
	return out, err
}

func writeAddresses(w writer, a []int64) {
	w.array(len(a), func(i int) { w.integer(a[i]) })
}

// complete checks t against d, whose own fields have been checked and
// completed, and fills in the defaults but that of LayerStride, which depends
// on the chunks that are found.
func (t *Target) complete(d *Descriptor) error {
	if err := t.window().check(); err != nil {
		return err
	}
	if t.LayerBases == nil {
		return t.completeSimple(d)
	}
	return t.completePaged(d)
}

func (t *Target) bad(name, format string, args ...any) error {
	return &FieldError{targetPrefix + name, fmt.Sprintf(format, args...)}
}

func (t *Target) completeSimple(d *Descriptor) error {
	switch {
	case t.Planes != 0:
		return t.bad("planes", "needs layer_bases")
	case t.PlaneStride != 0:
		return t.bad("plane_stride", "needs layer_bases")
	case t.BlocksPerChunk != 0:
		return t.bad("blocks_per_chunk", "needs layer_bases")
	case t.BlockStride != 0:
		return t.bad("block_stride", "needs layer_bases")
	case t.Slots != nil:
		return t.bad("slots", "needs layer_bases")
	case t.LayerStride < 0:
		return t.bad("layer_stride", "must be positive, not %d", t.LayerStride)
	case t.ChunkStride < 0:
		return t.bad("chunk_stride", "must be positive, not %d", t.ChunkStride)
	}
	n, c, s := int64(len(d.ChunkKeys)), int64(d.LayerCount), d.PerLayerChunkBytes
	if t.ChunkStride == 0 {
		t.ChunkStride = s
	}
	cs, ls := t.ChunkStride, t.LayerStride
	defaulted := ls == 0
	if defaulted {
		ls = n * s // within int64: n*L*S is
	}
	lastChunk, ok1 := mul(n-1, cs)
	lastLayer, ok2 := mul(c-1, ls)
	end, ok3 := add(lastChunk, lastLayer, s)
	switch {
	case n > 1 && cs < s:
		return t.bad("chunk_stride", "%d is less than per_layer_chunk_bytes, %d: slices overlap", cs, s)
	case !ok1:
		return t.bad("chunk_stride", "chunk_stride * chunks overflows")
	case !ok2 || !ok3:
		return t.bad("layer_stride", "layer_stride * layers overflows")
	}
	// Layers lie one after the other, or inside what one chunk has to itself.
	inLayers := c == 1 || ls-s >= lastChunk
	inChunks := ls >= s && (n == 1 || cs-s >= lastLayer)
	switch {
	case c > 1 && !inLayers && !inChunks && defaulted:
		return t.bad("chunk_stride", "with the default layer_stride, layers overlap")
	case c > 1 && !inLayers && !inChunks:
		return t.bad("layer_stride", "layers overlap")
	case end > t.Length:
		return t.bad("length", "%d bytes do not hold the %d that the delivery spans", t.Length, end)
	}
	return nil
}

func (t *Target) completePaged(d *Descriptor) error {
	n, s := len(d.ChunkKeys), d.PerLayerChunkBytes
	if t.Planes == 0 {
		t.Planes = 2
	}
	if t.BlocksPerChunk == 0 {
		t.BlocksPerChunk = 1
	}
	switch {
	case t.LayerStride != 0:
		return t.bad("layer_stride", "does not go with layer_bases")
	case t.ChunkStride != 0:
		return t.bad("chunk_stride", "does not go with layer_bases")
	case len(t.LayerBases) != d.NumLayers:
		return t.bad("layer_bases", "has %d entries, num_layers is %d", len(t.LayerBases), d.NumLayers)
	case t.Planes < 0 || t.Planes > 2:
		return t.bad("planes", "must be 1 or 2, not %d", t.Planes)
	case t.PlaneStride < 0 || t.Planes == 2 && t.PlaneStride == 0:
		return t.bad("plane_stride", "must be positive with two planes")
	case t.BlocksPerChunk < 0:
		return t.bad("blocks_per_chunk", "must be positive, not %d", t.BlocksPerChunk)
	case s%int64(t.Planes) != 0:
		return t.bad("planes", "%d does not divide per_layer_chunk_bytes, %d", t.Planes, s)
	case s/int64(t.Planes)%int64(t.BlocksPerChunk) != 0:
		return t.bad("blocks_per_chunk", "%d does not divide a plane of %d bytes", t.BlocksPerChunk, s/int64(t.Planes))
	case len(t.Slots)%t.BlocksPerChunk != 0 || len(t.Slots)/t.BlocksPerChunk != n:
		return t.bad("slots", "has %d entries, must have %d for each of %d chunks", len(t.Slots), t.BlocksPerChunk, n)
	}
	block := t.BlockBytes(s)
	if t.BlockStride == 0 {
		t.BlockStride = block
	}
	if t.BlockStride < block {
		return t.bad("block_stride", "%d is less than a block's %d bytes: blocks overlap", t.BlockStride, block)
	}
	low, high, err := t.slotRange()
	if err != nil {
		return err
	}
	return t.checkLattices(d, block, low, high)
}

// slotRange checks the slots among themselves.
func (t *Target) slotRange() (low, high int64, err error) {
	sorted := slices.Clone(t.Slots)
	slices.Sort(sorted)
	for i, s := range sorted {
		if s < 0 {
			return 0, 0, t.bad("slots", "must not be negative: %d", s)
		}
		if i > 0 && s == sorted[i-1] {
			return 0, 0, t.bad("slots", "slot %d is given twice", s)
		}
	}
	return sorted[0], sorted[len(sorted)-1], nil
}

// lattice is where the blocks of one plane of one layer lie: at start, and
// from there in steps of block_stride.
type lattice struct{ start, end int64 }

// checkLattices checks that every block lies in the window, and that no two
// share a byte. Planes and layers that reach into each other are allowed if
// their places within block_stride differ (K and V side by side in a block);
// those that would depend on which slots are taken are refused.
func (t *Target) checkLattices(d *Descriptor, block, low, high int64) error {
	first, ok := mul(low, t.BlockStride)
	last, ok2 := mul(high, t.BlockStride)
	if !ok || !ok2 {
		return t.bad("slots", "slot %d * block_stride overflows", high)
	}
	all := make([]lattice, 0, d.LayerCount*t.Planes)
	for l := d.FirstLayer; l < d.FirstLayer+d.LayerCount; l++ {
		base := t.LayerBases[l]
		if base < 0 {
			return t.bad("layer_bases", "must not be negative: %d", base)
		}
		for p := range t.Planes {
			at, ok := add(base, int64(p)*t.PlaneStride) // p is 0 or 1
			if !ok {
				return t.bad("plane_stride", "layer_bases + plane_stride overflows")
			}
			start, ok1 := add(at, first)
			end, ok2 := add(at, last, block)
			if !ok1 || !ok2 {
				return t.bad("slots", "the address of slot %d overflows", high)
			}
			switch {
			case start < t.Offset && at < t.Offset:
				return t.bad("layer_bases", "layer %d: slot %d lies before the window", l, low)
			case start < t.Offset:
				return t.bad("slots", "slot %d lies before the window", low)
			case end > t.Offset+t.Length && at > t.Offset+t.Length-block:
				return t.bad("layer_bases", "layer %d, plane %d: lies past the window", l, p)
			case end > t.Offset+t.Length:
				return t.bad("slots", "layer %d, plane %d: slot %d lies past the window", l, p, high)
			}
			all = append(all, lattice{start, end})
		}
	}
	slices.SortFunc(all, func(a, b lattice) int { return cmp.Compare(a.start, b.start) })
	for i := 0; i < len(all); {
		j, end := i+1, all[i].end
		for j < len(all) && all[j].start < end {
			end = max(end, all[j].end)
			j++
		}
		if j-i > 1 && !apart(all[i:j], t.BlockStride, block) {
			return t.bad("layer_bases", "planes or layers overlap")
		}
		i = j
	}
	return nil
}

// apart reports whether blocks of the lattices, each somewhere on its own,
// can never share a byte: their places within the stride do not meet.
func apart(group []lattice, stride, block int64) bool {
	at := make([]int64, len(group))
	for i, g := range group {
		at[i] = g.start % stride
	}
	slices.Sort(at)
	for i, a := range at {
		next := at[0] + stride // no overflow matters: compared as a difference
		if i+1 < len(at) {
			next = at[i+1]
		}
		if uint64(next)-uint64(a) < uint64(block) {
			return false
		}
	}
	return true
}

// mul multiplies numbers that are not negative. False: over int64.
func mul(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}

// add adds numbers that are not negative. False: over int64.
func add(a int64, more ...int64) (int64, bool) {
	for _, b := range more {
		if a > math.MaxInt64-b {
			return 0, false
		}
		a += b
	}
	return a, true
}
