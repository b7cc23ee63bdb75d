//go:build fabric && cgo

package fabric

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/objcached/objcached/transport"
)

// Transfer is one delivery into a client's memory: a transport.Sink whose
// offsets are counted from the start of its window. It is not ordered.
//
// Grab lends staging memory. Bytes that are committed one after the other, and
// lie so in the client's memory too, are gathered and go out as one write of up
// to Config.WriteBytes; LayerReady sends what is left of them. Nothing waits for
// the client but Grab, when there is no staging memory, and Close.
type Transfer struct {
	d      *Domain
	r      *Remote
	win    Window
	slot   int
	gen    uint32
	cond   sync.Cond   // a buffer of its own is free, the last write completed, or it failed
	stop   func() bool // the watch over the context
	filled []*buffer   // being filled; the one committed to last is the last

	announced int    // layers
	epoch     uint32 // writes since then, if they are counted
	lent      int
	held      int // buffers, also those that only writes still use
	writes    int // not completed
	waiting   int
	err       error
	closed    bool
}

// Open begins a delivery. It ends with ctx: what has not been sent then is not
// sent, and calls fail with the context's cause. The errors are ErrWindow,
// ErrLayers, ErrTag and ErrGone. Whoever hands out tags takes care that each is
// used once.
func (r *Remote) Open(ctx context.Context, w Window) (*Transfer, error) {
	d := r.d
	d.mu.Lock()
	defer d.mu.Unlock()
	slot := int(w.Tag % Slots)
	switch {
	case r.err != nil:
		return nil, r.err
	case w.Offset < 0 || w.Length <= 0 || w.Offset > r.addr.Length || w.Length > r.addr.Length-w.Offset:
		return nil, ErrWindow
	case w.Layers <= 0 || w.Layers > MaxLayers:
		return nil, ErrLayers
	case w.Tag < 0 || w.Tag > MaxTag || r.busy[slot]:
		return nil, ErrTag
	}
	t := &Transfer{d: d, r: r, win: w, slot: slot, gen: generation(w.Tag), filled: make([]*buffer, 0, d.cfg.TransferBuffers)}
	t.cond.L = &d.mu
	r.busy[slot] = true
	r.transfers[t], d.transfers[t] = struct{}{}, struct{}{}
	t.stop = context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !t.closed { // what Close sends is sent
			t.fail(context.Cause(ctx))
		}
	})
	return t, nil
}

// Ordered is false.
func (t *Transfer) Ordered() bool { return false }

// Gather is the size of a write that suits the device, in bytes.
func (t *Transfer) Gather() int { return t.d.cfg.WriteBytes }

// fail gives the delivery up; the caller holds d.mu.
func (t *Transfer) fail(err error) {
	if t.err != nil {
		return
	}
	t.err = err
	t.cond.Broadcast()
	if t.waiting > 0 {
		t.d.freed.Broadcast()
	}
}

func (t *Transfer) usable() error {
	if t.closed {
		return transport.ErrClosed
	}
	return t.err
}

// Grab lends staging memory. It waits for some if all is in use.
func (t *Transfer) Grab(off int64, n int) ([]byte, error) {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if off < 0 || n <= 0 || off > t.win.Length || int64(n) > t.win.Length-off {
		return nil, errRange
	}
	for _, b := range t.filled {
		if at := b.end(); b.lent > 0 && off < at+int64(b.lent) && at < off+int64(n) {
			return nil, errLent
		}
	}
	b := t.find(off, n)
	if b == nil {
		var err error
		if b, err = t.take(off); err != nil {
			return nil, err
		}
		t.filled = append(t.filled, b)
	}
	b.lent = min(n, len(b.mem)-b.filled)
	t.lent++
	return b.mem[b.filled : b.filled+b.lent : b.filled+b.lent], nil
}

// tail is the least room at a buffer's end that is worth lending.
const tail = 256 << 10

// find returns a buffer that is being filled and in which the bytes at off may
// go: one that they continue, or else the one that was committed to last, which
// is likely the caller's.
func (t *Transfer) find(off int64, n int) *buffer {
	var last *buffer
	for _, b := range t.filled {
		if b.lent > 0 {
			continue
		}
		if last = b; b.end() == off && b.filled > b.start {
			break
		}
	}
	if last == nil {
		return nil
	}
	if len(last.mem)-last.filled < min(n, tail) {
		t.retire(last)
		return nil
	}
	if last.end() != off {
		t.post(last)
		last.off = off
	}
	return last
}

