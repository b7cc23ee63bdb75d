package pace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
)

const ms = time.Millisecond

// pooled is a layerwise flow with a compute window.
func pooled(class string, layer int64) Spec {
	return Spec{Class: class, LayerBytes: layer, Compute: ms}
}

// TestTenLayers holds flows of many rates and layer sizes to their rates, on a
// link that has nothing to spare.
func TestTenLayers(t *testing.T) {
	for _, layer := range []int64{1, 1000, 16 << 10, 100_003, 1 << 20, 14 << 20, 64 << 20} {
		for _, rate := range []float64{1e5, 33e6, 1.25e9, 12.5e9} {
			each := time.Duration(float64(layer) / rate * 1e9)
			if each < 100 || each > 20*time.Second {
				continue // the clock counts whole ns
			}
			t.Run(fmt.Sprintf("%d bytes at %g", layer, rate), func(t *testing.T) {
				rest := table{rates: map[string]float64{"a": rate, "b": rate / 3, "c": rate * 2}}
				s := newSim(t, Config{Capacity: rate * 10 / 3, Policy: rest})
				a, b, c := s.join(pooled("a", layer)), s.join(pooled("b", 300_000)), s.join(pooled("c", 7<<20))
				b.read = func(int64) time.Duration { return 10 * time.Microsecond }
				s.play(s.l.cfg.Epoch) // those who came second are planned then
				s.play(max(25*each, 25*ms))
				for _, p := range s.players {
					p.layers = p.layers[min(1, len(p.layers)):] // the first begins with a quantum that need not wait
				}
				a.check(t, rate, 0.02)
				if n := len(c.layers); n > 12 {
					c.check(t, 2*rate, 0.02)
				}
				if n := len(b.layers); n > 12 {
					b.check(t, rate/3, 0.02)
				}
			})
		}
	}
}

// TestLatenessDoesNotAddUp wakes the pacer late, at times by whole
// milliseconds, and lets the reads take time that varies.
func TestLatenessDoesNotAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rate, layer = 400e6, 1 << 20 // 2.6 ms a layer
	s := newSim(t, Config{Capacity: 3 * rate, Policy: table{rates: map[string]float64{"a": rate, "b": 2 * rate}}})
	a, b := s.join(pooled("a", layer)), s.join(pooled("b", 14<<20))
	s.play(s.l.cfg.Epoch)
	s.late = uniform(r, 150*time.Microsecond)
	a.read = func(n int64) time.Duration { return time.Duration(n/4 + r.Int64N(100_000)) }
	b.read = a.read
	a.layers, b.layers = nil, nil
	s.play(2 * time.Second)
	a.check(t, rate, 0.02)
	b.check(t, 2*rate, 0.02)

	s.late = func() time.Duration {
		if r.IntN(50) == 0 {
			return 6 * ms
		}
		return uniform(r, 300*time.Microsecond)()
	}
	before := [2]int64{a.moved, b.moved}
	start := s.l.now()
	s.play(20 * time.Second)
	took := (s.l.now() - start) / 1e9
	for i, p := range []*player{a, b} {
		if got, want := float64(p.moved-before[i])/took, float64(i+1)*rate; math.Abs(got/want-1) > 0.002 {
			t.Errorf("flow %d: %.0f bytes per second over %.0f s, want %.0f", i, got, took, want)
		}
	}
}

// TestUnusedIsLost: with the paper's policies nobody gets what another does
// not use before the next plan, and a flow cannot save it up.
func TestUnusedIsLost(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: bwsched.Equal{}})
	a, b := s.join(pooled("a", 1<<20)), s.join(pooled("b", 1<<20))
	b.read = func(n int64) time.Duration { return time.Duration(float64(n) / 0.1e9 * 1e9) } // a slow client
	s.play(s.l.cfg.Epoch)
	a.moved, b.moved = 0, 0
	s.play(10 * time.Second)
	near(t, "the flow beside a slow one", float64(a.moved)/10, c/2, 0.001)
	near(t, "the slow flow", float64(b.moved)/10, 0.1e9, 0.01)

	b.stopped = true
	s.play(5 * time.Second)
	b.stopped, b.read, b.moved = false, nil, 0
	s.play(100 * ms)
	if most := c/2*(0.1+s.l.cfg.Burst.Seconds()) + MaxQuantum; float64(b.moved) > most {
		t.Errorf("after a pause %d bytes in 100 ms, at most %.0f", b.moved, most)
	}
}

