package bwsched

import "math"

// HullOpt minimises the sum of the added TTFTs for rates that are held: like
// Stall-opt, but over each class's measured response where there is one (its
// lower convex hull) and over Eq. 3 with its X_0 where there is none. One margin
// for all is what it does without (§5.7: it fits no two workloads).
//
// A curve stands for whole requests; planned again half-way, a request counts
// for as much as a whole one of its class.
type HullOpt struct {
	curves *Curves
	fill   filler
}

// Name implements Policy.
func (*HullOpt) Name() string { return "hull-opt" }

func (p *HullOpt) useCurves(c *Curves) { p.curves = c }

// Target is the rate from which the class's curve is flat, or the zero-stall
// rate. If others need no more, a request may get more.
func (p *HullOpt) Target(r Request) float64 {
	if h := p.curves.learnt(r.Class); h != nil {
		return h.points[len(h.points)-1].Rate
	}
	return ZeroStall(r)
}

// Rates implements Policy.
func (p *HullOpt) Rates(capacity float64, reqs []Request, rates []float64) {
	p.fill.reset()
	for _, r := range reqs {
		p.fill.add(p.demand(r))
	}
	p.fill.fill(usable(capacity), rates)
}

// demand is where the slope of the response is 1/x². By Eq. 3 it is L*s/r² below
// r*, and s/r² above, where X_0 alone still shrinks.
func (p *HullOpt) demand(r Request) demand {
	if !sized(r) {
		return demand{}
	}
	d := demand{low: math.Sqrt(r.LayerBytes * float64(layers(r)))}
	if h := p.curves.learnt(r.Class); h != nil {
		d.knee, d.hull = h.points[0].Rate, h
		return d
	}
	d.knee = ZeroStall(r)
	if !r.Started {
		d.high = math.Sqrt(r.LayerBytes)
	}
	return d
}