// take takes a buffer from the pool. A transfer that waits has posted what it
// can, so that its own buffers come free, and so have the others.
func (t *Transfer) take(off int64) (*buffer, error) {
	d := t.d
	woken := false
	for {
		if err := t.usable(); err != nil {
			if woken {
				d.freed.Signal() // what it was woken for goes to another
			}
			return nil, err
		}
		if t.held < d.cfg.TransferBuffers {
			if b := d.pool.get(off); b != nil {
				t.held++
				return b, nil
			}
			for o := range d.transfers {
				o.retireIdle()
			}
			if d.advance(); len(d.pool.free) > 0 {
				continue
			}
			d.pool.waiting++
			t.waiting++
			d.freed.Wait()
			d.pool.waiting--
			t.waiting--
			woken = true
			continue
		}
		if woken {
			d.freed.Signal()
			woken = false
		}
		t.retireIdle()
		if d.advance(); t.held < d.cfg.TransferBuffers || t.usable() != nil {
			continue
		}
		t.waiting++
		t.cond.Wait()
		t.waiting--
	}
}

// Commit says that bytes are in place, and sends what is worth a write.
func (t *Transfer) Commit(off int64, n int) error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	for i, b := range t.filled {
		if b.lent == 0 || b.end() != off {
			continue
		}
		if n <= 0 || n > b.lent {
			return errRange
		}
		b.filled += n
		b.lent = 0
		t.lent--
		t.filled = append(append(t.filled[:i], t.filled[i+1:]...), b)
		if b.filled == len(b.mem) {
			t.retire(b)
		} else if t.d.pool.waiting > 0 || t.waiting > 0 {
			t.retireIdle()
		}
		t.d.advance()
		return nil
	}
	return errLent
}

// post queues what a buffer holds.
func (t *Transfer) post(b *buffer) {
	if b.filled == b.start {
		return
	}
	if t.err == nil {
		w := write{buf: b, lo: b.start, hi: b.filled, off: t.win.Offset + b.off, t: t}
		if !t.d.ordered {
			w.imm, w.note = immediate(t.gen, t.slot, immWritten+t.announced), true
			t.epoch++
		}
		t.r.push(&w)
	}
	b.off = b.end()
	b.start = b.filled
}

// retire posts a buffer that is not lent and fills it no further.
func (t *Transfer) retire(b *buffer) {
	t.post(b)
	for i, o := range t.filled {
		if o == b {
			t.filled = append(t.filled[:i], t.filled[i+1:]...)
			break
		}
	}
	t.d.release(b, t)
}

// retireIdle retires every buffer that is not lent.
func (t *Transfer) retireIdle() {
	for i := 0; i < len(t.filled); {
		if b := t.filled[i]; b.lent == 0 {
			t.retire(b)
		} else {
			i++
		}
	}
}

// LayerReady sends what has been committed and, behind it, that the layer is
// whole. It does not wait. Bytes of other layers may be lent meanwhile.
func (t *Transfer) LayerReady(layer int) error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	if t.announced == t.win.Layers || layer != t.win.FirstLayer+t.announced {
		return errLayer
	}
	t.announce(immReady+t.announced, immCounted+t.announced)
	t.announced++
	t.d.advance()
	return nil
}

// announce posts all that is committed and, behind it, what it means in either mode.
func (t *Transfer) announce(ordered, counted int) {
	for _, b := range t.filled {
		t.post(b)
	}
	what := counted
	if t.d.ordered {
		what = ordered
	}
	t.tell(what, counted-immCounted, false)
	t.epoch = 0
}

// tell writes an epoch's cell, which only the client that counts reads. An
// immediate is not sent with the layer's own bytes if it need not be: libfabric
// 1.17's ofi_rxm crashes when the connection ends in the middle of a write with
// one. Nor with nothing: shm never completes an empty write.
func (t *Transfer) tell(what, epoch int, last bool) {
	w := write{n: cellBytes, off: cellAt(t.r.addr.Length, t.slot, epoch), imm: immediate(t.gen, t.slot, what), note: true, last: last, t: t}
	binary.LittleEndian.PutUint32(w.small[:], t.epoch)
	binary.LittleEndian.PutUint16(w.small[4:], uint16(t.gen))
	binary.LittleEndian.PutUint16(w.small[6:], uint16(t.announced))
	t.r.push(&w)
}

// Close ends the delivery and waits until none of its writes is under way, at
// most until a client that takes nothing is dropped. The client is told, if it is
// there. The error is that of bytes which were committed before and did not arrive.
func (t *Transfer) Close() error {
	t.stop()
	d := t.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	whole := t.err == nil
	for _, b := range t.filled {
		if b.lent > 0 { // the caller has let go of it
			b.lent = 0
			t.lent--
		}
	}
	if whole {
		t.announce(immOver, immCountEnd)
	}
	t.retireIdle()
	if !whole && t.r.err == nil {
		t.drain() // counts are no use: the last word comes after all writes
		if t.r.err == nil {
			t.tell(immOver, MaxLayers, true)
		}
	}
	t.drain()
	t.r.busy[t.slot] = false
	delete(t.r.transfers, t)
	delete(d.transfers, t)
	if whole {
		return t.err
	}
	return nil
}

// drain waits until no write is queued or under way.
func (t *Transfer) drain() {
	t.d.advance()
	for t.writes > 0 {
		t.cond.Wait()
	}
}
