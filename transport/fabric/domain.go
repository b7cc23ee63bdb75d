//go:build fabric && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Domain is a device, its staging memory, and the clients it writes to. It may
// be used concurrently.
//
// One thread, the engine, makes every libfabric call: it posts what is queued
// for all clients, a batch in each crossing into C, and takes completions. No
// client can hold it up, because no call waits for one.
type Domain struct {
	cfg     Config
	dev     *device
	mem     []byte  // cells of all remotes, then the staging buffers; mapped, not Go's
	reg     *region // of mem; nil if each endpoint has its own
	ordered bool
	wake    int
	ended   chan struct{}

	// The engine's own.
	step   *C.struct_fab_step
	polled []*Remote      // whose completions the step takes
	owners [batch]*Remote // whose writes it posts
	nap    time.Duration  // the next wait where there is nothing to wait on

	mu        sync.Mutex // guards what follows, and every Remote and Transfer
	freed     sync.Cond  // a staging buffer has become free
	pool      pool
	remotes   map[*Remote]struct{}
	ids       []int // free places in mem
	transfers map[*Transfer]struct{}
	active    []*Remote // with writes queued or under way, or failed and not closed
	next      int       // in active: who is served first
	calls     []func()
	writes    int
	stuck     bool // the last step could post nothing
	sleeping  bool // the engine waits or is about to: it is to be woken
	closed    bool
}

// Open opens a device and registers the staging memory.
func Open(cfg Config) (*Domain, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	dev, err := openDevice(&cfg)
	if err != nil {
		return nil, err
	}
	d := &Domain{cfg: cfg, dev: dev, ended: make(chan struct{}), wake: -1,
		remotes: map[*Remote]struct{}{}, transfers: map[*Transfer]struct{}{}}
	d.freed.L = &d.mu
	d.cfg.WriteBytes = int(min(uint64(cfg.WriteBytes), uint64(dev.c.max_write)))
	d.ordered = dev.ordered(d.cfg.WriteBytes) && !cfg.Count
	for id := range cfg.Remotes {
		d.ids = append(d.ids, cfg.Remotes-1-id)
	}
	if err := d.setUp(); err != nil {
		d.tearDown()
		return nil, err
	}
	go d.run()
	return d, nil
}

func (d *Domain) setUp() (err error) {
	cells := d.cfg.Remotes * opsPerRemote * NonceBytes
	cells = (cells + PageSize - 1) / PageSize * PageSize
	if d.mem, err = anonymous(int64(cells) + int64(d.cfg.Buffers)*int64(d.cfg.WriteBytes)); err != nil {
		return err
	}
	d.pool.init(d.mem[cells:], d.cfg.WriteBytes)
	if d.dev.c.mr_endpoint == 0 {
		if d.reg, err = d.dev.register(nil, d.mem, false, 1); err != nil {
			return err
		}
	}
	if d.wake, err = newWake(); err != nil {
		return err
	}
	if rc := C.fab_step_alloc(&d.step, C.uint32_t(d.cfg.Remotes)); rc != 0 {
		return failure("allocate", rc)
	}
	return nil
}

func (d *Domain) tearDown() {
	if d.step != nil {
		C.fab_step_free(d.step)
	}
	if d.reg != nil {
		d.reg.close()
	}
	d.dev.close()
	if d.wake >= 0 {
		_ = unix.Close(d.wake)
	}
	if d.mem != nil {
		_ = unix.Munmap(d.mem) // it is ours and mapped
	}
}

// Provider is what an Address must name.
func (d *Domain) Provider() string { return d.dev.provider() }

// Ordered reports whether the device keeps the order of writes; else they are
// counted.
func (d *Domain) Ordered() bool { return d.ordered }

// Stats returns what is held now.
func (d *Domain) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Stats{Buffers: d.cfg.Buffers, BufferBytes: d.cfg.WriteBytes, Free: len(d.pool.free), Waiting: d.pool.waiting,
		Remotes: len(d.remotes), Transfers: len(d.transfers), Writes: d.writes}
}

// Close drops every client and releases the device. Deliveries fail with ErrGone
// and are closed by their callers, before or after.
func (d *Domain) Close() error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		for r := range d.remotes {
			d.fail(r, errors.Join(ErrGone, ErrClosed))
		}
		d.kick()
	}
	d.mu.Unlock()
	<-d.ended
	return nil
}

// kick wakes the engine if it sleeps; the caller holds d.mu.
func (d *Domain) kick() {
	if d.sleeping {
		d.sleeping = false
		wake(d.wake)
	}
}

// do has the engine call f, and waits for it; false if the domain is closed.
func (d *Domain) do(f func()) bool {
	done := make(chan struct{})
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return false
	}
	d.calls = append(d.calls, func() { f(); close(done) })
	d.kick()
	d.mu.Unlock()
	<-done
	return true
}

