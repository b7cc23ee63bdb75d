package bwsched

import (
	"math"
	"time"
)

// ZeroStall is r* = s/c (§3.6): the rate, in bytes per second, from which the
// transfer of a layer hides behind the compute of the one before. It is +Inf
// where the compute window is unknown.
func ZeroStall(r Request) float64 {
	if !(r.LayerBytes > 0) {
		return 0
	}
	if r.Compute <= 0 {
		return math.Inf(1)
	}
	return r.LayerBytes / r.Compute.Seconds()
}

// Stall is how long, in seconds, the compute of one layer waits for the
// transfer of the next at a rate (Eq. 4). It is +Inf at rate 0.
func Stall(rate float64, r Request) float64 {
	return max(0, transfer(rate, r)-window(r))
}

// TTFT is the time to first token, in seconds, of a request that has all its
// Layers to come at a constant rate (Eq. 3). It is +Inf at rate 0.
func TTFT(rate float64, r Request) float64 {
	x, c := transfer(rate, r), window(r)
	return x + float64(layers(r)-1)*max(x, c) + c
}

// Added is by how much, in seconds, TTFT is above the compute itself: what the
// prefill would take if every layer were local.
func Added(rate float64, r Request) float64 {
	x := transfer(rate, r)
	return x + float64(layers(r)-1)*max(0, x-window(r))
}

// AddedBy is Added for layers delivered at any pace: ready[l] is when layer l
// was whole, in seconds, and from is when the request arrived by the same clock.
// Compute takes a layer when it is whole and the layer before is done, so layer
// l delays the prefill by as much as it is later than l compute windows (Eq. 3
// unrolled; delivery may run ahead of compute).
func AddedBy(ready []float64, compute time.Duration, from float64) float64 {
	added, c := 0.0, max(0, compute).Seconds()
	for l, t := range ready {
		added = max(added, t-from-float64(l)*c)
	}
	return added
}

// transfer is X, the time of one layer's transfer.
func transfer(rate float64, r Request) float64 {
	if !(r.LayerBytes > 0) {
		return 0
	}
	if !(rate > 0) {
		return math.Inf(1)
	}
	return r.LayerBytes / rate
}

func window(r Request) float64 { return max(0, r.Compute).Seconds() }

func layers(r Request) int { return max(1, r.Layers) }
