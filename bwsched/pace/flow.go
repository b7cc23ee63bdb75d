package pace

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// Mode is the order in which a flow delivers.
type Mode int

const (
	// Layer goes layer by layer. With a compute window the flow is in the
	// policy's pool (§3.4).
	Layer Mode = iota
	// Chunk goes chunk by chunk: a fair share outside of the pool.
	Chunk
)

// Spec describes a flow that wants to join.
type Spec struct {
	Tenant     string // whose limits hold; "" is a tenant like others
	Class      string // see bwsched.Request
	Mode       Mode
	LayerBytes int64         // payload bytes of one layer, above 0
	Compute    time.Duration // compute window of one layer; 0: unknown, and a fair share outside of the pool
	Layers     int           // layers to deliver, above 0
}

func (s *Spec) check() error {
	if s.LayerBytes <= 0 || s.Layers <= 0 || s.Compute < 0 {
		return errors.New("pace: a flow without bytes or layers")
	}
	return nil
}

// pooled reports whether the policy plans this flow.
func (s *Spec) pooled() bool { return s.Mode == Layer && s.Compute > 0 }

// Flow is one delivery on a link. Take may be called by several goroutines at
// a time, which are served in the order of their calls.
type Flow struct {
	l      *Link
	spec   Spec
	tenant *account

	// Under the link's lock.
	closed      bool
	index       int // in the link's flows
	q           *queue
	at          int // in q; -1: not
	layers      int // done
	rate        float64
	due         float64 // when it has repaid what it was granted, in its queue's time
	owed        float64 // instead, in bytes, while the rate is 0
	first, last *waiter // queue
	bytes       int64

	learn learner

	joined  float64
	settled float64 // up to when area counts
	area    float64 // sum of rate times ns: bytes * 1e9
}

// waiter is one Take that waits.
type waiter struct {
	ready   chan struct{} // gets one value: granted, or the flow is closed
	n       int64
	since   float64
	granted bool
	next    *waiter
}

// Take waits until n bytes of the flow may go. Of more than MaxQuantum bytes
// it takes one quantum after the other. If ctx ends first, or the flow is
// closed (ErrClosed), nothing of the n bytes counts as granted.
func (f *Flow) Take(ctx context.Context, n int64) error {
	for taken := int64(0); taken < n; {
		k := min(n-taken, MaxQuantum)
		if err := f.take(ctx, k); err != nil {
			f.giveBack(taken)
			return err
		}
		taken += k
	}
	return nil
}

func (f *Flow) take(ctx context.Context, n int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l := f.l
	l.mu.Lock()
	if f.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	w, next := l.ask(f, n, l.now())
	if w == nil {
		l.mu.Unlock()
		return nil
	}
	l.rouse(next)
	l.mu.Unlock()

	select {
	case <-w.ready:
		l.mu.Lock()
		granted := w.granted
		l.release(w)
		l.mu.Unlock()
		if !granted {
			return ErrClosed
		}
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.ready: // granted or closed meanwhile
		if w.granted {
			f.refund(n)
		}
	default:
		f.drop(w)
		l.stats.Waited += time.Duration(l.now() - w.since)
	}
	l.release(w)
	return context.Cause(ctx)
}

// ask grants n bytes at once and returns nil, or queues a waiter and says when
// the pacer should look at it.
func (l *Link) ask(f *Flow, n int64, now float64) (*waiter, float64) {
	l.replan(now)
	if f.first == nil {
		// What it did not use while it did not ask is gone, but for a burst.
		f.due = max(f.due, now+f.q.skew-l.burst)
		if g := l.own.top(); f.rate > 0 && l.due <= now && l.borrow.Len() == 0 && (g == nil || g.wait(now) > 0) {
			wait := f.wait(now)
			if f.q == &l.borrow {
				wait = l.lend(f, now)
			}
			if wait <= 0 {
				l.charge(f, n, now)
				return nil, 0
			}
		}
	}
	w := l.spare
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	} else {
		l.spare = w.next
	}
	w.n, w.since, w.granted, w.next = n, now, false, nil
	f.push(w)
	next := never
	if f.at >= 0 {
		next = max(l.due, now)
		if f.q == &l.own {
			next = max(next, now+f.wait(now))
		}
	}
	if l.changed {
		next = min(next, l.planAt())
	}
	return w, next
}

// release keeps a waiter that nobody refers to for the next Take.
func (l *Link) release(w *waiter) {
	w.next = l.spare
	l.spare = w
}

func (f *Flow) push(w *waiter) {
	f.l.waiting++
	if f.last == nil {
		f.first = w
	} else {
		f.last.next = w
	}
	f.last = w
	if f.at < 0 {
		f.sort()
	}
}

