//go:build fabric && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"
)

// Remote is a client's memory and the endpoint that writes to it. It may be used
// concurrently. Its state is guarded by the domain's mutex, but for ep and reg,
// which are the engine's.
type Remote struct {
	d     *Domain
	addr  Address
	id    int // its cells in the domain's memory
	gone  chan struct{}
	ep    *C.struct_fab_ep
	reg   *region // of the staging memory, if this endpoint has its own
	desc  unsafe.Pointer
	waits bool

	queue     fifo // not posted yet, in order
	ops       [opsPerRemote]write
	free      []int // of ops
	given     int   // of queue, in the step being filled
	posted    int   // and not completed
	progress  time.Time
	active    bool
	err       error
	transfers map[*Transfer]struct{}
	busy      [Slots]bool
}

// write is one write, or read, from its queueing to its completion.
type write struct {
	buf    *buffer // nil: the bytes are in small
	lo, hi int     // of the buffer
	small  [NonceBytes]byte
	n      int   // of small
	off    int64 // in the client's region
	imm    uint32
	note   bool // imm is sent
	read   bool // it reads into buf
	last   bool // it says that the delivery is over: sent even if that was given up
	live   bool
	t      *Transfer
	done   chan<- error // has room for one
}

// fifo is a queue that reuses its memory.
type fifo struct {
	ring    []write
	head, n int
}

