// Package pace holds deliveries to the rates that a policy of package bwsched
// gives them (ObjectCache, §3.6 and §4.4).
//
// A Link stands for the link that deliveries share. Each delivery joins it as
// a Flow and asks for leave (Take) before it moves bytes; the link says when.
// Rates are planned once per epoch and hold until the next; if the policy
// follows the requests' state (bwsched.Replans), also at every arrival, first
// layer and finish.
//
// The order of service is a weighted deficit round robin whose deficits are
// kept as times: a flow of rate r that was granted n bytes owes n/r, and is
// due again when that time has passed. Of the flows that are due, the one that
// has been so for longest goes first, one quantum at a time, and the link as a
// whole owes n/capacity for each. What is owed is carried, so that a late
// wake-up is made up for and errors of timing do not add up.
//
// Bandwidth that a flow was granted and does not ask for (a slow client, a
// slow disk) is nobody else's until the next plan, as in the paper; with a
// policy that follows state it is lent to the flows that wait, in proportion
// to their rates, those of tenants with a ceiling excepted. A flow cannot save up what it did not use beyond Config.Burst.
//
// Rates are in bytes per second.
package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// MaxQuantum is the most that is granted at one time, in bytes.
const MaxQuantum = 2 << 20

// minQuantum is the least that Flow.Quantum advises: one block of storage's
// verification.
const minQuantum = 64 << 10

// quantumTime is how long a quantum should take at its flow's rate: short
// beside a layer, long beside a wake-up.
const quantumTime = 2 * time.Millisecond

// Config says what a Link is. Capacity and Policy are required.
type Config struct {
	Capacity float64        // bytes per second, above 0
	Policy   bwsched.Policy // the Link's own from now on

	// Epoch is how long rates hold; default 50 ms.
	Epoch time.Duration
	// Burst is how much a flow or the link may catch up on after it was late
	// or idle, in time at its rate; default 10 ms. In any interval the link
	// grants at most Capacity*(interval+Burst) bytes and three quanta.
	Burst time.Duration
	// MaxFlows bounds the flows joined; default 1024.
	MaxFlows int
	// Curves is what is known of classes of requests beforehand, for a policy
	// that learns. They are only read. nil: nothing.
	Curves *bwsched.Curves
	// Tenants holds limits by tenant; a tenant not in it has none.
	Tenants map[string]Limits

	Clock Clock // default: the system's monotonic clock
}

// BusyError says that a flow was not admitted and may be later.
type BusyError struct{ Limit string }

func (e *BusyError) Error() string { return "link is over its limit: " + e.Limit }

// ErrClosed is what Take returns on a flow or a link that is closed.
var ErrClosed = errors.New("pace: closed")

// Link shares a capacity among flows. Its methods may be called concurrently.
type Link struct {
	cfg     Config
	clock   Clock
	start   int64           // of the clock
	learnt  *bwsched.Curves // under mu; nil: the policy does not learn
	replans bool            // plan at every change, and lend what is not asked for
	burst   float64         // of a flow, in ns
	credit  float64         // of the link: the same, or two quanta if that is more
	ended   chan struct{}

	mu      sync.Mutex
	closed  bool
	due     float64 // when the link has sent all it granted, in ns since start
	own     queue   // flows that get their rate and no more
	borrow  queue   // flows that are lent what others leave
	flows   []*Flow
	tenants tenants
	spare   *waiter // free list, at most as long as Takes ever waited at one time
	waiting int     // waiters queued

	epochEnd float64
	planned  float64 // when
	changed  bool    // since the plan was made
	urgent   bool    // so that it must not wait for the epoch's end
	plan     planner
	stats    Stats

	wake float64 // when the pacer wakes at the latest; before 0 if it is not asleep
}

// never is later than any time, and ages, in ns, later than anyone waits: a link
// of next to no capacity has debts that no clock can count.
var never = math.Inf(1)

const ages = 1e18

