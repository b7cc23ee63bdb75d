//go:build fabric && cgo

package fabric

import (
	"context"

	"github.com/objcached/objcached/transport"
)

// Source is one transfer out of a client's memory: a transport.Source whose
// offsets are counted from the start of its window. Bytes go through staging
// memory, by RDMA read.
type Source struct{ t *Transfer }

var _ transport.Source = (*Source)(nil)

// OpenSource begins a transfer; it is Open's twin in all else.
func (r *Remote) OpenSource(ctx context.Context, w Window) (*Source, error) {
	t, err := r.Open(ctx, w)
	if err != nil {
		return nil, err
	}
	return &Source{t}, nil
}

// Close ends the transfer and waits until no read is under way, as
// Transfer.Close does. The client is told.
func (s *Source) Close() error { return s.t.Close() }

// readAhead is how many reads of one ReadAt are under way at a time.
const readAhead = 4

// ReadAt reads bytes of the window, which the client may be changing. It may
// wait for staging memory.
func (s *Source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.t.win.Length || int64(len(p)) > s.t.win.Length-off {
		return 0, errRange
	}
	n := 0
	for n < len(p) {
		k, err := s.some(p[n:], off+int64(n))
		if err != nil {
			return 0, err
		}
		n += k
	}
	return n, nil
}

// some reads as many bytes as there is staging memory for, up to readAhead
// buffers. It waits for the first of them only: one who waits holds none.
func (s *Source) some(p []byte, off int64) (n int, err error) {
	t, d := s.t, s.t.d
	var bufs [readAhead]*buffer
	done := make(chan error, readAhead)
	used := 0
	d.mu.Lock()
	for ; used < readAhead && n < len(p); used++ {
		var b *buffer
		if used == 0 {
			if b, err = t.take(0); err != nil {
				d.mu.Unlock()
				return 0, err
			}
		} else {
			if t.held >= d.cfg.TransferBuffers || d.pool.waiting > 0 {
				break
			}
			if b = d.pool.get(0); b == nil {
				break
			}
			t.held++
		}
		b.filled = min(len(b.mem), len(p)-n)
		t.r.push(&write{buf: b, hi: b.filled, off: t.win.Offset + off + int64(n), read: true, t: t, done: done})
		bufs[used] = b
		n += b.filled
	}
	d.advance()
	d.mu.Unlock()
	for range used {
		if e := <-done; e != nil {
			err = e
		}
	}
	for _, b := range bufs[:used] {
		p = p[copy(p, b.mem[:b.filled]):]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range bufs[:used] {
		d.release(b, t)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
