package pace

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// fakeClock moves only when it is told to.
type fakeClock struct {
	mu     sync.Mutex
	change sync.Cond
	now    int64
	woken  bool
	asleep bool
	until  int64
	sleeps int
}

func newFakeClock() *fakeClock {
	c := &fakeClock{now: 1_000_000_007}
	c.change.L = &c.mu
	return c
}

func (c *fakeClock) Begin() {}

func (c *fakeClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) SleepUntil(t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep, c.until = true, t
	c.sleeps++
	c.change.Broadcast()
	for c.now < t && !c.woken {
		c.change.Wait()
	}
	c.asleep, c.woken = false, false
}

func (c *fakeClock) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.woken = true
	c.change.Broadcast()
}

// parked waits until the pacer sleeps and nothing wakes it, and says until when.
func (c *fakeClock) parked() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.asleep || c.woken || c.now >= c.until {
		c.change.Wait()
	}
	return c.until
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += int64(d)
	c.change.Broadcast()
}

// table is a policy that gives each class its rate, whatever the capacity.
type table struct {
	rates   map[string]float64
	replans bool
}

func (table) Name() string    { return "table" }
func (p table) Replans() bool { return p.replans }

func (p table) Rates(_ float64, reqs []bwsched.Request, rates []float64) {
	for i, r := range reqs {
		rates[i] = p.rates[r.Class]
	}
}

// following is a policy of equal rates that follows the requests' state.
type following struct{ bwsched.Equal }

func (following) Replans() bool { return true }

// player delivers layer after layer on one flow, the way deliver does.
type player struct {
	f        *Flow
	read     func(n int64) time.Duration // how long n granted bytes take to move; nil: no time
	quantum  int64                       // 0: as the flow advises
	w        *waiter
	left     int64 // of the layer
	free     float64
	stopped  bool
	layers   []float64 // when each was done
	begun    float64
	longest  float64 // that a Take waited
	moved    int64
	maxLayer int
}

// sim plays a link with a clock of its own, without goroutines.
type sim struct {
	t       testing.TB
	l       *Link
	clock   *fakeClock
	players []*player
	late    func() time.Duration // how late the pacer wakes; nil: never
	next    float64

	level float64 // of a bucket that leaks at the link's capacity: checks every interval
	seen  float64
}

func newSim(t testing.TB, cfg Config) *sim {
	t.Helper()
	s := &sim{t: t, clock: newFakeClock()}
	cfg.Clock = s.clock
	var err error
	if s.l, err = newLink(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sim) join(spec Spec) *player {
	s.t.Helper()
	if spec.Layers == 0 {
		spec.Layers = 1 << 20
	}
	f, err := s.l.Join(context.Background(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &player{f: f, left: spec.LayerBytes, begun: s.l.now()}
	s.players = append(s.players, p)
	return p
}

// granted books what went out at the present time, and fails if by any
// interval's measure it is more than the link may send.
func (s *sim) granted(p *player, n int64) {
	now, c := s.l.now(), s.l.cfg.Capacity/1e9
	s.level = max(0, s.level-c*(now-s.seen)) + float64(n)
	s.seen = now
	if most := c*float64(s.l.cfg.Burst) + 3*MaxQuantum; s.level > most*(1+1e-9) {
		s.t.Fatalf("at %.6f s the link is %.0f bytes ahead of its capacity, at most %.0f are allowed", now/1e9, s.level, most)
	}
	p.moved += n
	if p.left -= n; p.left == 0 {
		p.layers = append(p.layers, now)
		p.f.LayerDone()
		p.left = p.f.spec.LayerBytes
	}
	p.free = now
	if p.read != nil {
		p.free += float64(p.read(n))
	}
}

// play runs until the clock has moved by d.
func (s *sim) play(d time.Duration) {
	s.t.Helper()
	end := s.l.now() + float64(d)
	for steps := 0; ; steps++ {
		now := s.l.now()
		for again := true; again; {
			again = false
			for _, p := range s.players {
				if w := p.w; w != nil && w.granted {
					<-w.ready
					p.longest = max(p.longest, now-w.since)
					n := w.n
					s.l.release(w)
					p.w = nil
					s.granted(p, n)
				}
				if p.w != nil || p.stopped || p.free > now || p.maxLayer > 0 && len(p.layers) >= p.maxLayer {
					continue
				}
				n := p.quantum
				if n == 0 {
					n = p.f.Quantum()
				}
				n = min(n, p.left)
				var at float64
				if p.w, at = s.l.ask(p.f, n, now); p.w == nil {
					s.granted(p, n)
				} else if s.late != nil && at < s.next {
					s.next = at + float64(s.late())
				}
				again = true
			}
			if s.next <= now || s.late == nil {
				s.next = s.l.dispatch(now)
				if s.late != nil && s.next < never {
					s.next += float64(s.late())
				}
				for _, p := range s.players {
					again = again || p.w != nil && p.w.granted
				}
			}
		}
		t := min(end, s.next)
		for _, p := range s.players {
			if p.w == nil && !p.stopped && (p.maxLayer == 0 || len(p.layers) < p.maxLayer) {
				t = min(t, p.free)
			}
		}
		if now >= end {
			return
		}
		if d := time.Duration(math.Ceil(t - now)); d > 0 {
			s.clock.advance(d)
		} else {
			s.clock.advance(1)
		}
	}
}

// check fails unless every ten layers in a row took what the rate says, to a
// part of tolerance.
func (p *player) check(t testing.TB, rate, tolerance float64) {
	t.Helper()
	if len(p.layers) < 12 {
		t.Fatalf("only %d layers", len(p.layers))
	}
	want := 10 * float64(p.f.spec.LayerBytes) / rate * 1e9
	for i := 0; i+10 < len(p.layers); i++ {
		got := p.layers[i+10] - p.layers[i]
		if math.Abs(got/want-1) > tolerance {
			t.Fatalf("layers %d to %d of %d bytes took %.3f ms, %.3f at %.4g bytes per second",
				i, i+10, p.f.spec.LayerBytes, got/1e6, want/1e6, rate)
		}
	}
}

func uniform(r *rand.Rand, most time.Duration) func() time.Duration {
	return func() time.Duration { return time.Duration(r.Int64N(int64(most))) }
}