// TestUnusedIsLent: with a policy that follows the requests it is lent, in
// proportion to the rates, and who comes back has its own rate at once.
func TestUnusedIsLent(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: table{rates: map[string]float64{"a": 0.1e9, "b": 0.3e9, "c": 0.5e9}, replans: true}})
	a, b, x := s.join(pooled("a", 1<<20)), s.join(pooled("b", 1<<20)), s.join(pooled("c", 1<<20))
	x.stopped = true
	for _, p := range s.players {
		p.quantum = 128 << 10
	}
	s.play(ms)
	a.moved, b.moved = 0, 0
	s.play(2 * time.Second)
	near(t, "the first borrower", float64(a.moved)/2, c/4, 0.01)
	near(t, "the second borrower", float64(b.moved)/2, c*3/4, 0.01)

	x.stopped = false
	x.layers = nil
	a.moved, b.moved = 0, 0
	s.play(2 * time.Second)
	near(t, "who came back", float64(x.moved)/2, c*5/9, 0.02)
	near(t, "the first borrower then", float64(a.moved)/2, c/9, 0.02)
	if x.longest > 3e6 {
		t.Errorf("who came back waited %.1f ms for one quantum", x.longest/1e6)
	}
}

// TestLendingStopsAtTheCeiling: a tenant with one borrows nothing, and has its
// rate beside one who borrows the rest.
func TestLendingStopsAtTheCeiling(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: table{rates: map[string]float64{"a": 0.1e9, "b": 0.2e9}, replans: true},
		Tenants: map[string]Limits{"few": {MaxRate: 0.2e9}}})
	a, few := s.join(pooled("a", 1<<20)), pooled("b", 1<<20)
	few.Tenant = "few"
	b := s.join(few)
	s.play(ms)
	a.moved, b.moved = 0, 0
	s.play(2 * time.Second)
	near(t, "the borrower", float64(a.moved)/2, c-0.2e9, 0.01)
	near(t, "the tenant with a ceiling", float64(b.moved)/2, 0.2e9, 0.01)
	b.check(t, 0.2e9, 0.02)
	a.stopped = true
	s.play(20 * ms)
	b.moved = 0
	s.play(2 * time.Second)
	near(t, "alone", float64(b.moved)/2, 0.2e9, 0.01)
}

