package bwsched

import (
	"math"
	"slices"
)

// Every optimum here has the same form. A request's added TTFT f_i(r) is convex
// and falls with its rate, so the best split of a link gives each the rate at
// which one more byte per second saves the same λ. With x = 1/sqrt(λ) the rate
// that a request asks for grows with x: linearly where f is a multiple of s/r
// (the slope of w²/r is λ at r = w*x), by jumps where f is a hull of straight
// segments, and not at all at a target. The total D(x) is therefore linear
// between breakpoints that are known beforehand. fill sorts them, finds by
// bisection of that list the pair that encloses D(x) = capacity, and solves one
// linear equation: O(n log n), and exact.

// demand is the rate that one request asks for at x.
type demand struct {
	low  float64 // up to knee it asks for low*x
	knee float64 // +Inf: there is none
	high float64 // it asks for high*x from where that is above knee
	hull *Hull   // if set, the hull's rates from knee, its lowest, on
}

// at is the rate asked for at x, as a constant and a multiple of x. Where x is
// a breakpoint, after says on which side of it.
func (d *demand) at(x float64, after bool) (constant, slope float64) {
	if d.hull != nil {
		if r := d.hull.at(x, after); r > d.knee {
			return r, 0
		}
	}
	// Compared with the breakpoint as it was noted: low*x may miss knee by a bit.
	switch {
	case d.low <= 0:
		return 0, 0
	case x < d.knee/d.low || x == d.knee/d.low && !after:
		return 0, d.low
	case d.high > 0 && (x > d.knee/d.high || x == d.knee/d.high && after):
		return 0, d.high
	}
	return d.knee, 0
}

// filler is the scratch memory of fill.
type filler struct {
	demands []demand
	breaks  []float64
}

// reset empties the scratch memory.
func (f *filler) reset() { f.demands, f.breaks = f.demands[:0], f.breaks[:0] }

// add takes the next request's demand.
func (f *filler) add(d demand) {
	f.demands = append(f.demands, d)
	if d.low > 0 {
		f.note(d.knee / d.low)
	}
	if d.high > 0 {
		f.note(d.knee / d.high)
	}
	if d.hull != nil {
		f.breaks = append(f.breaks, d.hull.breaks...)
	}
}

func (f *filler) note(x float64) {
	if x > 0 && !math.IsInf(x, 1) {
		f.breaks = append(f.breaks, x)
	}
}

// total is D(x) on one side of x, as a constant and a multiple.
func (f *filler) total(x float64, after bool) (constant, slope float64) {
	for i := range f.demands {
		c, s := f.demands[i].at(x, after)
		constant += c
		slope += s
	}
	return constant, slope
}

// fill writes the rate of each demand, in the order of add.
func (f *filler) fill(capacity float64, rates []float64) {
	slices.Sort(f.breaks)
	b := slices.Compact(f.breaks)
	// The first breakpoint at which more is asked for than there is.
	lo, hi := 0, len(b)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c, s := f.total(b[mid], true); c+s*b[mid] > capacity {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo < len(b) {
		x := b[lo]
		if c, s := f.total(x, false); c+s*x < capacity {
			// The jumps at x save the same per byte: any split of the rest is
			// as good, so it goes in proportion to them.
			before := c + s*x
			c, s = f.total(x, true)
			part := (capacity - before) / (c + s*x - before)
			for i := range f.demands {
				c, s := f.demands[i].at(x, false)
				r := c + s*x
				c, s = f.demands[i].at(x, true)
				rates[i] = r + part*(c+s*x-r)
			}
			return
		}
	}
	x := 0.0
	if lo > 0 {
		x = b[lo-1]
	}
	constant, slope := f.total(x, true)
	// Nothing grows with x: everyone has what it can use.
	y := x
	if slope > 0 {
		y = max(x, (capacity-constant)/slope)
	}
	for i := range f.demands {
		c, s := f.demands[i].at(x, true)
		rates[i] = c + s*y
	}
}
