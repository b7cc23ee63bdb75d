package bwsched_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/sim"
)

// measured reads the paper's measurements: of each class its TTFT at each rate,
// less the least of them, which is returned too (the paper's TTFT without limit
// is below the computing time of Table A8 for some). Their sums are Table A12's.
func measured(t testing.TB) (points map[string][]bwsched.Point, base map[string]float64) {
	t.Helper()
	points, base = map[string][]bwsched.Point{}, map[string]float64{}
	totals := map[string]float64{}
	n := 0
	for _, f := range lines(t, "testdata/tables-a10-a11.txt") {
		class, ttft := f[2], number(t, f[4])
		points[class] = append(points[class], bwsched.Point{Rate: number(t, f[3]) * sim.Gbps, Added: ttft / 1e3, Weight: 1})
		totals[f[0]+" "+f[1]] += ttft
		n++
	}
	if n != 70 {
		t.Fatalf("%d measurements, want 70", n)
	}
	for _, f := range lines(t, "testdata/table-a12.txt") {
		if got, want := totals[f[0]+" "+f[1]], number(t, f[2]); math.Abs(got-want) > 0.25 {
			t.Fatalf("the measurements of %s %s add up to %.1f ms, Table A12 has %.1f", f[0], f[1], got, want)
		}
	}
	for class, ps := range points {
		base[class] = math.Inf(1)
		for _, p := range ps {
			base[class] = min(base[class], p.Added)
		}
		for i := range ps {
			ps[i].Added -= base[class]
		}
	}
	return points, base
}

// TestHullOptimum: on the lower convex hull of the paper's measurements the best
// that held rates can do, which Calibrated Stall-opt misses by 2 % and Stall-opt
// by up to 8 %.
func TestHullOptimum(t *testing.T) {
	points, base := measured(t)
	for name, want := range map[string]float64{"A": 12517, "B": 13947, "C": 23078} {
		w := workload(t, name)
		var curves bwsched.Curves
		for class, ps := range points {
			for range 8 { // enough to be believed
				for _, p := range ps {
					curves.Observe(class, p.Rate, p.Added)
				}
			}
		}
		rates := make([]float64, len(w.Requests))
		p := policy(t, "hull-opt", 0)
		bwsched.UseCurves(p, &curves)
		p.Rates(w.Capacity, requests(w), rates)
		total, sum := 0.0, 0.0
		for i, r := range w.Requests {
			total += 1e3 * (bwsched.NewHull(points[r.Class]).Added(rates[i]) + base[r.Class])
			sum += rates[i]
		}
		if math.Abs(total-want) > 1 || sum > w.Capacity*(1+1e-12) {
			t.Errorf("workload %s: total TTFT %.1f ms at %.3f Gbps, want %.0f", name, total, sum/sim.Gbps, want)
		}
	}
}

// TestNewHull compares with the definition: the value of the lower hull at a
// measured rate is the lowest of all chords over it, and from its minimum on flat.
func TestNewHull(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var ps []bwsched.Point
		for range 1 + rng.IntN(12) {
			ps = append(ps, bwsched.Point{Rate: float64(1 + rng.IntN(20)), Added: rng.Float64() * 10, Weight: 1 + rng.Float64()})
		}
		sums := map[float64][2]float64{}
		for _, p := range ps {
			s := sums[p.Rate]
			sums[p.Rate] = [2]float64{s[0] + p.Weight, s[1] + p.Weight*p.Added}
		}
		value := func(rate float64) float64 { // also the least of any lower rate
			low := math.Inf(1)
			for x, sx := range sums {
				if x <= rate {
					low = min(low, sx[1]/sx[0])
				}
				for y, sy := range sums {
					if x <= rate && rate <= y && x < y {
						a, b := sx[1]/sx[0], sy[1]/sy[0]
						low = min(low, a+(b-a)*(rate-x)/(y-x))
					}
				}
			}
			return low
		}
		h := bwsched.NewHull(ps)
		least := math.Inf(1)
		for rate := 1.0; rate <= 20; rate++ {
			if !slices.ContainsFunc(ps, func(p bwsched.Point) bool { return p.Rate <= rate }) {
				continue
			}
			least = min(least, value(rate))
			if got := h.Added(rate); math.Abs(got-least) > 1e-9 {
				t.Fatalf("%v at %v: %v, want %v", ps, rate, got, least)
			}
		}
	}
	if bwsched.NewHull(nil) != nil || bwsched.NewHull([]bwsched.Point{{Rate: math.NaN(), Weight: 1}, {Rate: 1, Added: 1}}) != nil {
		t.Error("a hull of nothing")
	}
}