// New makes a link and starts its pacer, one goroutine on a thread of its own
// that sleeps unless a Take is waiting.
func New(cfg Config) (*Link, error) {
	l, err := newLink(cfg)
	if err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

func newLink(cfg Config) (*Link, error) {
	if cfg.Epoch == 0 {
		cfg.Epoch = 50 * time.Millisecond
	}
	if cfg.Burst == 0 {
		cfg.Burst = 10 * time.Millisecond
	}
	if cfg.MaxFlows == 0 {
		cfg.MaxFlows = 1024
	}
	switch {
	case !(cfg.Capacity > 0) || math.IsInf(cfg.Capacity, 0):
		return nil, fmt.Errorf("pace: capacity of %v bytes per second", cfg.Capacity)
	case cfg.Policy == nil:
		return nil, errors.New("pace: no policy")
	case cfg.Epoch < 0 || cfg.Burst < 0 || cfg.MaxFlows < 0:
		return nil, errors.New("pace: negative epoch, burst or number of flows")
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock()
	}
	l := &Link{cfg: cfg, clock: cfg.Clock, start: cfg.Clock.Now(), replans: bwsched.Replans(cfg.Policy),
		burst: float64(cfg.Burst), ended: make(chan struct{}), wake: -1}
	// On a slow link even small quanta take long: without room for some, a flow
	// would have to wait for those of others that are just being sent.
	l.credit = max(l.burst, 2*MaxQuantum*1e9/cfg.Capacity)
	l.due = -l.credit
	l.stats.Capacity, l.stats.Policy = cfg.Capacity, cfg.Policy.Name()
	if bwsched.Learns(cfg.Policy) {
		l.learnt = new(bwsched.Curves)
		bwsched.UseCurves(cfg.Policy, l.learnt)
	}
	var err error
	l.tenants, err = newTenants(cfg)
	return l, err
}

// now is the time since the link was made, in ns.
func (l *Link) now() float64 { return float64(l.clock.Now() - l.start) }

// run is the pacer.
func (l *Link) run() {
	defer close(l.ended)
	l.clock.Begin()
	for {
		l.mu.Lock()
		l.wake = -1
		next := l.dispatch(l.now())
		l.wake = next
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return
		}
		if next > ages {
			l.clock.SleepUntil(math.MaxInt64)
		} else {
			l.clock.SleepUntil(l.start + int64(math.Ceil(next)))
		}
	}
}

// Close ends the link and waits for its pacer; what waits in Take gets ErrClosed.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	for len(l.flows) > 0 {
		l.flows[0].close()
	}
	l.mu.Unlock()
	l.clock.Wake()
	<-l.ended
	return nil
}

// dispatch plans if it is time to, grants what may go now, and says when it
// must be called again; never if nothing waits.
func (l *Link) dispatch(now float64) (next float64) {
	l.replan(now)
	next = never
	for l.own.Len()+l.borrow.Len() > 0 {
		if l.due > now {
			next = l.due
			break
		}
		f, wait := l.next(now)
		if wait > 0 {
			next = now + wait
			break
		}
		l.grant(f, now)
	}
	if l.waiting > 0 && l.changed {
		next = min(next, l.planAt())
	}
	return next
}

// grant serves the first waiter of a flow that is queued.
func (l *Link) grant(f *Flow, now float64) {
	w := f.pop()
	l.charge(f, w.n, now)
	w.granted = true
	l.stats.Waited += time.Duration(now - w.since)
	w.ready <- struct{}{}
	f.sort()
}

// charge books n bytes that go now.
func (l *Link) charge(f *Flow, n int64, now float64) {
	l.due = max(l.due, now-l.credit) + float64(n)*1e9/l.cfg.Capacity
	f.due = max(f.due, now+f.q.skew-maxLag) + float64(n)*1e9/f.rate
	f.bytes += n
	l.stats.Bytes += n
}

// maxLag is how far a flow that waits may fall behind its rate, in ns, before
// the rest is forgotten. It falls behind only while the pacer itself is late.
const maxLag = 100e6

// rouse wakes the pacer if it would sleep beyond t.
func (l *Link) rouse(t float64) {
	if l.wake >= 0 && t < l.wake {
		l.wake = t
		l.clock.Wake()
	}
}

// Stats are a link's counters. Counts only grow.
type Stats struct {
	Policy   string
	Capacity float64 // bytes per second
	Granted  float64 // sum of the rates planned, bytes per second
	Pool     int     // flows that the policy plans
	Outside  int     // flows with a fair share
	Waiting  int     // Takes that wait

	Bytes   int64         // granted, less what was given back
	Waited  time.Duration // by all Takes together, cancelled ones included
	Plans   int64
	Refused int64 // Joins
	Learnt  int64 // deliveries that a policy which learns has taken for measurements
}

// Stats returns the counters as of now.
func (l *Link) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.waiting
	return s
}

// Join admits a flow, or refuses it with *BusyError. The caller closes it.
func (l *Link) Join(ctx context.Context, s Spec) (*Flow, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	t, err := l.tenants.admit(s.Tenant, len(l.flows))
	if err != nil {
		l.stats.Refused++
		return nil, err
	}
	now := l.now()
	f := &Flow{l: l, spec: s, tenant: t, q: &l.own, at: -1, index: len(l.flows), joined: now, settled: now, learn: l.learnFrom(&s)}
	if l.replans && t.MaxRate == 0 { // what is lent knows no ceiling
		f.q = &l.borrow
	}
	f.due = now + f.q.skew
	l.flows = append(l.flows, f)
	l.count(f, +1)
	if len(l.flows) == 1 {
		l.epochEnd = now // the first flow of an idle link begins an epoch
	}
	l.mark(now, true)
	return f, nil
}

// count keeps the numbers of flows by kind.
func (l *Link) count(f *Flow, n int) {
	if f.spec.pooled() {
		l.stats.Pool += n
	} else {
		l.stats.Outside += n
	}
}
