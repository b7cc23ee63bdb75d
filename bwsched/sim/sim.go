// Package sim predicts what a bandwidth policy does to time to first token:
// Eq. 3 of the ObjectCache paper, played event by event over a shared link.
//
// What it takes for granted: layer payloads flow at exactly the rates of the
// plan, which change at no cost; the layers of a request come one after the
// other; delivery may run ahead of compute, as it does into memory that holds
// the whole payload; compute takes a layer when it is whole and the layer before
// is done, and each layer takes one compute window. At constant rates this is
// Eq. 3 to the letter.
package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// Request is a prefill that loads its cached prefix layer by layer.
type Request struct {
	Name       string
	Arrive     time.Duration // from the start of the run
	LayerBytes float64       // s, above 0
	Compute    time.Duration // c of one layer; 0: unknown, and taking no time
	Layers     int           // L, 1 or more
	Class      string        // of the learnt curve
}

// Options says how the link is shared.
type Options struct {
	Capacity float64 // bytes per second, above 0
	Policy   bwsched.Policy

	// Epoch is for how long the rates of a policy that does not replan hold; who
	// arrives waits for the next one, and what a finished request leaves is idle
	// until then. 0 makes an epoch of each batch: the next one begins when all of
	// it have finished.
	Epoch time.Duration
}

// Result is what became of a request. Times are in seconds from its arrival.
type Result struct {
	Ready []float64 // when layer l was whole
	TTFT  float64   // Eq. 3
	Added float64   // by how much TTFT is above the compute itself
	First float64   // the rate of the first plan that it had part in, bytes per second
}

// active is a request under way.
type active struct {
	Request
	index   int     // in the results
	left    float64 // bytes of the layer under way that are still to come
	rate    float64
	planned bool
}

// Run plays the requests to the end and returns a result for each, in order. It
// fails on a request or a capacity out of range, and if a policy leaves all
// requests without rate.
func Run(reqs []Request, o Options) ([]Result, error) {
	if err := check(reqs, o); err != nil {
		return nil, err
	}
	arrivals := make([]int, len(reqs))
	for i := range arrivals {
		arrivals[i] = i
	}
	slices.SortStableFunc(arrivals, func(a, b int) int { return cmp.Compare(reqs[a].Arrive, reqs[b].Arrive) })
	s := state{o: o, replans: bwsched.Replans(o.Policy), results: make([]Result, len(reqs)), plan: true}
	for len(arrivals) > 0 || len(s.active) > 0 {
		for len(arrivals) > 0 && reqs[arrivals[0]].Arrive.Seconds() <= s.now {
			s.arrive(reqs[arrivals[0]], arrivals[0])
			arrivals = arrivals[1:]
		}
		next := math.Inf(1)
		if len(arrivals) > 0 {
			next = reqs[arrivals[0]].Arrive.Seconds()
		}
		if len(s.active) == 0 {
			s.now = next
			continue
		}
		if err := s.step(next); err != nil {
			return nil, err
		}
	}
	for i, r := range reqs {
		res := &s.results[i]
		res.Added = bwsched.AddedBy(res.Ready, r.Compute, 0)
		res.TTFT = res.Added + float64(r.Layers)*r.Compute.Seconds()
	}
	return s.results, nil
}

func check(reqs []Request, o Options) error {
	if !(o.Capacity > 0) || math.IsInf(o.Capacity, 0) {
		return fmt.Errorf("capacity %v is not a rate above 0", o.Capacity)
	}
	if o.Epoch < 0 {
		return fmt.Errorf("epoch %v is below 0", o.Epoch)
	}
	for i, r := range reqs {
		switch {
		case !(r.LayerBytes > 0) || math.IsInf(r.LayerBytes, 0):
			return fmt.Errorf("request %d (%s): layer bytes %v are not above 0", i, r.Name, r.LayerBytes)
		case r.Compute < 0 || r.Arrive < 0:
			return fmt.Errorf("request %d (%s): a time is below 0", i, r.Name)
		case r.Layers < 1:
			return fmt.Errorf("request %d (%s): %d layers", i, r.Name, r.Layers)
		}
	}
	return nil
}

// state is a run under way.
type state struct {
	o       Options
	replans bool
	now     float64
	plan    bool    // the rates are to be planned
	epoch   float64 // when the current epoch ends
	active  []active
	results []Result

	reqs  []bwsched.Request
	rates []float64
}

func (s *state) arrive(r Request, index int) {
	s.active = append(s.active, active{Request: r, index: index, left: r.LayerBytes})
	s.results[index].Ready = make([]float64, 0, r.Layers)
	if s.replans {
		s.plan = true
	}
}

// step plans if it is time to, and runs to the next event: a layer is whole, an
// epoch ends, or the clock reaches until, when someone arrives.
func (s *state) step(until float64) error {
	if !s.replans {
		s.plan = s.planEpoch()
	}
	if s.plan {
		s.planRates()
	}
	at := until
	if !s.replans && s.o.Epoch > 0 {
		at = min(at, s.epoch)
	}
	flows := false
	for i := range s.active {
		if a := &s.active[i]; a.rate > 0 {
			flows = true
			at = min(at, s.now+a.left/a.rate)
		}
	}
	if !flows && math.IsInf(at, 1) {
		return fmt.Errorf("policy %s gives no rate to any of %d requests", s.o.Policy.Name(), len(s.active))
	}
	s.flow(at)
	return nil
}

// planEpoch reports whether an epoch begins now.
func (s *state) planEpoch() bool {
	if s.o.Epoch > 0 {
		if s.now < s.epoch {
			return false
		}
		// Idle epochs are skipped.
		e := s.o.Epoch.Seconds()
		s.epoch = max(s.epoch+e, (math.Floor(s.now/e)+1)*e)
		return true
	}
	for i := range s.active {
		if s.active[i].planned {
			return false
		}
	}
	return true
}

func (s *state) planRates() {
	s.reqs = s.reqs[:0]
	for i := range s.active {
		a := &s.active[i]
		done := len(s.results[a.index].Ready)
		s.reqs = append(s.reqs, bwsched.Request{
			LayerBytes: a.LayerBytes, Compute: a.Compute, Layers: a.Layers - done, Started: done > 0, Class: a.Class,
			Age: max(0, time.Duration(s.now*float64(time.Second))-a.Arrive),
		})
	}
	s.rates = slices.Grow(s.rates[:0], len(s.reqs))[:len(s.reqs)]
	s.o.Policy.Rates(s.o.Capacity, s.reqs, s.rates)
	for i := range s.active {
		a := &s.active[i]
		if a.rate = s.rates[i]; !a.planned {
			s.results[a.index].First = a.rate
		}
		a.planned = true
	}
	s.plan = false
}

// flow moves the clock and notes the layers that are whole by then.
func (s *state) flow(to float64) {
	step := to - s.now
	kept := s.active[:0]
	for _, a := range s.active {
		res := &s.results[a.index]
		if a.rate > 0 && s.now+a.left/a.rate <= to {
			res.Ready = append(res.Ready, to-a.Arrive.Seconds())
			a.left = a.LayerBytes
			first, last := len(res.Ready) == 1, len(res.Ready) == a.Layers
			if s.replans && (first || last) {
				s.plan = true
			}
			if last {
				continue
			}
		} else {
			a.left = max(0, a.left-a.rate*step)
		}
		kept = append(kept, a)
	}
	s.active = kept
	s.now = to
}