// run is the engine.
func (d *Domain) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(d.ended)
	d.mu.Lock()
	for {
		d.service()
		if d.closed && len(d.remotes) == 0 && len(d.calls) == 0 {
			break
		}
		timeout := d.fill()
		d.sleeping = timeout != 0
		d.mu.Unlock()
		C.fab_step_run(d.dev.c, d.step, C.int(d.wake), C.int(timeout/time.Microsecond))
		d.mu.Lock()
		d.sleeping = false
		d.settle()
	}
	d.mu.Unlock()
	d.tearDown()
}

// service makes the calls of others and closes the endpoints of clients that
// have failed. It unlocks d.mu meanwhile.
func (d *Domain) service() {
	for len(d.calls) > 0 {
		calls := d.calls
		d.calls = nil
		d.mu.Unlock()
		for _, f := range calls {
			f()
		}
		d.mu.Lock()
	}
	for i := 0; i < len(d.active); {
		r := d.active[i]
		switch {
		case r.err != nil:
			d.mu.Unlock()
			r.closeEndpoint()
			d.mu.Lock()
			d.active[i] = d.active[len(d.active)-1]
			d.active = d.active[:len(d.active)-1]
			r.finish()
		case r.queue.n == 0 && r.posted == 0:
			r.active = false
			d.active[i] = d.active[len(d.active)-1]
			d.active = d.active[:len(d.active)-1]
		default:
			i++
		}
	}
}

// fill fills the next step and says how long it may wait (below 0: for ever).
// Clients take turns, a write each.
func (d *Domain) fill() (timeout time.Duration) {
	s := d.step
	d.polled = d.polled[:0]
	eps := unsafe.Slice(s.eps, s.max_eps)
	waits := true
	for i, r := range d.active {
		r.given = 0
		eps[i] = r.ep
		d.polled = append(d.polled, r)
		waits = waits && r.waits
	}
	s.neps = C.uint32_t(len(d.active))
	n := 0
	for more := true; more && n < batch; {
		more = false
		for i := range d.active {
			if r := d.active[(i+d.next)%len(d.active)]; n < batch && r.give(&s.writes[n]) {
				d.owners[n] = r
				n++
				more = true
			}
		}
	}
	d.next++
	s.nwrites = C.uint32_t(n)
	switch {
	case len(d.active) == 0:
		return -time.Microsecond
	case n > 0 && !d.stuck:
		return 0
	case !waits:
		d.nap = min(max(2*d.nap, minNap), maxNap)
		return d.nap
	case n > 0:
		return time.Millisecond // a connection that is being made wakes nobody
	default:
		return 10 * time.Millisecond
	}
}

// How long to sleep between two looks at a queue that cannot be waited on.
const (
	minNap = 20 * time.Microsecond
	maxNap = 500 * time.Microsecond
)

// settle takes what a step has done.
func (d *Domain) settle() {
	s := d.step
	posted := 0
	for i := range int(s.nwrites) {
		r, w := d.owners[i], &s.writes[i]
		d.owners[i] = nil
		switch {
		case w.status == 0:
			r.queue.pop()
			r.posted++
			posted++
		case w.status == C.fab_eagain:
			r.take(int(w.op))
		default:
			r.take(int(w.op))
			d.fail(r, errors.Join(ErrGone, failure("write", w.status)))
		}
	}
	now := d.cfg.Now()
	for i := range int(s.ndone) {
		c := &s.done[i]
		r := d.polled[c.ep]
		r.progress = now
		if c.op >= 0 && r.ops[c.op].live {
			w := r.take(int(c.op))
			r.posted--
			var err error
			if c.err != 0 {
				err = errors.Join(ErrGone, failure("write", c.err))
			}
			r.completed(&w, err)
		}
		if c.err != 0 {
			d.fail(r, errors.Join(ErrGone, failure("write", c.err)))
		}
	}
	if d.stuck = s.nwrites > 0 && posted == 0 && s.ndone == 0; posted > 0 || s.ndone > 0 {
		d.nap = 0
	}
	for _, r := range d.active {
		if r.err == nil && now.Sub(r.progress) > d.cfg.Stall {
			d.fail(r, ErrStalled)
		}
	}
}

// fail gives a client up; the engine closes its endpoint then. The caller holds d.mu.
func (d *Domain) fail(r *Remote, err error) {
	if r.err != nil {
		return
	}
	r.err = err
	for t := range r.transfers {
		t.fail(err)
	}
	d.activate(r)
}

// activate puts a client among those that the engine looks after.
func (d *Domain) activate(r *Remote) {
	if !r.active {
		r.active = true
		r.progress = d.cfg.Now()
		d.active = append(d.active, r)
	}
	d.kick()
}
