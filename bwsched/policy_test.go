package bwsched_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
)

func TestByName(t *testing.T) {
	for _, name := range bwsched.Names() {
		if p := policy(t, name, 1); p.Name() != name {
			t.Errorf("%s calls itself %s", name, p.Name())
		}
	}
	if _, err := bwsched.ByName("fastest", 0); err == nil || !strings.Contains(err.Error(), "kv-prop, bw-prop") {
		t.Errorf("an unknown name: %v", err)
	}
	for _, margin := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := bwsched.ByName("cal-stall-opt", margin); err == nil {
			t.Errorf("margin %v is taken", margin)
		}
	}
	for _, name := range bwsched.Names() {
		if got, want := bwsched.Replans(policy(t, name, 0)), name == "ttft-opt"; got != want {
			t.Errorf("%s replans: %v", name, got)
		}
	}
}

// TestModel compares with Eq. 3 summed term by term.
func TestModel(t *testing.T) {
	r := bwsched.Request{LayerBytes: 300, Compute: 2 * time.Second, Layers: 5}
	for _, rate := range []float64{50, 100, 150, 151, 1000} {
		x, c := 300/rate, 2.0
		want := x
		var ready []float64
		for l := range 5 {
			if l < 4 {
				want += max(x, c)
			}
			ready = append(ready, x*float64(l+1))
		}
		want += c
		if got := bwsched.TTFT(rate, r); math.Abs(got-want) > 1e-12 {
			t.Errorf("TTFT at %v: %v, want %v", rate, got, want)
		}
		if got := bwsched.Added(rate, r); math.Abs(got-(want-10)) > 1e-12 {
			t.Errorf("added at %v: %v, want %v", rate, got, want-10)
		}
		if got := bwsched.AddedBy(ready, r.Compute, 0); math.Abs(got-(want-10)) > 1e-12 {
			t.Errorf("added by %v: %v, want %v", ready, got, want-10)
		}
		if got, want := bwsched.Stall(rate, r), max(0, x-c); math.Abs(got-want) > 1e-12 {
			t.Errorf("stall at %v: %v, want %v", rate, got, want)
		}
	}
	// A layer that is late once delays everything after it once.
	if got := bwsched.AddedBy([]float64{11, 19, 15, 17, 19}, 2*time.Second, 10); got != 7 {
		t.Errorf("added %v, want 7", got)
	}
	if got := bwsched.TTFT(0, r); !math.IsInf(got, 1) {
		t.Errorf("TTFT at rate 0 is %v", got)
	}
	r.Compute = 0
	if !math.IsInf(bwsched.ZeroStall(r), 1) || bwsched.Stall(100, r) != 3 || bwsched.TTFT(100, r) != 15 {
		t.Errorf("without a window: %v %v %v", bwsched.ZeroStall(r), bwsched.Stall(100, r), bwsched.TTFT(100, r))
	}
}

// instance is a random set of requests, of sizes 1e3 to 1e9 or all scales.
func instance(rng *rand.Rand, n int) (capacity float64, reqs []bwsched.Request) {
	span, base := 4.0, 1e6
	if rng.IntN(4) == 0 {
		span, base = 27, 1e3 // 1e-11 to 1e16
	}
	need := 0.0
	for range n {
		r := bwsched.Request{
			LayerBytes: base * math.Pow(10, span*(rng.Float64()-0.5)),
			Compute:    time.Duration(math.Pow(10, 5+4*rng.Float64())),
			Layers:     1 + rng.IntN(64),
			Started:    rng.IntN(2) == 0,
			Age:        time.Duration(rng.IntN(3)) * time.Second,
		}
		if rng.IntN(10) == 0 {
			r.Compute = 0
		} else {
			need += bwsched.ZeroStall(r)
		}
		reqs = append(reqs, r)
	}
	return max(need, base) * math.Pow(10, 2*rng.Float64()-1.5), reqs
}

// sound fails unless rates are a split of the capacity.
func sound(t *testing.T, p bwsched.Policy, capacity float64, reqs []bwsched.Request, rates []float64) {
	t.Helper()
	sum := 0.0
	for i, r := range rates {
		if !(r >= 0) || math.IsInf(r, 0) {
			t.Fatalf("%s: rate %d is %v of %v: %+v", p.Name(), i, r, capacity, reqs)
		}
		sum += r
		if s, ok := p.(*bwsched.StallOpt); ok && r > s.Target(reqs[i])*(1+1e-12) {
			t.Fatalf("%s: rate %d is %v, above its target %v", p.Name(), i, r, s.Target(reqs[i]))
		}
	}
	if sum > max(capacity, 0)*(1+1e-9) {
		t.Fatalf("%s: the rates sum to %v of %v: %+v", p.Name(), sum, capacity, reqs)
	}
}