// TestKneeIsZeroStall: where measurements follow Eq. 3, the learnt target is the
// zero-stall rate; fixed costs on top do not move it.
func TestKneeIsZeroStall(t *testing.T) {
	for _, c := range sim.Configs() {
		r := bwsched.Request{LayerBytes: c.LayerBytes, Compute: c.Compute, Layers: c.Layers, Class: c.Class}
		star := bwsched.ZeroStall(r)
		var curves bwsched.Curves
		for i := range 40 {
			// The last of them are fast enough to have next to no X_0.
			rate := star * math.Pow(1.25, float64(i-8))
			curves.Observe(r.Class, rate, bwsched.Added(rate, r)+0.3)
		}
		p := policy(t, "ttft-opt", 0)
		if got := bwsched.Target(p, r); got != star {
			t.Errorf("%s: target %g without a curve, want %g", c.Name, got, star)
		}
		bwsched.UseCurves(p, &curves)
		if got := bwsched.Target(p, r); math.Abs(got/star-1) > 0.02 {
			t.Errorf("%s: learnt target %g, want %g", c.Name, got, star)
		}
	}
}

// TestLearnsOverhead: where each layer costs more than its bytes at the granted
// rate, the zero-stall rate is too low and the learnt target is right.
func TestLearnsOverhead(t *testing.T) {
	r := bwsched.Request{LayerBytes: 1e8, Compute: 20 * time.Millisecond, Layers: 32, Class: "x"}
	const overhead = 0.004 // seconds a layer
	deliver := func(rate, wait float64) (ready []float64) {
		for l := range r.Layers {
			ready = append(ready, wait+float64(l)*(overhead+r.LayerBytes/rate))
		}
		return ready
	}
	var curves bwsched.Curves
	rng := rand.New(rand.NewPCG(13, 14))
	for range 300 {
		rate := bwsched.ZeroStall(r) * math.Exp2(4*rng.Float64()-1)
		curves.ObserveDelivery(rate, deliver(rate, rng.Float64()), r)
	}
	curves.ObserveDelivery(1e9, []float64{7}, r)
	curves.ObserveDelivery(math.NaN(), []float64{7, 8}, r)
	p := policy(t, "ttft-opt", 0)
	star, right := bwsched.Target(p, r), r.LayerBytes/(r.Compute.Seconds()-overhead)
	bwsched.UseCurves(p, &curves)
	learnt := bwsched.Target(p, r)
	if math.Abs(learnt/right-1) > 0.05 {
		t.Errorf("learnt target %.3g, want %.3g; the zero-stall rate is %.3g", learnt, right, star)
	}
	// What it stalls at either rate, less the wait for layer 0.
	if at := bwsched.AddedBy(deliver(star, 0), r.Compute, 0); at < 0.1 {
		t.Errorf("at the zero-stall rate it stalls %.3f s", at)
	}
	if at := bwsched.AddedBy(deliver(learnt, 0), r.Compute, 0); at > 0.02 {
		t.Errorf("at the learnt rate it stalls %.3f s", at)
	}
}

// TestTargetWithoutEvidence: rates that were all too low to show the knee say
// nothing about it.
func TestTargetWithoutEvidence(t *testing.T) {
	r := bwsched.Request{LayerBytes: 1e6, Compute: time.Millisecond, Layers: 32, Class: "x"}
	var curves bwsched.Curves
	p := policy(t, "ttft-opt", 0)
	bwsched.UseCurves(p, &curves)
	for i := range 20 {
		rate := 1e8 * (1 + float64(i)/10)
		curves.Observe("x", rate, bwsched.Added(rate, r))
		if got, want := bwsched.Target(p, r), bwsched.ZeroStall(r); got != want {
			t.Fatalf("after %d measurements the target is %g, want %g", i+1, got, want)
		}
	}
}

// TestLearntTargetsOfThePaper: the knees of the measured curves lie above r*, as
// the paper found (Figure 15), by margins from 2 to 4 Gbps; where it measured
// too little beyond, none is found.
func TestLearntTargetsOfThePaper(t *testing.T) {
	points, _ := measured(t)
	want := map[string][2]float64{"16K,50%": {2.5, 3.5}, "64K,50%": {3.5, 4.5}, "64K,87.5%": {1.5, 2.5}}
	for _, c := range sim.Configs() {
		h := bwsched.NewHull(points[c.Class])
		if h == nil {
			continue
		}
		knee, ok := h.Knee(c.Compute.Seconds())
		margin := (knee - c.LayerBytes/c.Compute.Seconds()) / sim.Gbps
		w, known := want[c.Class]
		if ok != known || known && (margin < w[0] || margin > w[1]) {
			t.Errorf("%s: knee %.2f Gbps above r*, found %v, want %v", c.Name, margin, ok, w)
		}
	}
}

// TestCurveForgets: when the response changes, the new one is learnt.
func TestCurveForgets(t *testing.T) {
	var c bwsched.Curve
	rng := rand.New(rand.NewPCG(3, 4))
	feed := func(factor float64, n int) {
		for range n {
			rate := 1e6 * math.Exp(4*rng.Float64())
			c.Observe(rate, factor*1e6/rate)
			if n := len(c.Points()); n > bwsched.MaxPoints {
				t.Fatalf("%d points", n)
			}
		}
	}
	at := func(want float64) {
		t.Helper()
		for _, rate := range []float64{2e6, 5e6, 1e7, 3e7} {
			if got := c.Hull().Added(rate) * rate / 1e6; math.Abs(got-want) > 0.1*want {
				t.Errorf("at %g: %g, want %g", rate, got, want)
			}
		}
	}
	feed(1, 2000)
	at(1)
	feed(3, 4000)
	at(3)
}

