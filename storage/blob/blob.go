// Package blob defines the byte store under the S3 object model: extents of
// bytes that are reserved, written, sealed, read and freed. Embedded:
// preallocated volume files (storage/volume). Distributed: RADOS objects.
package blob

import (
	"context"
	"errors"
)

// Align is the alignment of extents: offset and reserved length are multiples
// of it, so that any extent can be read and written around the page cache.
const Align = 4 << 10

// Errors of a Store.
var (
	ErrNoSpace = errors.New("blob: no space")
	ErrClosed  = errors.New("blob: closed")
	ErrRange   = errors.New("blob: range outside the extent")
)

// Extent is a run of bytes in one volume. Len is the number of bytes in use;
// the space reserved is Len rounded up to Align.
type Extent struct {
	Volume uint32
	Offset int64
	Len    int64
}

// Store keeps extents. All methods may be called concurrently, on different
// extents or for reads of the same one.
type Store interface {
	// Reserve takes size bytes out of the free space, in one extent when one
	// is free, else in as few as possible. Reservations are not durable: what
	// is not Live at the next Restore is free again. ErrNoSpace if there is
	// not enough; the call may wait for Restore to have ended.
	Reserve(ctx context.Context, size int64) ([]Extent, error)
	// WriteAt writes p at off bytes into e; [off, off+len(p)) must lie in it.
	// p is not kept. No two writes of one extent may overlap.
	WriteAt(ctx context.Context, e Extent, p []byte, off int64) error
	// Seal returns when everything written to the extents before the call is
	// durable. Concurrent calls share flushes.
	Seal(ctx context.Context, exts []Extent) error
	// ReadAt fills p with the bytes at off of e, or fails. Any alignment.
	// cold asks that the read leave nothing behind in a cache.
	ReadAt(ctx context.Context, e Extent, p []byte, off int64, cold bool) error
	// Free gives extents back. The caller promises that the batch that dropped
	// the last reference is durable and that no reader is left; the store
	// detaches the pages before the space is used again. It also takes
	// reservations that were never committed.
	Free(ctx context.Context, exts []Extent) error
	// Restore tells a store just opened which extents are live; everything
	// else is free. Reads are served before it is called, Reserve waits for
	// it. Overlapping or out-of-range extents are an error.
	Restore(ctx context.Context, live func(yield func(Extent) error) error) error
	// Stats gives bytes: the capacity that can be reached, and what is reserved.
	Stats() Stats
	Close() error
}

// Stats are a store's sizes, in bytes.
type Stats struct {
	Capacity int64 // the most it may grow to
	Reserved int64 // in extents, rounded up to Align
	Volumes  int
}

// Roundup returns n rounded up to Align.
func Roundup(n int64) int64 { return (n + Align - 1) &^ (Align - 1) }