// TestProperties: on random instances of every scale.
func TestProperties(t *testing.T) {
	for _, name := range bwsched.Names() {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			p := policy(t, name, 1e6)
			for range 500 {
				capacity, reqs := instance(rng, 1+rng.IntN(80))
				rates := make([]float64, len(reqs))
				p.Rates(capacity, reqs, rates)
				sound(t, p, capacity, reqs, rates)
				var sum float64
				for _, r := range rates {
					sum += r
				}
				if name != "stall-opt" && name != "cal-stall-opt" && name != "hull-opt" && sum < capacity*(1-1e-9) {
					t.Fatalf("%v of %v are used", sum, capacity)
				}
				// In another order everyone has the same.
				order := rng.Perm(len(reqs))
				mixed, other := make([]bwsched.Request, len(reqs)), make([]float64, len(reqs))
				for i, j := range order {
					mixed[i] = reqs[j]
				}
				p.Rates(capacity, mixed, other)
				for i, j := range order {
					if math.Abs(other[i]-rates[j]) > 1e-9*capacity {
						t.Fatalf("request %+v has %v in one order and %v in another", reqs[j], rates[j], other[i])
					}
				}
			}
		})
	}
}

// TestDegenerate: nothing that a caller may hand over gives a rate that is none.
func TestDegenerate(t *testing.T) {
	ok := bwsched.Request{LayerBytes: 1e6, Compute: time.Millisecond, Layers: 8}
	odd := []bwsched.Request{
		ok, {}, {LayerBytes: 1e6}, {LayerBytes: -1, Compute: 1, Layers: 1}, {LayerBytes: math.NaN(), Compute: 1, Layers: 1},
		{LayerBytes: math.Inf(1), Compute: 1, Layers: 1}, {LayerBytes: 1e300, Compute: 1, Layers: 1}, {LayerBytes: 1e6, Compute: -1, Layers: -5},
		{LayerBytes: 1e-12, Compute: math.MaxInt64, Layers: 1}, {LayerBytes: 1e15, Compute: 1, Layers: math.MaxInt32, Started: true},
		{LayerBytes: math.SmallestNonzeroFloat64, Compute: math.MaxInt64, Layers: 1, Started: true}, ok, ok, ok,
	}
	for _, name := range bwsched.Names() {
		p := policy(t, name, 0)
		for _, capacity := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e-12, 1, 1e15, math.MaxFloat64} {
			bound := capacity
			if math.IsNaN(bound) {
				bound = 0
			}
			for _, reqs := range [][]bwsched.Request{nil, odd[:1], odd, odd[1:2], odd[7:8], odd[8:9], odd[9:10], odd[10:11], odd[11:]} {
				rates := make([]float64, len(reqs))
				for i := range rates {
					rates[i] = math.NaN() // whatever was there before
				}
				p.Rates(capacity, reqs, rates)
				sound(t, p, bound, reqs, rates)
			}
		}
	}
}

// slowest minimises the sum of cost over splits of the capacity by moving rate
// between pairs for as long as that helps. It knows nothing of targets, roots or
// multipliers.
func slowest(capacity float64, n int, cost func(i int, rate float64) float64) float64 {
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = capacity / float64(n)
	}
	total := func() (sum float64) {
		for i, r := range rates {
			sum += cost(i, r)
		}
		return sum
	}
	before := total()
	for range 3000 {
		for i := range n {
			for j := range i {
				both := rates[i] + rates[j]
				lo, hi := 0.0, both
				for range 100 {
					a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
					if cost(i, a)+cost(j, both-a) <= cost(i, b)+cost(j, both-b) {
						hi = b
					} else {
						lo = a
					}
				}
				if m := (lo + hi) / 2; cost(i, m)+cost(j, both-m) < cost(i, rates[i])+cost(j, rates[j]) {
					rates[i], rates[j] = m, both-m
				}
			}
		}
		after := total()
		if before-after <= 1e-12*before {
			return after
		}
		before = after
	}
	return before
}

