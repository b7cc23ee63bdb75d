package object

import (
	"context"
	"fmt"
	"sync"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
)

// readSize is the most that is read before it is verified: few enough bytes
// that the CRC finds them in the cache, enough that the call costs nothing.
const readSize = 1 << 20

var bounceBuffers = sync.Pool{New: func() any { b := alignedBuffer(storage.BlockSize); return &b }}

// ReadAt implements storage.Object.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64, hint storage.ReadHint) error {
	if o.closed.Load() {
		return storage.ErrClosed
	}
	if off < 0 || off > o.rec.size || int64(len(p)) > o.rec.size-off {
		return storage.ErrInvalidRange
	}
	if len(p) == 0 {
		return nil
	}
	return o.readRange(ctx, o.reader(hint), p, off)
}

// reader makes a reader of o; its record changes where o has segments.
func (o *object) reader(hint storage.ReadHint) reader {
	r := reader{s: o.s, bucket: o.bucket.Name, key: o.key, rec: &o.rec, seen: o.seen, cold: hint.Class == storage.ClassScrub}
	r.mode = o.s.o.Verify
	if r.cold {
		r.mode = storage.VerifyAlways
	}
	return r
}

// readRange fills p from off, which must lie in the object.
func (o *object) readRange(ctx context.Context, r reader, p []byte, off int64) error {
	if o.rec.kind == kindSegments {
		return o.readSegments(ctx, r, p, off)
	}
	return r.read(ctx, p, off)
}

// reader reads one record of kind inline or extents.
type reader struct {
	s           *Store
	bucket, key string
	rec         *record
	base        int64 // where the record starts in its object
	seen        *bitmap
	mode        storage.VerifyMode
	cold        bool
	foreign     bool // others may write to the memory that is read into
}

// read fills p from off, which must lie in the record.
func (r *reader) read(ctx context.Context, p []byte, off int64) error {
	if r.rec.kind == kindInline {
		copy(p, r.rec.inline[off:]) // verified with the record
		return nil
	}
	if r.mode == storage.VerifyOff {
		return r.raw(ctx, p, off)
	}
	for len(p) > 0 {
		block := off / storage.BlockSize
		start := block * storage.BlockSize
		end := min(start+storage.BlockSize, r.rec.size)
		var n int64
		var err error
		switch {
		case off == start && int64(len(p)) >= end-start:
			n, err = r.whole(ctx, p, block)
		default:
			n = min(end-off, int64(len(p)))
			err = r.partial(ctx, p[:n], off, start, end)
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// whole reads as many whole blocks as p has room for, up to readSize, straight
// into it and verifies them. block is the first. It returns the bytes read.
func (r *reader) whole(ctx context.Context, p []byte, block int64) (int64, error) {
	off := block * storage.BlockSize
	n := min(int64(len(p)), readSize, r.rec.size-off)
	if off+n < r.rec.size {
		n -= n % storage.BlockSize
	}
	if err := r.raw(ctx, p[:n], off); err != nil {
		return 0, err
	}
	for i := int64(0); i < n; i += storage.BlockSize {
		end := min(i+storage.BlockSize, n)
		var err error
		if r.foreign {
			err = r.verifyForeign(ctx, p[i:end], off+i)
		} else {
			err = r.verify(ctx, p[i:end], (off+i)/storage.BlockSize)
		}
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// verifyForeign checks a whole block in memory that another may write to. What
// is wrong there is read again in memory of our own, which decides; what is
// right is not remembered, for it may have been put right.
func (r *reader) verifyForeign(ctx context.Context, p []byte, start int64) error {
	block := start / storage.BlockSize
	if r.mode == storage.VerifyFirstRead && r.seen.has(block) || checksum.Block(p) == checksum.TableAt(r.rec.crcs, block) {
		return nil
	}
	return r.partial(ctx, p, start, start, start+int64(len(p)))
}

// partial reads a part of the block [start, end) by way of a bounce buffer.
func (r *reader) partial(ctx context.Context, p []byte, off, start, end int64) error {
	block := start / storage.BlockSize
	if r.mode == storage.VerifyFirstRead && r.seen.has(block) {
		return r.raw(ctx, p, off)
	}
	buf := bounceBuffers.Get().(*[]byte)
	defer bounceBuffers.Put(buf)
	whole := (*buf)[:end-start]
	if err := r.raw(ctx, whole, start); err != nil {
		return err
	}
	if err := r.verify(ctx, whole, block); err != nil {
		return err
	}
	copy(p, whole[off-start:])
	return nil
}

// verify checks one block's bytes.
func (r *reader) verify(ctx context.Context, p []byte, block int64) error {
	if r.mode == storage.VerifyFirstRead && r.seen.has(block) {
		return nil
	}
	if checksum.Block(p) != checksum.TableAt(r.rec.crcs, block) {
		return r.s.corrupt(ctx, r.bucket, r.key, r.base/storage.BlockSize+block)
	}
	if r.seen != nil {
		r.seen.set(block)
	}
	return nil
}

// raw fills p from off without verifying. Runs that are contiguous in one
// extent are one read.
func (r *reader) raw(ctx context.Context, p []byte, off int64) error {
	for _, e := range r.rec.exts {
		if off >= e.Len {
			off -= e.Len
			continue
		}
		n := min(int64(len(p)), e.Len-off)
		if err := r.s.blob.ReadAt(ctx, e, p[:n], off, r.cold); err != nil {
			return r.failed(err, e)
		}
		if p, off = p[n:], 0; len(p) == 0 {
			return nil
		}
	}
	return nil
}

func (r *reader) failed(err error, e blob.Extent) error {
	return fmt.Errorf("bucket %q: key %q: extent %d:%d: %w", r.bucket, r.key, e.Volume, e.Offset, toStorage(err))
}
