package storage

import (
	"context"
	"sync"
)

// IntoReader is an optional ability of an Object: to read into memory that
// another process can write to at the same time, as a client's is that it
// shares with the server.
//
// What lies in such memory proves nothing about the store. An implementation
// neither reports a block as corrupt nor remembers it as verified for what it
// found there; it looks again in memory of its own first.
type IntoReader interface {
	// ReadInto is ReadAt to several places: it fills dst[0], then dst[1] and so
	// on with the bytes from off on, or returns an error, after which their
	// content is undefined. Each block is verified once, however many places
	// its bytes go to. It keeps nothing of dst and does not change it.
	ReadInto(ctx context.Context, dst [][]byte, off int64, hint ReadHint) error
}

// intoBytes is how much is read on the way to a client's memory at a time: whole
// blocks that stay in the core's cache until they are copied.
const intoBytes = 4 * BlockSize

var intoBuffers = sync.Pool{New: func() any { return new([intoBytes]byte) }}

// ReadInto reads through o's IntoReader, or by way of a buffer if o can only
// read into memory that nobody else writes to.
func ReadInto(ctx context.Context, o Object, dst [][]byte, off int64, hint ReadHint) error {
	if r, ok := o.(IntoReader); ok {
		return r.ReadInto(ctx, dst, off, hint)
	}
	left := 0
	for _, p := range dst {
		left += len(p)
	}
	buf := intoBuffers.Get().(*[intoBytes]byte)
	defer intoBuffers.Put(buf)
	i, at := 0, 0 // the place to be filled next
	for left > 0 {
		p := buf[:min(intoBytes-int(off%BlockSize), left)] // to the end of a block
		if err := o.ReadAt(ctx, p, off, hint); err != nil {
			return err
		}
		left, off = left-len(p), off+int64(len(p))
		for len(p) > 0 {
			n := copy(dst[i][at:], p)
			if p, at = p[n:], at+n; at == len(dst[i]) {
				i, at = i+1, 0
			}
		}
	}
	return nil
}
