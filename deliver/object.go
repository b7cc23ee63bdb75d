package deliver

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport"
)

// stagedBytes is what is staged at a time on the path S3RDMA Buffer: an object
// of up to so many bytes is in the server's memory whole before a byte of it
// moves on. It is a multiple of the block size.
const stagedBytes = 4 << 20

// staging is one staging buffer.
type staging [stagedBytes]byte

var stagings = sync.Pool{New: func() any { return new(staging) }}

// stage takes a staging buffer; unstage gives it back. As with all limits here
// nothing waits: a request holds pins and a place in a client's memory.
func (d *Deliverer) stage() (*staging, error) {
	if d.staged.Add(1) > int64(d.cfg.Stages) {
		d.staged.Add(-1)
		const limit = "objects staged at one time"
		d.observe.Refused(limit)
		return nil, &descriptor.BusyError{Limit: limit}
	}
	return stagings.Get().(*staging), nil
}

func (d *Deliverer) unstage(s *staging) {
	if s != nil {
		stagings.Put(s)
		d.staged.Add(-1)
	}
}

// WriteObject writes the n bytes at off of an opened object to the sink's first
// n bytes, announces layer 0 when all are there, and closes the sink, which
// must take any order (ObjectCache §4.1, S3RDMA Direct and S3RDMA Buffer).
//
// Direct, several workers read straight into the sink's memory: after an error
// it may hold anything, bytes that failed their CRC too. By way of a buffer one
// worker copies, and what lands is verified.
func (d *Deliverer) WriteObject(ctx context.Context, obj storage.Object, off, n int64, path descriptor.Path, sink transport.Sink) error {
	defer func() { _ = sink.Close() }() // releases memory; all is announced or broken by then
	start := d.cfg.Now()
	w := objectWriter{d: d, obj: obj, off: off, end: off + n, sink: sink}
	var err error
	switch {
	case sink.Ordered():
		err = errNoTarget
	case path == descriptor.Buffer:
		err = w.staged(ctx)
	default:
		err = w.direct(ctx)
	}
	if err == nil {
		err = sink.LayerReady(0)
	}
	if e := sink.Close(); err == nil {
		err = e // bytes under way have not arrived
	}
	r := Report{Mode: descriptor.Mode(path), Err: err, Total: d.cfg.Now().Sub(start)}
	if err == nil {
		r.Bytes = n
	}
	d.observe.Delivered(r)
	return err
}

// objectWriter is one object on its way.
type objectWriter struct {
	d        *Deliverer
	obj      storage.Object
	off, end int64 // of the object
	sink     transport.Sink
}

// direct reads the object in units that end on block boundaries.
func (w *objectWriter) direct(ctx context.Context) error {
	first := w.off / itemBytes
	units := (w.end+itemBytes-1)/itemBytes - first
	var next atomic.Int64
	work := func(ctx context.Context) error {
		var one [1][]byte // of this worker, for all its reads
		for i := next.Add(1) - 1; i < units; i = next.Add(1) - 1 {
			lo := max(w.off, (first+i)*itemBytes)
			if err := w.read(ctx, &one, lo, min(w.end, (first+i+1)*itemBytes)); err != nil {
				return err
			}
		}
		return nil
	}
	workers := min(int64(w.d.cfg.Workers), units)
	if workers <= 1 {
		return work(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error { return work(ctx) })
	}
	return g.Wait()
}

// read reads the object's bytes [lo, hi) straight to their place.
func (w *objectWriter) read(ctx context.Context, one *[1][]byte, lo, hi int64) error {
	for lo < hi {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, err := w.sink.Grab(lo-w.off, int(hi-lo))
		if err != nil {
			return err
		}
		p = p[:pieceLen(lo, len(p), hi-lo)]
		one[0] = p
		if err := storage.ReadInto(ctx, w.obj, one[:], lo, storage.ReadHint{Class: storage.ClassPlain}); err != nil {
			return err
		}
		if err := w.sink.Commit(lo-w.off, len(p)); err != nil {
			return err
		}
		lo += int64(len(p))
	}
	return nil
}

// staged fills a buffer and copies it on, until all is done.
func (w *objectWriter) staged(ctx context.Context) error {
	buf, err := w.d.stage()
	if err != nil {
		return err
	}
	defer w.d.unstage(buf)
	for at := w.off; at < w.end; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := buf[:min(stagedBytes-at%storage.BlockSize, w.end-at)]
		if err := w.obj.ReadAt(ctx, p, at, storage.ReadHint{Class: storage.ClassPlain}); err != nil {
			return err
		}
		for len(p) > 0 {
			q, err := w.sink.Grab(at-w.off, len(p))
			if err != nil {
				return err
			}
			n := copy(q, p)
			if err := w.sink.Commit(at-w.off, n); err != nil {
				return err
			}
			p, at = p[n:], at+int64(n)
		}
	}
	return nil
}

// ReadObject gives the n bytes of a client's memory as a body to store, by the
// path of a PUT. Each byte is copied out of that memory once, so that what is
// summed is what is stored. Read fails when ctx ends. The caller closes it; src
// stays the caller's.
func (d *Deliverer) ReadObject(ctx context.Context, src transport.Source, n int64, path descriptor.Path) (io.ReadCloser, error) {
	r := &objectReader{d: d, ctx: ctx, src: src, n: n}
	if path == descriptor.Buffer {
		var err error
		if r.buf, err = d.stage(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// objectReader is the body.
type objectReader struct {
	d     *Deliverer
	ctx   context.Context
	src   transport.Source
	at, n int64    // bytes taken of the window, and of all
	buf   *staging // nil: direct
	rest  []byte   // of buf, not yet read
}

var errBodyClosed = errors.New("deliver: the body is closed")

func (r *objectReader) Read(p []byte) (int, error) {
	if r.d == nil {
		return 0, errBodyClosed
	}
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	if len(r.rest) == 0 {
		if r.at == r.n {
			return 0, io.EOF
		}
		to := p
		if r.buf != nil {
			to = r.buf[:]
		}
		to = to[:min(int64(len(to)), r.n-r.at)]
		if _, err := r.src.ReadAt(to, r.at); err != nil {
			return 0, err
		}
		r.at += int64(len(to))
		if r.buf == nil {
			return len(to), nil
		}
		r.rest = to
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close gives the buffer back.
func (r *objectReader) Close() error {
	if r.d != nil {
		r.d.unstage(r.buf)
		*r = objectReader{}
	}
	return nil
}
