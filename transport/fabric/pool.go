//go:build fabric && cgo

package fabric

// pool is the staging memory that nobody holds. Its user holds the domain's mutex.
type pool struct {
	free    []*buffer
	waiting int // calls that wait for a buffer
}

// buffer is a piece of registered memory. A transfer fills it from the start; a
// run of bytes that lie together in the client's memory too is one write.
//
//	0 ........ start ........ filled ........ filled+lent ...... len(mem)
//	written    to be written  grabbed         not used yet
type buffer struct {
	mem    []byte
	off    int64 // where mem[start] goes, from the start of the window
	start  int
	filled int
	lent   int
	refs   int // writes out of it that are not completed, and 1 while a transfer fills it
}

func (p *pool) init(mem []byte, size int) {
	for ; len(mem) >= size; mem = mem[size:] {
		p.free = append(p.free, &buffer{mem: mem[:size:size]})
	}
}

// get takes a free buffer, the one used last because it is in the core's cache.
func (p *pool) get(off int64) *buffer {
	n := len(p.free)
	if n == 0 {
		return nil
	}
	b := p.free[n-1]
	p.free = p.free[:n-1]
	*b = buffer{mem: b.mem, off: off, refs: 1}
	return b
}

// end is the offset in the window after what is filled.
func (b *buffer) end() int64 { return b.off + int64(b.filled-b.start) }