// TestNobodyDoesBetter: no other split of the same link has less of what the
// policy minimises, by a minimiser that shares no thought with it.
func TestNobodyDoesBetter(t *testing.T) {
	const margin = 2e6
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 120 {
		n := 2 + rng.IntN(5)
		reqs := make([]bwsched.Request, n)
		need := 0.0
		var curves bwsched.Curves
		hulls := make([]*bwsched.Hull, n)
		for i := range reqs {
			reqs[i] = bwsched.Request{
				LayerBytes: 1e5 * math.Pow(10, 2*rng.Float64()), Compute: time.Duration(1e6 * math.Pow(10, 1.5*rng.Float64())),
				Layers: 1 + rng.IntN(40), Started: rng.IntN(2) == 0,
			}
			need += bwsched.ZeroStall(reqs[i])
			if rng.IntN(2) == 0 {
				// A convex response that is the analytic one with other numbers.
				like := reqs[i]
				like.LayerBytes *= 0.5 + rng.Float64()
				like.Class = string(rune('a' + i))
				star := bwsched.ZeroStall(like)
				for k := range 30 {
					rate := star * math.Pow(1.2, float64(k-20))
					curves.Observe(like.Class, rate, bwsched.Added(rate, like)*(0.95+0.1*rng.Float64()))
				}
				hulls[i] = curves.Class(like.Class).Hull()
				reqs[i].Class = like.Class
			}
		}
		capacity := need * (0.2 + 1.1*rng.Float64())
		for _, c := range []struct {
			name string
			cost func(i int, rate float64) float64
		}{
			{"stall-opt", func(i int, rate float64) float64 { return bwsched.Stall(rate, reqs[i]) }},
			{"cal-stall-opt", func(i int, rate float64) float64 {
				// More than the target is of no use.
				s, c := reqs[i].LayerBytes, reqs[i].Compute.Seconds()
				return max(s/rate, s/(s/c+margin))
			}},
			{"hull-opt", func(i int, rate float64) float64 {
				if h := hulls[i]; h != nil {
					// Below what was measured, as the policy has it.
					if low := h.Points()[0]; rate < low.Rate {
						return low.Added + reqs[i].LayerBytes*float64(reqs[i].Layers)*(1/rate-1/low.Rate)
					}
					return h.Added(rate)
				}
				if r := reqs[i]; !r.Started {
					return bwsched.Added(rate, r)
				}
				return float64(reqs[i].Layers) * bwsched.Stall(rate, reqs[i])
			}},
		} {
			if c.name == "hull-opt" && !steepBelow(reqs, hulls) {
				continue
			}
			p := policy(t, c.name, margin)
			bwsched.UseCurves(p, &curves)
			rates := make([]float64, n)
			p.Rates(capacity, reqs, rates)
			sound(t, p, capacity, reqs, rates)
			got := 0.0
			for i, r := range rates {
				got += c.cost(i, r)
			}
			best := slowest(capacity, n, c.cost)
			if got > best+1e-6*max(best, 1e-6) {
				t.Errorf("round %d: %s costs %.9g, a split at %.9g was found: %+v at %v", round, c.name, got, best, reqs, capacity)
			}
		}
	}
}

// steepBelow reports whether each response is convex where the hull ends too:
// below its lowest rate the transfer alone must weigh more than the first segment.
func steepBelow(reqs []bwsched.Request, hulls []*bwsched.Hull) bool {
	for i, h := range hulls {
		if h == nil {
			continue
		}
		ps := h.Points()
		if len(ps) < 2 {
			return false
		}
		if reqs[i].LayerBytes*float64(reqs[i].Layers)/(ps[0].Rate*ps[0].Rate) < (ps[0].Added-ps[1].Added)/(ps[1].Rate-ps[0].Rate) {
			return false
		}
	}
	return true
}

// TestManyLikeFew: a set of requests repeated over and over, on as much more of a
// link, has the rates of the set alone; and one scaled a little each time, those
// of a minimum, where what is below its target has one root of s in common.
func TestManyLikeFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	var curves bwsched.Curves
	for i := range 50 {
		curves.Observe("x", float64(1+i)*1e6, 3/float64(1+i))
	}
	const times = 700
	for _, name := range []string{"stall-opt", "cal-stall-opt", "hull-opt"} {
		p := policy(t, name, 1e6)
		bwsched.UseCurves(p, &curves)
		for range 20 {
			capacity, few := instance(rng, 5)
			for i := range few {
				few[i].Class = []string{"", "x"}[i%2]
			}
			var many []bwsched.Request
			for range times {
				many = append(many, few...)
			}
			want, got := make([]float64, len(few)), make([]float64, len(many))
			p.Rates(capacity, few, want)
			p.Rates(capacity*times, many, got)
			for i := range got {
				if math.Abs(got[i]-want[i%len(few)]) > 1e-9*capacity {
					t.Fatalf("%s: request %d has %v, alone with its like %v", name, i, got[i], want[i%len(few)])
				}
			}
		}
	}
	for range 20 {
		capacity, reqs := instance(rng, 3000)
		rates := make([]float64, len(reqs))
		p := &bwsched.StallOpt{}
		p.Rates(capacity, reqs, rates)
		low, high := math.Inf(1), 0.0 // rate over sqrt(s) of those below their target
		for i, r := range reqs {
			if x := rates[i] / math.Sqrt(r.LayerBytes); rates[i] < p.Target(r)*(1-1e-9) {
				low, high = min(low, x), max(high, x)
			}
		}
		for i, r := range reqs {
			if x := rates[i] / math.Sqrt(r.LayerBytes); rates[i] >= p.Target(r)*(1-1e-9) && x > low*(1+1e-9) {
				t.Fatalf("request %d is at its target, others have less per root of s", i)
			}
		}
		if high > low*(1+1e-9) {
			t.Fatalf("below their targets requests have from %v to %v per root of s", low, high)
		}
	}
}

