package pace

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// deliverOnce plays one delivery on an otherwise empty link with a clock of its
// own: each layer takes layerTime.
func deliverOnce(t *testing.T, l *Link, c *fakeClock, s Spec, layers int, layerTime time.Duration) {
	t.Helper()
	f, err := l.Join(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for range layers {
		plan(l)
		c.advance(layerTime)
		f.LayerDone()
	}
	f.Close()
}

// plan makes the plan that is due, as a Take would.
func plan(l *Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochEnd = l.now()
	l.replan(l.now())
}

// learning is a link so wide that nothing has to wait.
func learning(t *testing.T, cfg Config) (*Link, *fakeClock) {
	t.Helper()
	c := newFakeClock()
	cfg.Clock = c
	if cfg.Capacity == 0 {
		cfg.Capacity = 1e9
	}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, c
}

// TestLearns: a whole delivery is a point of its tenant's class: the rate that
// was granted, and the lateness of its layers by Eq. 3.
func TestLearns(t *testing.T) {
	for _, tc := range []struct {
		policy bwsched.Policy
		rate   float64 // of a delivery alone on the link
	}{{&bwsched.HullOpt{}, 1000 / 0.002}, {&bwsched.TTFTOpt{}, 1e9}} {
		policy := tc.policy
		l, c := learning(t, Config{Policy: policy})
		s := Spec{Tenant: "t", Class: "k", LayerBytes: 1000, Layers: 4, Compute: 2 * ms}
		deliverOnce(t, l, c, s, 4, 3*ms)
		curve := l.learnt.Class("t\x00k")
		if curve == nil || len(curve.Points()) != 1 {
			t.Fatalf("%s: no point was learnt: %v", policy.Name(), l.learnt.Names())
		}
		p := curve.Points()[0]
		// After layer 0 the layers are 3 ms apart and the windows 2: the last of
		// three is 3 ms late. Layer 0 counts as one transfer at the rate.
		if want := 1000/tc.rate + 0.003; math.Abs(p.Rate-tc.rate) > 1 || math.Abs(p.Added-want) > 1e-9 {
			t.Errorf("%s: learnt %+v, want %v at %g", policy.Name(), p, want, tc.rate)
		}
		if got := l.Stats().Learnt; got != 1 {
			t.Errorf("%d deliveries were learnt from", got)
		}
	}
}

// TestLearnsNothing: from what is broken off, chunk-major, of one layer, without
// a compute window, or under a policy that does not learn.
func TestLearnsNothing(t *testing.T) {
	s := Spec{Tenant: "t", Class: "k", LayerBytes: 1000, Layers: 4, Compute: 2 * ms}
	for _, c := range []struct {
		name   string
		policy bwsched.Policy
		change func(*Spec)
		layers int
	}{
		{"broken off", &bwsched.HullOpt{}, func(*Spec) {}, 3},
		{"chunk-major", &bwsched.HullOpt{}, func(s *Spec) { s.Mode = Chunk }, 4},
		{"no window", &bwsched.HullOpt{}, func(s *Spec) { s.Compute = 0 }, 4},
		{"one layer", &bwsched.HullOpt{}, func(s *Spec) { s.Layers = 1 }, 1},
		{"the paper's policy", &bwsched.StallOpt{}, func(*Spec) {}, 4},
		{"a name too long", &bwsched.HullOpt{}, func(s *Spec) { s.Class = strings.Repeat("k", 300) }, 4},
	} {
		l, clock := learning(t, Config{Policy: c.policy})
		s := s
		c.change(&s)
		deliverOnce(t, l, clock, s, c.layers, ms)
		if l.learnt != nil && len(l.learnt.Names()) != 0 {
			t.Errorf("%s: learnt %v", c.name, l.learnt.Names())
		}
	}
}

// TestLearntApart: tenants do not learn of each other, and a class begins as
// what was known of it beforehand, which stays as it was.
func TestLearntApart(t *testing.T) {
	known := new(bwsched.Curves)
	known.Observe("k", 5e8, 0.25)
	l, c := learning(t, Config{Policy: &bwsched.HullOpt{}, Curves: known})
	s := Spec{Tenant: "a", Class: "k", LayerBytes: 1000, Layers: 4, Compute: 2 * ms}
	deliverOnce(t, l, c, s, 4, 3*ms)
	deliverOnce(t, l, c, s, 4, 3*ms)
	s.Tenant = "b"
	deliverOnce(t, l, c, s, 3, 3*ms)
	if a, b, k := l.learnt.Class("a\x00k"), l.learnt.Class("b\x00k"), known.Class("k"); len(a.Points()) != 2 || len(b.Points()) != 1 || len(k.Points()) != 1 {
		t.Errorf("a has %v, b %v, known are %v", a.Points(), b.Points(), k.Points())
	}
}

// TestClassBySize: without a name, requests of about one size and window are of
// one class, and others are not.
func TestClassBySize(t *testing.T) {
	s := Spec{LayerBytes: 14 << 20, Layers: 32, Compute: 10 * ms}
	near, far, slow, deep := s, s, s, s
	near.LayerBytes, near.Compute = near.LayerBytes*101/100, near.Compute*101/100
	far.LayerBytes *= 2
	slow.Compute *= 2
	deep.Layers++
	if like(&s) != like(&near) {
		t.Errorf("%s and %s", like(&s), like(&near))
	}
	for _, o := range []*Spec{&far, &slow, &deep} {
		if like(&s) == like(o) {
			t.Errorf("%+v is like %+v", s, *o)
		}
	}
}

// TestLearntTarget: deliveries that gained by more than r*, as on a machine with
// a cost per layer, move the policy's target above it.
func TestLearntTarget(t *testing.T) {
	p := &bwsched.TTFTOpt{}
	l, c := learning(t, Config{Policy: p})
	const layer, layers, over = 1_000_000, 32, 500 * time.Microsecond
	s := Spec{Tenant: "t", Class: "k", LayerBytes: layer, Layers: layers, Compute: 2 * ms}
	request := bwsched.Request{LayerBytes: layer, Layers: layers, Compute: 2 * ms, Class: "t\x00k"}
	before := bwsched.Target(p, request)
	for i := range 20 {
		rate := 0.3e9 + 0.1e9*float64(i)
		other, err := l.Join(t.Context(), Spec{Tenant: "o", LayerBytes: layer, Layers: layers, Compute: 2 * ms})
		if err != nil {
			t.Fatal(err)
		}
		// What the pacer would grant at this rate is put in by hand: the policy
		// alone would never try the slow ones.
		f, err := l.Join(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for range layers {
			l.mu.Lock()
			f.setRate(rate, l.now())
			l.mu.Unlock()
			c.advance(time.Duration(layer/rate*1e9) + over)
			f.LayerDone()
			l.mu.Lock()
			l.epochEnd = math.Inf(1) // no plan but ours
			l.mu.Unlock()
		}
		f.Close()
		other.Close()
	}
	after := bwsched.Target(p, request)
	// A layer takes s/r + 0.5 ms: it hides behind 2 ms from s/1.5 ms on.
	if want := layer / 1.5e-3; before != layer/2e-3 || math.Abs(after/want-1) > 0.15 {
		t.Errorf("the target went from %.0f to %.0f, want about %.0f", before, after, want)
	}
}
