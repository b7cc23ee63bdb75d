package object

import (
	"context"

	"github.com/objcached/objcached/storage"
)

// ReadInto implements storage.IntoReader. Runs of whole blocks that go to one
// place are read straight into it; a block that goes to several places, or of
// which only a part is wanted, goes through a buffer.
func (o *object) ReadInto(ctx context.Context, dst [][]byte, off int64, hint storage.ReadHint) error {
	if o.closed.Load() {
		return storage.ErrClosed
	}
	left := int64(0)
	for _, p := range dst {
		left += int64(len(p))
	}
	if off < 0 || off > o.rec.size || left > o.rec.size-off {
		return storage.ErrInvalidRange
	}
	at := 0 // bytes of dst[0] that are filled
	for left > 0 {
		for len(dst[0]) == at {
			dst, at = dst[1:], 0
		}
		p := dst[0][at:]
		if n := o.wholeBlocks(off, int64(len(p))); n > 0 {
			r := o.reader(hint)
			r.foreign = true
			if err := o.readRange(ctx, r, p[:n], off); err != nil {
				return err
			}
			at, off, left = at+int(n), off+n, left-n
			continue
		}
		n := min(storage.BlockSize-off%storage.BlockSize, left)
		buf := bounceBuffers.Get().(*[]byte)
		err := o.readRange(ctx, o.reader(hint), (*buf)[:n], off)
		for q := (*buf)[:n]; err == nil && len(q) > 0; {
			if len(dst[0]) == at {
				dst, at = dst[1:], 0
			}
			k := copy(dst[0][at:], q)
			q, at = q[k:], at+k
		}
		bounceBuffers.Put(buf)
		if err != nil {
			return err
		}
		off, left = off+n, left-n
	}
	return nil
}

// wholeBlocks is how many of the n bytes at off form whole blocks from off on.
func (o *object) wholeBlocks(off, n int64) int64 {
	switch {
	case off%storage.BlockSize != 0:
		return 0
	case off+n == o.rec.size:
		return n
	}
	return n &^ (storage.BlockSize - 1)
}