func (f *Flow) pop() *waiter {
	w := f.first
	f.l.waiting--
	if f.first = w.next; f.first == nil {
		f.last = nil
	}
	w.next = nil
	return w
}

// drop takes a waiter out of the queue.
func (f *Flow) drop(w *waiter) {
	var before *waiter
	for x := f.first; x != w; x = x.next {
		before = x
	}
	if before == nil {
		f.first = w.next
	} else {
		before.next = w.next
	}
	if f.last == w {
		f.last = before
	}
	w.next = nil
	f.l.waiting--
	f.sort()
}

// giveBack returns n bytes that were granted and not sent.
func (f *Flow) giveBack(n int64) {
	if n == 0 {
		return
	}
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.refund(n)
}

// refund undoes charge. The pacer may have something to send sooner now.
func (f *Flow) refund(n int64) {
	l := f.l
	f.bytes -= n
	l.stats.Bytes -= n
	l.due -= float64(n) * 1e9 / l.cfg.Capacity
	if f.rate > 0 {
		f.due -= float64(n) * 1e9 / f.rate
	} else {
		f.owed -= float64(n)
	}
	f.sort()
	if l.waiting > 0 {
		l.rouse(l.now())
	}
}

// LayerDone says that one more layer is whole at the client. After the first
// the client computes, which the policy may heed.
func (f *Flow) LayerDone() {
	l := f.l
	l.mu.Lock()
	defer l.mu.Unlock()
	f.layers++
	if f.closed || !f.spec.pooled() {
		return
	}
	now := l.now()
	f.learnLayer(now)
	l.mark(now, f.layers == 1)
}

// request is the flow as the policy sees it now.
func (f *Flow) request(now float64) bwsched.Request {
	return bwsched.Request{LayerBytes: float64(f.spec.LayerBytes), Compute: f.spec.Compute,
		Layers: max(1, f.spec.Layers-f.layers), Started: f.layers > 0, Class: cmp.Or(f.learn.class, f.spec.Class),
		Age: time.Duration(now - f.joined)}
}

// Quantum is how many bytes to ask for at a time, 64 KiB to MaxQuantum.
func (f *Flow) Quantum() int64 {
	r := f.Rate() * quantumTime.Seconds()
	return int64(min(max(r, minQuantum), MaxQuantum))
}

// Rate is the rate granted now, in bytes per second; 0 until the first plan.
func (f *Flow) Rate() float64 {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.rate
}

// Usage is what a flow was granted and used so far.
type Usage struct {
	Bytes int64
	// Granted is the mean of the rates granted, over the time since Join, in
	// bytes per second.
	Granted float64
}

// Usage returns the counts up to now, or up to Close.
func (f *Flow) Usage() Usage {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	if !f.closed {
		f.settle(f.l.now())
	}
	u := Usage{Bytes: f.bytes, Granted: f.rate}
	if f.settled > f.joined {
		u.Granted = f.area / (f.settled - f.joined)
	}
	return u
}

// settle counts the rate up to now.
func (f *Flow) settle(now float64) {
	f.area += f.rate * (now - f.settled)
	f.settled = now
}

// setRate changes the rate. What is owed in bytes stays the same.
func (f *Flow) setRate(rate, now float64) {
	if rate == f.rate {
		return
	}
	f.settle(now)
	if v := now + f.q.skew; f.rate > 0 && rate > 0 {
		f.due = v + (f.due-v)*f.rate/rate
	} else if f.rate > 0 {
		f.owed = (f.due - v) * f.rate / 1e9
	} else if rate > 0 {
		f.due = v + f.owed*1e9/rate
	}
	f.rate = rate
	f.sort()
}

// Close ends the flow; a Take that waits gets ErrClosed. It may be called more
// than once.
func (f *Flow) Close() {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.close()
}

func (f *Flow) close() {
	if f.closed {
		return
	}
	l := f.l
	now := l.now()
	f.closed = true
	for f.first != nil {
		w := f.pop()
		l.stats.Waited += time.Duration(now - w.since)
		w.ready <- struct{}{}
	}
	f.settle(now)
	l.stats.Granted -= f.rate
	f.rate = 0
	f.sort()
	last := len(l.flows) - 1
	l.flows[f.index] = l.flows[last]
	l.flows[f.index].index = f.index
	l.flows[last] = nil
	l.flows = l.flows[:last]
	if last == 0 {
		l.stats.Granted = 0 // without what rounding left
	}
	l.tenants.leave(f.tenant)
	l.count(f, -1)
	l.mark(now, true)
}