// TestNobodyWaitsForOneWhoStopped: a flow that a policy gives nothing for now
// has all of the link while the favoured one does not ask, and next to nothing
// while it does.
func TestNobodyWaitsForOneWhoStopped(t *testing.T) {
	const c = 1e9
	for _, most := range []float64{0, 0.5e9} {
		s := newSim(t, Config{Capacity: c, Policy: table{rates: map[string]float64{"first": c}, replans: true},
			Tenants: map[string]Limits{"few": {MaxRate: most}}})
		first, spec := s.join(pooled("first", 1<<20)), pooled("second", 1<<20)
		spec.Tenant = "few"
		second := s.join(spec)
		s.play(ms)
		first.moved = 0
		s.play(time.Second)
		near(t, "the favoured", float64(first.moved), c, 0.005)
		if second.moved == 0 {
			t.Error("the other gets nothing for a second")
		}
		first.stopped = true
		s.play(100 * ms)
		second.moved = 0
		s.play(time.Second)
		if most == 0 {
			near(t, "the other, lent it all", float64(second.moved), c, 0.01)
		} else if second.moved == 0 || float64(second.moved) > most/1000 {
			t.Errorf("with a ceiling %d bytes", second.moved)
		}
		first.f.Close()
		second.f.Close()
		if st := s.l.Stats(); st.Granted != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestRateOfNothing: a rate of 0 is nothing until the next plan, and does not
// make a flow forget what it owes.
func TestRateOfNothing(t *testing.T) {
	rates := map[string]float64{"a": 1e6}
	s := newSim(t, Config{Capacity: 1e9, Policy: table{rates: rates}})
	f := s.join(pooled("a", 1<<30)).f
	s.players = nil
	if w, _ := s.l.ask(f, 100_000, s.l.now()); w != nil { // 100 ms
		t.Fatal("the first bytes wait")
	}
	turn := func(to float64) {
		t.Helper()
		rates["a"] = to
		s.l.mark(s.l.now(), true)
		if s.l.changed {
			s.play(time.Duration(s.l.planAt() - s.l.now()))
		}
		if f.Rate() != to {
			t.Fatalf("%g, want %g", f.Rate(), to)
		}
	}
	turn(0) // 50 ms are left
	w, _ := s.l.ask(f, 1, s.l.now())
	s.play(10 * time.Second)
	if w == nil || w.granted {
		t.Fatal("bytes went at no rate")
	}
	turn(2e6) // 25 ms
	if got := s.l.dispatch(s.l.now()) - s.l.now(); w.granted || math.Abs(got-25e6) > 1 {
		t.Errorf("due in %.3f ms", got/1e6)
	}
	s.play(25*ms + 2)
	if !w.granted {
		t.Error("not granted in time")
	}
	if st := s.l.Stats(); st.Bytes != 100_001 {
		t.Errorf("%+v", st)
	}
}

func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got/want-1) > tolerance {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

// TestEpochs: the paper's rates hold for an epoch, whoever comes or goes.
func TestEpochs(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: bwsched.Equal{}, Epoch: 60 * ms})
	rates := func(what string, want ...float64) {
		t.Helper()
		for i, p := range s.players {
			if got := p.f.Rate(); math.Abs(got-want[i]) > 1 {
				t.Errorf("%s: flow %d has %g, want %g", what, i, got, want[i])
			}
		}
	}
	s.join(pooled("", 1<<20))
	rates("alone", c)
	s.play(20 * ms)
	b := s.join(pooled("", 1<<20))
	s.play(39 * ms)
	rates("within the epoch", c, 0)
	if b.moved != 0 {
		t.Error("bytes went without a rate")
	}
	s.play(2 * ms)
	rates("in the next", c/2, c/2)
	if b.moved == 0 {
		t.Error("a flow that waited for its first rate was not woken")
	}
	if s.l.due > s.l.now()+float64(ms)*3 {
		t.Error("the link is behind")
	}
	s.play(20 * ms)
	s.players[0].f.Close()
	s.players[0].stopped, s.players[0].w = true, nil
	s.play(30 * ms)
	rates("after a finish", 0, c/2)
	s.play(20 * ms)
	rates("in the epoch after a finish", 0, c)
	// Epochs go by unchanged; the next change waits for the end of the one it is in.
	s.play(600*ms - time.Duration(s.l.now())%(60*ms))
	s.play(25 * ms)
	s.join(pooled("", 1<<20))
	at := s.l.planAt()
	if at <= s.l.now() || at > s.l.now()+60e6 {
		t.Errorf("planned in %.1f ms", (at-s.l.now())/1e6)
	}
	plans := s.l.Stats().Plans
	s.play(10 * time.Second)
	if n := s.l.Stats().Plans - plans; n > 10*1000/60+1 {
		t.Errorf("%d plans in 10 s", n)
	}
}

