//go:build fabric && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"errors"
	"sync"
	"time"
	"unsafe"
)

// Domain is a device, its staging memory, and the clients it writes to. It may
// be used concurrently.
//
// One step after another is made, by whoever has something to write or, while
// nobody has, by a goroutine of the domain's: post what is queued for all clients,
// a batch in one crossing into C, and take completions. No client can hold it up,
// because no step waits for one.
type Domain struct {
	cfg     Config
	dev     *device
	mem     []byte  // cells of all remotes, then the staging buffers; mapped, not Go's
	reg     *region // of mem; nil if each endpoint has its own
	ordered bool
	wake    int
	ended   chan struct{}

	// Of whoever makes a step.
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
	writes    int  // not completed
	queued    int  // of them, not posted
	failed    int  // clients whose endpoints are to be closed
	stuck     bool // the last step could do nothing, and nothing has come since
	stepping  bool // somebody makes a step, or calls libfabric otherwise
	turn      sync.Cond
	unwatched bool // a client is active that the engine does not wait for
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
	d.freed.L, d.turn.L = &d.mu, &d.mu
	d.cfg.WriteBytes = int(min(uint64(cfg.WriteBytes), uint64(dev.c.max_write)))
	d.ordered = dev.ordered(d.cfg.WriteBytes) && !cfg.Count
	for id := range cfg.Remotes {
		d.ids = append(d.ids, cfg.Remotes-1-id)
	}
	if err := d.setUp(); err != nil {
		d.tearDown()
		return nil, err
	}
	go d.engine()
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
		closeWake(d.wake)
	}
	if d.mem != nil {
		unmap(d.mem)
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

// advance posts what is queued, unless another is at it, who then posts this too,
// or the engine is to do what only it does. The caller holds d.mu, which is
// unlocked meanwhile.
func (d *Domain) advance() {
	const rounds = 2 // then it is the engine's turn: the caller has work of its own
	for i := 0; i < rounds && !d.stepping && d.queued > 0 && !d.stuck && d.failed == 0 && len(d.calls) == 0; i++ {
		d.stepping = true
		d.run(false)
		d.stepping = false
		d.turn.Signal()
	}
	if d.queued > 0 && !d.stuck && !d.stepping || d.failed > 0 || d.unwatched {
		d.kick()
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

// engine does what nobody else is there to do: it opens and closes endpoints, and
// takes completions and posts what had to wait while others wait themselves.
func (d *Domain) engine() {
	defer close(d.ended)
	d.mu.Lock()
	for {
		for d.stepping {
			d.turn.Wait()
		}
		d.stepping = true
		d.service()
		if d.closed && len(d.remotes) == 0 && len(d.calls) == 0 {
			break
		}
		timeout := d.timeout()
		idle := d.run(timeout != 0)
		d.stepping = false
		if !idle || d.closed || len(d.calls) > 0 || d.failed > 0 || d.queued > 0 && !d.stuck {
			continue
		}
		d.unwatched = false
		d.sleeping = true
		d.mu.Unlock()
		C.fab_step_wait(d.step, C.int(d.wake), C.int(timeout/time.Microsecond))
		d.mu.Lock()
		d.sleeping = false
	}
	d.mu.Unlock()
	d.tearDown()
}

// run makes a step. If waiting is set, it reports whether there was nothing to do
// and one may wait. The caller holds d.mu, which is unlocked meanwhile, and has set
// d.stepping.
func (d *Domain) run(waiting bool) bool {
	d.fill()
	var c C.int
	if waiting {
		c = 1
	}
	d.mu.Unlock()
	idle := C.fab_step_run(d.dev.c, d.step, c) != 0
	d.mu.Lock()
	d.settle()
	return idle
}

// timeout is how long the engine may wait after its next step if that does
// nothing; below 0: for ever.
func (d *Domain) timeout() time.Duration {
	waits := true
	for _, r := range d.active {
		waits = waits && r.waits
	}
	switch {
	case len(d.active) == 0:
		return -time.Microsecond
	case d.queued > 0 && !d.stuck:
		return 0
	case !waits:
		d.nap = min(max(2*d.nap, minNap), maxNap)
		return d.nap
	case d.queued > 0:
		return time.Millisecond // a connection that is being made wakes nobody
	default:
		return 10 * time.Millisecond
	}
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
			d.failed--
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

// fill fills the next step. Clients take turns, a write each.
func (d *Domain) fill() {
	s := d.step
	d.polled = d.polled[:0]
	eps := unsafe.Slice(s.eps, s.max_eps)
	for _, r := range d.active {
		if r.err == nil {
			r.given = 0
			eps[len(d.polled)] = r.ep
			d.polled = append(d.polled, r)
		}
	}
	s.neps = C.uint32_t(len(d.polled))
	n := 0
	for more := d.queued > 0; more && n < batch; {
		more = false
		for i := range d.polled {
			if r := d.polled[(i+d.next)%len(d.polled)]; n < batch && r.give(&s.writes[n]) {
				d.owners[n] = r
				n++
				more = true
			}
		}
	}
	d.next++
	d.stuck = d.queued > 0 // unless the step does something
	s.nwrites = C.uint32_t(n)
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
			d.queued--
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
	if posted > 0 || s.ndone > 0 {
		d.stuck, d.nap = false, 0
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
	d.failed++
	for t := range r.transfers {
		t.fail(err)
	}
	d.activate(r)
	d.kick()
}

// activate puts a client among those that are looked after.
func (d *Domain) activate(r *Remote) {
	if !r.active {
		r.active = true
		r.progress = d.cfg.Now()
		d.active = append(d.active, r)
		d.unwatched = true
	}
}
