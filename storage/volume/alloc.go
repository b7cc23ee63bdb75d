package volume

import (
	"fmt"

	"github.com/objcached/objcached/storage/blob"
)

// allocator hands out runs of blocks. It is not safe for concurrent use.
//
// Policy: next fit. A search starts where the last one ended and goes round
// once, so that what is written together (the chunks of a prefix, one after
// another) lies together, also in a store full of holes, where first fit would
// scatter it over the lowest ones. Space given back just before the cursor
// pulls the cursor back: an aborted write leaves no gap.
type allocator struct {
	spans  spans
	cursor int64
}

// A volume has 2^blockBits block numbers, the last of which is never used.
const (
	blockBits  = 36 // 256 TiB
	maxVolume  = 1<<(63-blockBits) - 1
	maxVolSize = (1<<blockBits - 1) * blob.Align
)

func addr(volume uint32, off int64) int64 { return int64(volume)<<blockBits + off/blob.Align }

func place(a int64) (volume uint32, off int64) {
	return uint32(a >> blockBits), a & (1<<blockBits - 1) * blob.Align
}

// add puts a whole new volume of size bytes into the set.
func (a *allocator) add(volume uint32, size int64) {
	if n := size / blob.Align; n > 0 {
		a.spans.insert(addr(volume, 0), n)
	}
}

// drop takes every free block of a volume out of the set.
func (a *allocator) drop(volume uint32) {
	end := addr(volume+1, 0)
	for {
		start, n, ok := a.spans.first(addr(volume, 0))
		if !ok || start >= end {
			return
		}
		a.spans.carve(start, n)
	}
}

// take returns one run of n blocks.
func (a *allocator) take(n int64) (int64, bool) {
	at, ok := a.spans.fit(a.spans.root, a.cursor, n)
	if !ok {
		at, ok = a.spans.fit(a.spans.root, 0, n)
	}
	if !ok {
		return 0, false
	}
	a.spans.cutFront(at, n)
	a.cursor = at + n
	return at, true
}

type run struct{ at, n int64 }

// takePieces returns n blocks in the fewest runs there are: the longest first.
// It needs total >= n.
func (a *allocator) takePieces(n int64) []run {
	var out []run
	for n > 0 {
		c := min(n, a.spans.longest())
		at, ok := a.take(c)
		if !ok {
			panic(fmt.Sprintf("volume: %d blocks missing from a free list of %d", n, a.spans.total))
		}
		out = append(out, run{at, c})
		n -= c
	}
	return out
}

// give returns a run; false, with nothing changed, if part of it is free.
func (a *allocator) give(at, n int64) bool {
	from, ok := a.spans.insert(at, n)
	if ok && from < a.cursor && a.cursor <= at+n {
		a.cursor = from
	}
	return ok
}