// TestReplans: a policy that follows the requests plans at each arrival, first
// layer and finish, but not more often than planning can be afforded.
func TestReplans(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: following{}})
	plans := func(what string, want int64) {
		t.Helper()
		if got := s.l.Stats().Plans; got != want {
			t.Errorf("%s: %d plans, want %d", what, got, want)
		}
	}
	a := s.join(pooled("", 4<<20))
	a.stopped = true
	plans("an arrival", 1)
	s.play(ms)
	b := s.join(pooled("", 1<<20))
	b.stopped = true
	plans("another", 2)
	near(t, "the first flow's rate", a.f.Rate(), c/2, 0)
	s.play(ms)
	a.f.LayerDone()
	plans("a first layer", 3)
	s.play(ms)
	a.f.LayerDone()
	plans("a later layer", 3)
	s.play(100 * ms)
	plans("the end of the epoch after that", 4)
	a.f.Close()
	a.f.Close()
	s.play(ms)
	plans("a finish", 5)
	near(t, "the other's rate", b.f.Rate(), c, 0)
	s.play(ms)
	for range 100 {
		s.join(pooled("", 1<<20)).stopped = true
	}
	if n := s.l.Stats().Plans; n > 7 {
		t.Errorf("%d plans for a hundred arrivals at one time", n-5)
	}
	s.play(200 * ms)
	s.join(pooled("", 1<<20)) // its Take makes the plan that is due
	s.play(ms)
	near(t, "the rate of a hundred and two", b.f.Rate(), c/102, 1e-9)
}

// TestFairShareOutsideThePool: chunk mode and flows without a compute window
// get 1/n of the link, and the pool the rest.
func TestFairShareOutsideThePool(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: table{rates: map[string]float64{"big": 5e9, "small": 0.05e9}}})
	chunk := s.join(Spec{Mode: Chunk, LayerBytes: 1 << 20, Compute: ms})
	plain := s.join(Spec{LayerBytes: 1 << 20})
	small := s.join(pooled("small", 1<<20))
	other := s.join(pooled("small", 1<<20))
	s.play(100 * ms)
	for _, p := range s.players {
		p.moved = 0
	}
	s.play(time.Second)
	near(t, "chunk mode", float64(chunk.moved), c/4, 0.01)
	near(t, "no compute window", float64(plain.moved), c/4, 0.01)
	near(t, "in the pool", float64(small.moved), 0.05e9, 0.03)
	near(t, "in the pool", float64(other.moved), 0.05e9, 0.03)
	if st := s.l.Stats(); st.Pool != 2 || st.Outside != 2 || math.Abs(st.Granted-0.6e9) > 1 {
		t.Errorf("%+v", st)
	}
	// A policy that hands out more than it has is held to the pool.
	big := s.join(pooled("big", 1<<20))
	s.play(100 * ms)
	near(t, "a policy gone wild", big.f.Rate()+small.f.Rate()+other.f.Rate(), c*3/5, 1e-9)
}

// TestNobodyStarves plays many flows of random sizes and rates on a full link:
// each Take is served within what its rate and the others' quanta allow.
func TestNobodyStarves(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const c, n = 2e9, 300
	rates, total := map[string]float64{}, 0.0
	for i := range n {
		x := math.Exp(r.Float64() * 6)
		rates[fmt.Sprint(i)] = x
		total += x
	}
	for k := range rates {
		rates[k] *= c / total
	}
	s := newSim(t, Config{Capacity: c, Policy: table{rates: rates}})
	all := 0.0
	for i := range n {
		p := s.join(pooled(fmt.Sprint(i), 1+r.Int64N(3<<20)))
		p.quantum = 1 + r.Int64N(MaxQuantum)
		all += float64(p.quantum)
	}
	s.late = uniform(r, 100*time.Microsecond)
	s.play(3 * time.Second)
	for i, p := range s.players {
		rate := rates[fmt.Sprint(i)]
		most := float64(p.quantum)/rate*1e9 + all/c*1e9 + float64(s.l.cfg.Epoch) + 10e6
		if p.longest > most {
			t.Errorf("flow %d waited %.1f ms for %d bytes at %.4g, at most %.1f", i, p.longest/1e6, p.quantum, rate, most/1e6)
		}
		if p.w != nil && s.l.now()-p.w.since > most {
			t.Errorf("flow %d still waits", i)
		}
		if least := rate*2.5 - 2*float64(p.quantum); float64(p.moved) < least {
			t.Errorf("flow %d moved %d bytes at %.4g", i, p.moved, rate)
		}
	}
}