// TestOldestIsServed: among requests that are alike the oldest goes first, and
// the oldest of all has its sixteenth however far back it stands.
func TestOldestIsServed(t *testing.T) {
	p := policy(t, "ttft-opt", 0)
	alike := bwsched.Request{LayerBytes: 1e6, Compute: time.Millisecond, Layers: 8}
	wide := bwsched.Request{LayerBytes: 1e8, Compute: time.Millisecond, Layers: 80, Started: true, Age: time.Minute}
	reqs := []bwsched.Request{alike, alike, alike, wide}
	reqs[1].Age = time.Second
	rates := make([]float64, len(reqs))
	p.Rates(1600, reqs, rates)
	for i, want := range []float64{0, 1500, 0, 100} {
		if math.Abs(rates[i]-want) > 1e-9 {
			t.Fatalf("%v", rates)
		}
	}
}

// TestRatesDoNotAllocate: plans are made on the way of requests.
func TestRatesDoNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var curves bwsched.Curves
	for i := range 50 {
		curves.Observe("x", float64(1+i)*1e6, 1/float64(1+i))
	}
	for _, name := range bwsched.Names() {
		for _, n := range []int{1, 32, 1000} {
			capacity, reqs := instance(rng, n)
			for i := range reqs {
				reqs[i].Class = []string{"", "x"}[i%2]
			}
			rates := make([]float64, n)
			p := policy(t, name, 1)
			bwsched.UseCurves(p, &curves)
			if got := testing.AllocsPerRun(10, func() { p.Rates(capacity, reqs, rates) }); got != 0 {
				t.Errorf("%s of %d requests: %v allocations", name, n, got)
			}
		}
	}
}

// BenchmarkRates plans for 10,000 active requests, and for as many as orders are
// played for.
func BenchmarkRates(b *testing.B) {
	for _, name := range bwsched.Names() {
		for _, n := range []int{64, 10000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(11, 12))
				capacity, reqs := instance(rng, n)
				rates := make([]float64, n)
				p := policy(b, name, 1e6)
				b.ReportAllocs()
				for b.Loop() {
					p.Rates(capacity, reqs, rates)
				}
			})
		}
	}
}

// FuzzRates reads a capacity and requests of 22 bytes each.
func FuzzRates(f *testing.F) {
	f.Add([]byte("a capacity and some requests of any kind, as it happens to be read"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 8 {
			return
		}
		capacity := math.Float64frombits(binary.LittleEndian.Uint64(data))
		var reqs []bwsched.Request
		for data = data[8:]; len(data) >= 22 && len(reqs) < 100; data = data[22:] {
			reqs = append(reqs, bwsched.Request{
				LayerBytes: math.Float64frombits(binary.LittleEndian.Uint64(data)),
				Compute:    time.Duration(binary.LittleEndian.Uint64(data[8:])),
				Layers:     int(int32(binary.LittleEndian.Uint32(data[16:]))),
				Started:    data[20]&1 != 0,
				Class:      []string{"", "x", "y", "z"}[data[21]&3],
				Age:        time.Duration(int8(data[21])),
			})
		}
		var curves bwsched.Curves
		for _, r := range reqs {
			curves.Observe("x", r.LayerBytes, r.Compute.Seconds())
		}
		for _, name := range bwsched.Names() {
			p := policy(t, name, 1)
			bwsched.UseCurves(p, &curves)
			rates := make([]float64, len(reqs))
			p.Rates(capacity, reqs, rates)
			if math.IsNaN(capacity) {
				sound(t, p, 0, reqs, rates)
			} else {
				sound(t, p, capacity, reqs, rates)
			}
		}
	})
}
