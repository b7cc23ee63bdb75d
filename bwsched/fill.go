package bwsched

import (
	"math"
	"slices"
	"sort"
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

	stop, more float64 // x at which low*x and high*x are knee; set by add
}

// at is the rate asked for at x, as a constant and a multiple of x. Where x is
// a breakpoint, after says on which side of it. It is the breakpoints that x is
// compared with: low*x may miss knee by a bit.
func (d *demand) at(x float64, after bool) (constant, slope float64) {
	if d.hull != nil {
		if r := d.hull.at(x, after); r > d.knee {
			return r, 0
		}
	}
	switch {
	case x < d.stop || x == d.stop && !after:
		return 0, d.low
	case x > d.more || x == d.more && after:
		return 0, d.high
	}
	return d.knee, 0
}

// filler is the scratch memory of fill.
type filler struct {
	demands []demand
	breaks  []float64
	sample  []float64
}

// reset empties the scratch memory.
func (f *filler) reset() { f.demands, f.breaks = f.demands[:0], f.breaks[:0] }

// add takes the next request's demand; that of one without bytes is empty.
func (f *filler) add(d demand) {
	d.stop, d.more = math.Inf(1), math.Inf(1)
	if d.low > 0 {
		d.stop = d.knee / d.low
		f.note(d.stop)
	}
	if d.high > 0 {
		d.more = d.knee / d.high
		f.note(d.more)
	}
	if d.hull != nil {
		f.breaks = append(f.breaks, d.hull.breaks...)
	}
	f.demands = append(f.demands, d)
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

// over is the index of the first of rising breakpoints at which more is asked
// for than there is, len(b) if there is none.
func (f *filler) over(b []float64, capacity float64) int {
	return sort.Search(len(b), func(i int) bool {
		c, s := f.total(b[i], true)
		return c+s*b[i] > capacity
	})
}

// narrow leaves of many breakpoints the few between two of a sample that enclose
// the solution, and those two: sorting all would take most of the time.
func (f *filler) narrow(capacity float64) {
	const sampled = 64
	if len(f.breaks) < 8*sampled {
		return
	}
	f.sample = f.sample[:0]
	for i := 0; i < len(f.breaks); i += len(f.breaks) / sampled {
		f.sample = append(f.sample, f.breaks[i])
	}
	slices.Sort(f.sample)
	from, to := 0.0, math.Inf(1)
	i := f.over(f.sample, capacity)
	if i > 0 {
		from = f.sample[i-1]
	}
	if i < len(f.sample) {
		to = f.sample[i]
	}
	kept := f.breaks[:0]
	for _, x := range f.breaks {
		if from <= x && x <= to {
			kept = append(kept, x)
		}
	}
	f.breaks = kept
}

// fill writes the rate of each demand, in the order of add.
func (f *filler) fill(capacity float64, rates []float64) {
	if capacity == 0 {
		clear(rates)
		return
	}
	f.narrow(capacity)
	slices.Sort(f.breaks)
	b := slices.Compact(f.breaks)
	lo := f.over(b, capacity)
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
