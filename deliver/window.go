package deliver

import (
	"context"
	"sync"

	"github.com/objcached/objcached/agg"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
)

// source reads the ranges of one response body. Slices whose ends lie on block
// boundaries go straight into the caller's memory. Others share blocks with
// the slices of the layers before and after, and a block is verified whole or
// not at all: 1 KiB slices would cost 64 reads of every block. For those the
// source remembers the block that each chunk was read in last, as far as the
// memory granted goes; chunks beyond it are read plainly. (Memory that takes any
// order needs none of this: see crew.)
//
// It is for one goroutine.
type source struct {
	held   *limits
	objs   []storage.Object
	hint   storage.ReadHint
	size   int64 // of every object
	chunky bool

	slots    []slot // nil: all reads are plain
	perChunk int    // slots of a chunk
	width    int    // bytes of a slot
	slabs    []*slab
	perSlab  int   // slots in a slab
	granted  int64 // window bytes to give back
}

// slot remembers one block of one chunk.
type slot struct {
	chunk int32 // -1: nothing
	block int64
}

const slotBytes = 16

// slab holds the bytes of several slots, so that windows of any geometry come
// from one pool and their number does not grow with N.
type slab [1 << 20]byte

var slabs = sync.Pool{New: func() any { return new(slab) }}

func (y *Delivery) openSource() *source {
	s := &source{held: &y.d.held, objs: y.objs, size: y.desc.ChunkBytes(), chunky: y.mode == descriptor.Chunk,
		hint: storage.ReadHint{Class: storage.ClassLayer}}
	if s.chunky {
		s.hint.Class = storage.ClassChunk
	}
	s.openWindow(y.desc, &y.plan, y.d.cfg.WindowBytes)
	return s
}

// openWindow takes window memory if neighbouring layers share blocks.
func (s *source) openWindow(d *descriptor.Descriptor, p *agg.Plan, most int64) {
	run := d.PerLayerChunkBytes / int64(p.Halves())
	if run%storage.BlockSize == 0 || p.Layers() == 1 || len(s.objs) == 0 {
		return
	}
	if s.chunky && p.Halves() == 1 {
		return // a chunk is read front to back, split at block boundaries
	}
	s.perChunk = p.Halves()
	if s.size <= storage.BlockSize {
		s.perChunk = 1 // both halves lie in the one block
	}
	s.width = int(min(storage.BlockSize, s.size))
	n := len(s.objs) * s.perChunk
	if s.chunky {
		n = s.perChunk // one chunk after the other
	}
	each := int64(s.width) + slotBytes
	s.granted = s.held.takeWindow(min(int64(n)*each, max(0, most)))
	n = int(s.granted / each)
	if n == 0 {
		return
	}
	s.slots = make([]slot, n)
	for i := range s.slots {
		s.slots[i].chunk = -1
	}
	s.perSlab = len(slab{}) / s.width
	s.slabs = make([]*slab, (n+s.perSlab-1)/s.perSlab)
}

// close gives the window back.
func (s *source) close() {
	for _, b := range s.slabs {
		if b != nil {
			slabs.Put(b)
		}
	}
	s.slots, s.slabs = nil, nil
	s.held.giveWindow(s.granted)
	s.granted = 0
}

// read fills p with the bytes at off of the step's chunk.
func (s *source) read(ctx context.Context, step *agg.Read, p []byte, off int64) error {
	o := s.objs[step.Chunk]
	hint := s.hint
	hint.Layer = step.Layer
	if s.slots == nil {
		return o.ReadAt(ctx, p, off, hint)
	}
	i := min(step.Half, s.perChunk-1)
	if !s.chunky {
		i += step.Chunk * s.perChunk
	}
	if i >= len(s.slots) {
		return o.ReadAt(ctx, p, off, hint)
	}
	for len(p) > 0 {
		block := off / storage.BlockSize
		start := block * storage.BlockSize
		if n := s.whole(off, len(p)); n > 0 {
			if err := o.ReadAt(ctx, p[:n], off, hint); err != nil {
				return err
			}
			p, off = p[n:], off+int64(n)
			continue
		}
		data := s.data(i)[:min(storage.BlockSize, s.size-start)]
		if w := &s.slots[i]; w.chunk != int32(step.Chunk) || w.block != block {
			w.chunk = -1 // until the read has succeeded
			if err := o.ReadAt(ctx, data, start, hint); err != nil {
				return err
			}
			w.chunk, w.block = int32(step.Chunk), block
		}
		n := copy(p, data[off-start:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// whole is how many of the n bytes at off form whole blocks from off on.
func (s *source) whole(off int64, n int) int {
	switch {
	case off%storage.BlockSize != 0:
		return 0
	case off+int64(n) == s.size:
		return n
	}
	return n &^ (storage.BlockSize - 1)
}

// data is the memory of slot i.
func (s *source) data(i int) []byte {
	b := s.slabs[i/s.perSlab]
	if b == nil {
		b = slabs.Get().(*slab)
		s.slabs[i/s.perSlab] = b
	}
	from := i % s.perSlab * s.width
	return b[from : from+s.width : from+s.width]
}
