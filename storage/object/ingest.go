package object

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
)

// writeSize is how much of a body is read before it is written: whole blocks,
// large enough for a device, small enough to still be in the cache when it is
// hashed and written.
const writeSize = 1 << 20

// alignedBuffer returns n bytes that start on a multiple of blob.Align, as
// direct I/O wants them.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+blob.Align)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (blob.Align - 1))
	return b[off : off+n : off+n]
}

var writeBuffers = sync.Pool{New: func() any { b := alignedBuffer(writeSize); return &b }}

// ingest reads exactly size bytes and io.EOF from body into rec, which gets an
// id, and returns their MD5 if wantMD5. Bytes above the inline limit are in
// sealed extents then. On error nothing stays reserved.
func (s *Store) ingest(ctx context.Context, body io.Reader, size int64, wantMD5 bool, rec *record) (sum [md5.Size]byte, err error) {
	if size < 0 || size > maxObject {
		return sum, fmt.Errorf("%w: size %d", storage.ErrInvalidRequest, size)
	}
	if rec.id, err = s.newID(); err != nil {
		return sum, err
	}
	rec.size = size
	if size <= storage.InlineLimit {
		rec.kind = kindInline
		rec.inline = make([]byte, size)
		if err := readBody(ctx, body, rec.inline); err != nil {
			return sum, err
		}
		if wantMD5 {
			sum = md5.Sum(rec.inline)
		}
		return sum, expectEOF(body)
	}

	rec.kind = kindExtents
	if rec.exts, err = s.reserve(ctx, size); err != nil {
		return sum, err
	}
	defer func() {
		if err != nil {
			s.discard(ctx, rec)
		}
	}()
	rec.crcs = make([]byte, 0, 4*blocksOf(size))
	if wantMD5 && size > writeSize {
		sum, err = s.writeBeside(ctx, body, rec)
	} else {
		sum, err = s.writeThrough(ctx, body, wantMD5, rec)
	}
	if err != nil {
		return sum, err
	}
	if err = expectEOF(body); err != nil {
		return sum, err
	}
	return sum, toStorage(s.blob.Seal(ctx, rec.exts))
}

// writeThrough does everything in turn.
func (s *Store) writeThrough(ctx context.Context, body io.Reader, wantMD5 bool, rec *record) (sum [md5.Size]byte, err error) {
	buf := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(buf)
	h := md5.New()
	for off := int64(0); off < rec.size; {
		p := (*buf)[:min(writeSize, rec.size-off)]
		if err := readBody(ctx, body, p); err != nil {
			return sum, err
		}
		if wantMD5 {
			h.Write(p)
		}
		if err := s.writeBlocks(ctx, rec, p, off); err != nil {
			return sum, err
		}
		off += int64(len(p))
	}
	h.Sum(sum[:0])
	return sum, nil
}

// writeBeside leaves the MD5, the slowest of the sums, to a goroutine of its
// own, which works on one buffer while the next is filled and written.
func (s *Store) writeBeside(ctx context.Context, body io.Reader, rec *record) (sum [md5.Size]byte, err error) {
	full := make(chan []byte)
	free := make(chan *[]byte, 2)
	for range cap(free) {
		free <- writeBuffers.Get().(*[]byte)
	}
	var hashing sync.WaitGroup
	hashing.Go(func() {
		h := md5.New()
		for p := range full {
			h.Write(p)
			whole := p[:writeSize]
			free <- &whole
		}
		h.Sum(sum[:0])
	})
	defer func() {
		close(full)
		hashing.Wait()
		for range cap(free) {
			writeBuffers.Put(<-free)
		}
	}()
	for off := int64(0); off < rec.size; {
		buf := <-free
		p := (*buf)[:min(writeSize, rec.size-off)]
		if err := readBody(ctx, body, p); err != nil {
			free <- buf
			return sum, err
		}
		full <- p
		// Reading p while the goroutine does; it is not filled anew before the
		// loop comes round, by when writeBlocks has returned.
		if err := s.writeBlocks(ctx, rec, p, off); err != nil {
			return sum, err
		}
		off += int64(len(p))
	}
	return sum, nil
}

// writeBlocks appends p's block sums to rec and writes p at off of rec.
func (s *Store) writeBlocks(ctx context.Context, rec *record, p []byte, off int64) error {
	rec.crcs = checksum.AppendTable(rec.crcs, p, storage.BlockSize)
	for _, e := range rec.exts {
		if len(p) == 0 {
			break
		}
		if off >= e.Len {
			off -= e.Len
			continue
		}
		n := min(int64(len(p)), e.Len-off)
		if err := s.blob.WriteAt(ctx, e, p[:n], off); err != nil {
			return toStorage(err)
		}
		p, off = p[n:], 0
	}
	return nil
}

// reserve waits for the free list and, when there is no space, for garbage on
// its way to become some.
func (s *Store) reserve(ctx context.Context, size int64) ([]blob.Extent, error) {
	if err := s.WaitRestored(ctx); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		exts, err := s.blob.Reserve(ctx, size)
		if err == nil {
			return exts, nil
		}
		if !errors.Is(err, blob.ErrNoSpace) || try == 3 || !s.reap.flush(ctx) {
			return nil, toStorage(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// discard gives back the extents of a record that was not committed.
func (s *Store) discard(ctx context.Context, rec *record) {
	s.reap.free(context.WithoutCancel(ctx), rec.exts)
	rec.exts = nil
}

// maxEmptyReads is how many reads of a body may give nothing before it counts
// as broken.
const maxEmptyReads = 100

// readBody fills p. A body that ends is ErrIncompleteBody.
func readBody(ctx context.Context, body io.Reader, p []byte) error {
	empty := 0
	for len(p) > 0 {
		n, err := body.Read(p)
		if n < 0 || n > len(p) {
			return errors.New("object: body returned an impossible count")
		}
		p = p[n:]
		if len(p) == 0 && (err == nil || err == io.EOF) {
			break // an EOF that came along will come again
		}
		if err == io.EOF {
			return fmt.Errorf("%w: %d bytes are missing", storage.ErrIncompleteBody, len(p))
		}
		if err != nil {
			return err
		}
		if n == 0 {
			if empty++; empty == maxEmptyReads {
				return io.ErrNoProgress
			}
			continue
		}
		empty = 0
	}
	return ctx.Err()
}

// expectEOF reads the end of a body: what it checks as a whole surfaces there.
func expectEOF(body io.Reader) error {
	var one [1]byte
	for range maxEmptyReads {
		n, err := body.Read(one[:])
		if n > 0 {
			return fmt.Errorf("%w: it is longer", storage.ErrIncompleteBody)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
