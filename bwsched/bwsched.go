// Package bwsched shares a link among layerwise deliveries so that prefills
// stall least (ObjectCache, §3.6).
//
// Everything here is a pure function of its arguments. Rates are in bytes per
// second, sizes in bytes. Package bwsched/sim predicts what a policy does to
// TTFT; package bwsched/pace holds deliveries to the rates.
package bwsched

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Request is one active layerwise transfer, as the policies see it.
type Request struct {
	LayerBytes float64       // s: bytes of one layer's payload
	Compute    time.Duration // c: compute window of one layer; 0: unknown
	Layers     int           // layers left to deliver, 1 or more
	Started    bool          // layer 0 is delivered already
	Class      string        // key of the learnt curve; "" has none
	Age        time.Duration // since it arrived; 0 for all: nobody is the oldest
}

// A Policy splits a link among requests.
type Policy interface {
	// Name is the name by which ByName knows the policy.
	Name() string

	// Rates writes the rate of each request to rates, which is as long as reqs
	// and which the caller owns. The rates are finite, 0 or more, and their sum
	// is at most capacity up to rounding. A rate of 0 means: nothing until the
	// next plan. A request without bytes gets 0. Rates keeps neither slice and
	// allocates nothing in the steady state, for which a policy may have scratch
	// memory: one goroutine at a time.
	Rates(capacity float64, reqs []Request, rates []float64)
}

// Replans reports whether the rates of p follow the requests' state, so that
// they are planned again whenever a request arrives, has its first layer
// delivered, or finishes. The rates of the paper's policies hold for an epoch
// (§3.6).
func Replans(p Policy) bool {
	r, ok := p.(interface{ Replans() bool })
	return ok && r.Replans()
}

// Target is the rate beyond which p sees no use in more for a request: the
// zero-stall rate unless the policy has another idea. It may be +Inf.
func Target(p Policy, r Request) float64 {
	if t, ok := p.(interface{ Target(Request) float64 }); ok {
		return t.Target(r)
	}
	return ZeroStall(r)
}

// Learns reports whether p plans by curves if UseCurves gives it some.
func Learns(p Policy) bool {
	_, ok := p.(interface{ useCurves(*Curves) })
	return ok
}

// UseCurves gives the curves learnt so far to p, if it is a policy that learns.
// They stay the caller's, who may go on observing between two calls of Rates.
func UseCurves(p Policy, c *Curves) {
	if l, ok := p.(interface{ useCurves(*Curves) }); ok {
		l.useCurves(c)
	}
}

// policies makes the policies, in the order of Names.
var policies = []struct {
	name string
	make func(margin float64) Policy
}{
	{"equal", func(float64) Policy { return Equal{} }},
	{"kv-prop", func(float64) Policy { return KVProp{} }},
	{"bw-prop", func(float64) Policy { return BWProp{} }},
	{"stall-opt", func(float64) Policy { return &StallOpt{} }},
	{"cal-stall-opt", func(margin float64) Policy { return &StallOpt{Calibrated: true, Margin: margin} }},
	{"hull-opt", func(float64) Policy { return &HullOpt{} }},
	{"ttft-opt", func(float64) Policy { return &TTFTOpt{} }},
}

// Names lists the policies that ByName knows, the paper's first.
func Names() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

// ByName returns a new policy. The margin, in bytes per second, is what
// cal-stall-opt adds to each zero-stall rate (δ, Eq. 7; 5 Gbps in the paper);
// the others pay no heed to it.
func ByName(name string, margin float64) (Policy, error) {
	if math.IsNaN(margin) || math.IsInf(margin, 0) || margin < 0 {
		return nil, fmt.Errorf("margin %v is not a rate", margin)
	}
	for _, p := range policies {
		if p.name == name {
			return p.make(margin), nil
		}
	}
	return nil, fmt.Errorf("unknown policy %q; there are %s", name, strings.Join(Names(), ", "))
}
