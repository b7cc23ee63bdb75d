// Package bwsched shares a link among layerwise deliveries so that prefills
// stall least (ObjectCache, §3.6).
//
// Everything here is a pure function of its arguments. Rates are in bytes per
// second, sizes in bytes. Package bwsched/pace holds deliveries to these rates.
package bwsched

import (
	"fmt"
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
}

// A Policy splits a link among requests.
type Policy interface {
	// Name is the name by which ByName knows the policy.
	Name() string

	// Rates writes the rate of each request to rates, which is as long as reqs
	// and which the caller owns. The rates are finite, 0 or more, and their sum
	// is at most capacity up to rounding. A rate of 0 means: nothing until the
	// next plan. Rates keeps neither slice and allocates nothing in the steady
	// state, for which a policy may have scratch memory: one goroutine at a time.
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

// policies makes the policies, in the order of Names.
var policies = []struct {
	name string
	make func(margin float64) Policy
}{
	{"equal", func(float64) Policy { return Equal{} }},
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
	for _, p := range policies {
		if p.name == name {
			return p.make(margin), nil
		}
	}
	return nil, fmt.Errorf("unknown policy %q; there are %s", name, strings.Join(Names(), ", "))
}

// Equal gives every request the same rate.
type Equal struct{}

// Name implements Policy.
func (Equal) Name() string { return "equal" }

// Rates implements Policy.
func (Equal) Rates(capacity float64, reqs []Request, rates []float64) {
	for i := range reqs {
		rates[i] = capacity / float64(len(reqs))
	}
}