// TestCurvesMergeAndJSON: what was learnt apart is learnt together, and a
// profile file gives it back.
func TestCurvesMergeAndJSON(t *testing.T) {
	var one, two, both bwsched.Curves
	for i := range 60 {
		class := []string{"a", "b"}[i%2]
		rate, added := float64(1+i%7)*1e6, 1/float64(1+i%7)
		both.Observe(class, rate, added)
		if i < 30 {
			one.Observe(class, rate, added)
		} else {
			two.Observe(class, rate, added)
		}
	}
	before, err := json.Marshal(two)
	if err != nil {
		t.Fatal(err)
	}
	one.Merge(&two)
	if after, err := json.Marshal(two); err != nil || string(after) != string(before) {
		t.Errorf("merging changed its argument: %s, %v", after, err)
	}
	b, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	if inside, err := json.Marshal(struct{ Curves bwsched.Curves }{one}); err != nil || string(inside) != `{"Curves":`+string(b)+"}" {
		t.Errorf("as a field: %s, %v", inside, err)
	}
	var back bwsched.Curves
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back.Names(), both.Names()) {
		t.Fatalf("classes %q, want %q", back.Names(), both.Names())
	}
	for _, name := range both.Names() {
		got, want := back.Class(name).Points(), both.Class(name).Points()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", name, got, want)
		}
		for i := range got {
			// Weights differ by what was forgotten.
			if got[i].Rate != want[i].Rate || math.Abs(got[i].Added-want[i].Added) > 1e-12 || math.Abs(got[i].Weight/want[i].Weight-1) > 0.2 {
				t.Errorf("%s point %d: %v, want %v", name, i, got[i], want[i])
			}
		}
	}
	if back.Class("c") != nil || back.Class("") != nil {
		t.Error("a curve of a class never seen")
	}
}

// TestCurvesAreBounded: clients name classes, so their number has an end; what
// is seen often outlives what was seen once.
func TestCurvesAreBounded(t *testing.T) {
	var c bwsched.Curves
	for i := range 2000 {
		c.Observe("often", 1e6, 1)
		c.Observe("once"+string(rune('A'+i%26))+time.Duration(i).String(), 1e6, 1)
	}
	c.Observe("", 1e6, 1)
	c.Observe(strings.Repeat("x", 1000), 1e6, 1)
	for _, bad := range [][2]float64{{0, 1}, {-1, 1}, {math.NaN(), 1}, {1, math.NaN()}, {1, -1}, {math.Inf(1), 1}, {1, math.Inf(1)}} {
		c.Observe("bad", bad[0], bad[1])
	}
	names := c.Names()
	if len(names) != bwsched.MaxClasses || !slices.Contains(names, "often") || slices.Contains(names, "bad") {
		t.Errorf("%d classes, of them often %v, bad %v", len(names), slices.Contains(names, "often"), slices.Contains(names, "bad"))
	}
}

func TestCurvesRefuseBadFiles(t *testing.T) {
	for _, text := range []string{
		`[]`, `{"a": 1}`, `{"": []}`, `{"a": [{"rate_bytes_per_s": 0, "added_s": 1, "weight": 1}]}`,
		`{"a": [{"rate_bytes_per_s": 1, "added_s": -1, "weight": 1}]}`, `{"a": [{"rate_bytes_per_s": 1, "added_s": 1}]}`,
		`{"a": [` + strings.Repeat(`{"rate_bytes_per_s": 1, "added_s": 1, "weight": 1},`, 64) + `{"rate_bytes_per_s": 2, "added_s": 1, "weight": 1}]}`,
	} {
		var c bwsched.Curves
		if err := json.Unmarshal([]byte(text), &c); err == nil || len(c.Names()) != 0 {
			t.Errorf("%.60s: %v, error %v", text, c.Names(), err)
		}
	}
}

// FuzzCurves reads a profile's curves: whatever is taken is written back as it
// is, and gives rates.
func FuzzCurves(f *testing.F) {
	f.Add([]byte(`{"16K": [{"rate_bytes_per_s": 1e9, "added_s": 0.5, "weight": 3}, {"rate_bytes_per_s": 2e9, "added_s": 0.1, "weight": 9}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c, back bwsched.Curves
		if json.Unmarshal(data, &c) != nil {
			return
		}
		first, err := json.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(first, &back); err != nil {
			t.Fatalf("%v: %s", err, first)
		}
		if second, err := json.Marshal(&back); err != nil || string(first) != string(second) {
			t.Fatalf("%v: %s, then %s", err, first, second)
		}
		for _, name := range []string{"hull-opt", "ttft-opt"} {
			p := policy(t, name, 0)
			bwsched.UseCurves(p, &c)
			var reqs []bwsched.Request
			for _, class := range c.Names() {
				reqs = append(reqs, bwsched.Request{LayerBytes: 1e6, Compute: time.Millisecond, Layers: 32, Class: class})
			}
			rates := make([]float64, len(reqs))
			p.Rates(1e9, reqs, rates)
			sound(t, p, 1e9, reqs, rates)
		}
	})
}
