package bwsched

import "math"

// StallOpt minimises the sum of the stalls per layer (Eq. 5 and 6): what reaches
// its target has it, the rest is shared in proportion to sqrt(s). The zero value
// is the paper's Stall-opt.
type StallOpt struct {
	Calibrated bool    // Calibrated Stall-opt: targets are r* + Margin (Eq. 7)
	Margin     float64 // δ, bytes per second; of no effect unless Calibrated

	fill filler
}

// Name implements Policy.
func (p *StallOpt) Name() string {
	if p.Calibrated {
		return "cal-stall-opt"
	}
	return "stall-opt"
}

// Target is the most that a request gets.
func (p *StallOpt) Target(r Request) float64 {
	t := ZeroStall(r)
	if p.Calibrated && t > 0 {
		t += p.Margin
	}
	return t
}

// Rates implements Policy. No rate is above its target.
func (p *StallOpt) Rates(capacity float64, reqs []Request, rates []float64) {
	p.fill.reset()
	for _, r := range reqs {
		d := demand{}
		if sized(r) {
			d = demand{low: math.Sqrt(r.LayerBytes), knee: p.Target(r)}
		}
		p.fill.add(d)
	}
	p.fill.fill(usable(capacity), rates)
}