func (q *fifo) push(w *write) {
	if q.n == len(q.ring) {
		ring := make([]write, max(16, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	q.n++
	*q.at(q.n - 1) = *w
}

func (q *fifo) at(i int) *write { return &q.ring[(q.head+i)%len(q.ring)] }

func (q *fifo) pop() {
	*q.at(0) = write{}
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}

// Remote opens an endpoint that writes to a client's memory. Nothing is sent
// before the first write. Its errors are ErrProvider, ErrAddress, ErrBusy, and
// the device's.
func (d *Domain) Remote(a Address) (*Remote, error) {
	switch {
	case a.Provider != d.Provider():
		return nil, ErrProvider
	case len(a.Address) == 0:
		return nil, ErrAddress
	case a.Length <= 0 || a.Length%PageSize != 0 || a.Length > math.MaxInt64-ControlBytes ||
		a.Base > math.MaxUint64-uint64(a.Length)-ControlBytes:
		return nil, fmt.Errorf("%w: base or length out of range", ErrAddress)
	}
	a.Address = append([]byte(nil), a.Address...)
	r := &Remote{d: d, addr: a, gone: make(chan struct{}), transfers: map[*Transfer]struct{}{}}
	for op := range opsPerRemote {
		r.free = append(r.free, op)
	}
	d.mu.Lock()
	if len(d.ids) == 0 {
		d.mu.Unlock()
		return nil, ErrBusy
	}
	r.id = d.ids[len(d.ids)-1]
	d.ids = d.ids[:len(d.ids)-1]
	d.mu.Unlock()
	err := ErrClosed
	d.do(func() {
		if err = r.openEndpoint(); err != nil {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.remotes[r] = struct{}{}
		if d.closed {
			d.fail(r, errors.Join(ErrGone, ErrClosed))
		}
	})
	if err != nil {
		d.mu.Lock()
		d.ids = append(d.ids, r.id)
		d.mu.Unlock()
		return nil, err
	}
	return r, nil
}

func (r *Remote) openEndpoint() (err error) {
	d := r.d
	if r.ep, err = d.dev.openEndpoint(r.addr.Address); err != nil {
		return err
	}
	r.waits = C.fab_ep_waits(r.ep) != 0
	reg := d.reg
	if reg == nil {
		if r.reg, err = d.dev.register(r.ep, d.mem, false, uint64(2+r.id)); err != nil {
			C.fab_ep_close(r.ep)
			return err
		}
		reg = r.reg
	}
	r.desc = unsafe.Pointer(reg.mr.desc)
	return nil
}

func (r *Remote) closeEndpoint() {
	C.fab_ep_close(r.ep)
	r.ep = nil
	if r.reg != nil {
		r.reg.close()
	}
}

// finish gives back what a client that is gone held: its endpoint is closed, and
// nothing reads the buffers any more. The caller holds d.mu.
func (r *Remote) finish() {
	for op := range r.ops {
		if r.ops[op].live {
			w := r.take(op)
			r.completed(&w, r.err)
		}
	}
	r.posted = 0
	for ; r.queue.n > 0; r.queue.pop() {
		r.d.queued--
		r.completed(r.queue.at(0), r.err)
	}
	r.queue = fifo{}
	delete(r.d.remotes, r)
	r.d.ids = append(r.d.ids, r.id)
	close(r.gone)
}

// Gone is closed when the client has been given up or closed: nothing is written
// to it any more.
func (r *Remote) Gone() <-chan struct{} { return r.gone }

// Err says why the client has been given up; nil while it has not.
func (r *Remote) Err() error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return r.err
}

// Close drops the client and returns when nothing is written to it any more.
// Deliveries to it fail.
func (r *Remote) Close() error {
	r.d.mu.Lock()
	r.d.fail(r, errors.Join(ErrGone, ErrClosed))
	r.d.mu.Unlock()
	<-r.gone
	return nil
}

// WriteNonce writes NonceBytes at the memory's start and returns when they have
// been sent; the client sees them when Memory.AwaitNonce returns.
func (r *Remote) WriteNonce(ctx context.Context, nonce []byte) error {
	if len(nonce) != NonceBytes {
		return fmt.Errorf("fabric: a nonce of %d bytes", len(nonce))
	}
	w := write{n: NonceBytes, imm: immNonce, note: true}
	copy(w.small[:], nonce)
	return r.writeSmall(ctx, &w)
}

// push queues a write; the caller holds d.mu and has seen that r.err is nil.
func (r *Remote) push(w *write) {
	w.live = true
	if w.buf != nil {
		w.buf.refs++
	}
	if w.t != nil {
		w.t.writes++
	}
	r.d.writes++
	r.d.queued++
	if r.queue.n == 0 {
		r.d.stuck = false
	}
	r.queue.push(w)
	r.d.activate(r)
}

// give puts the next queued write into a step, if there is one and an op for it.
func (r *Remote) give(c *C.struct_fab_write) bool {
	for r.given == 0 && r.queue.n > 0 { // what has been given up is not sent
		w := r.queue.at(0)
		if w.t == nil || w.t.err == nil || w.last {
			break
		}
		gone := *w
		r.queue.pop()
		r.d.queued--
		r.completed(&gone, gone.t.err)
	}
	if r.err != nil || r.given == r.queue.n || len(r.free) == 0 {
		return false
	}
	w := r.queue.at(r.given)
	if r.given > 0 && w.t != nil && w.t.err != nil && !w.last {
		return false // in the next step
	}
	r.given++
	op := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.ops[op] = *w
	var mem []byte
	if w.buf != nil {
		mem = w.buf.mem[w.lo:w.hi]
	} else {
		cell := (r.id*opsPerRemote + op) * NonceBytes
		mem = r.d.mem[cell : cell+NonceBytes]
		copy(mem, w.small[:])
		mem = mem[:w.n]
	}
	*c = C.struct_fab_write{ep: r.ep, buf: unsafe.Pointer(unsafe.SliceData(mem)), desc: r.desc, len: C.size_t(len(mem)),
		addr: C.uint64_t(r.addr.Base + uint64(w.off)), key: C.uint64_t(r.addr.Key), op: C.uint32_t(op), imm: C.uint32_t(w.imm)}
	if w.note {
		c.note = 1
	}
	if w.read {
		c.read = 1
	}
	return true
}

// take frees an op and returns its write.
func (r *Remote) take(op int) write {
	w := r.ops[op]
	r.ops[op] = write{}
	r.free = append(r.free, op)
	return w
}

// completed ends a write. The provider no longer reads its bytes.
func (r *Remote) completed(w *write, err error) {
	r.d.writes--
	if w.buf != nil {
		r.d.release(w.buf, w.t)
	}
	if t := w.t; t != nil {
		if err != nil {
			t.fail(err)
		}
		if t.writes--; t.writes == 0 {
			t.cond.Broadcast()
		}
	}
	if w.done != nil {
		w.done <- err
	}
}

// release drops one use of a buffer, and gives it back after the last.
func (d *Domain) release(b *buffer, t *Transfer) {
	if b.refs--; b.refs > 0 {
		return
	}
	d.pool.free = append(d.pool.free, b)
	t.held--
	if t.waiting > 0 {
		t.cond.Broadcast()
	}
	if d.pool.waiting > 0 {
		d.freed.Signal()
	}
}
