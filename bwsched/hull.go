package bwsched

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// A Point is a measured response: at Rate, in bytes per second, the TTFT was
// Added seconds above the compute itself. Weight is how many measurements it
// stands for.
type Point struct {
	Rate   float64 `json:"rate_bytes_per_s"`
	Added  float64 `json:"added_s"`
	Weight float64 `json:"weight"`
}

// A Hull is the lower convex hull of measured points, as far as it falls: the
// most that can be said about a response that is convex and noisy. It does not
// change once made.
type Hull struct {
	points []Point   // by rate; Added falls, ever less steeply
	breaks []float64 // 1/sqrt(-slope) of each segment, rising
	weight float64   // of all points, those above the hull too
	top    float64   // the highest rate measured
}

// NewHull makes the hull of points, which need no order; those of one rate are
// averaged by weight. Points that are not finite, have no rate or no weight are
// left out; of none there is no hull: nil.
func NewHull(points []Point) *Hull {
	sorted := make([]Point, 0, len(points))
	for _, p := range points {
		if p.sound() {
			sorted = append(sorted, p)
		}
	}
	slices.SortFunc(sorted, func(a, b Point) int {
		switch {
		case a.Rate != b.Rate:
			return cmp.Compare(a.Rate, b.Rate)
		case a.Added != b.Added:
			return cmp.Compare(a.Added, b.Added) // one sum, in whatever order they came
		}
		return cmp.Compare(a.Weight, b.Weight)
	})
	one := sorted[:0]
	for _, p := range sorted {
		if n := len(one); n > 0 && one[n-1].Rate == p.Rate {
			one[n-1] = one[n-1].mean(p)
		} else {
			one = append(one, p)
		}
	}
	if len(one) == 0 {
		return nil
	}
	h := &Hull{}
	for _, p := range one {
		h.weight += p.Weight
		h.top = p.Rate
		for n := len(h.points); n >= 2 && slope(h.points[n-2], h.points[n-1]) >= slope(h.points[n-1], p); n-- {
			h.points = h.points[:n-1]
		}
		h.points = append(h.points, p)
	}
	for n := 1; n < len(h.points); n++ {
		// From here on more rate does not help, as far as was measured.
		if m := -slope(h.points[n-1], h.points[n]); !(m > 0) {
			h.points = h.points[:n]
			break
		} else {
			h.breaks = append(h.breaks, 1/math.Sqrt(m))
		}
	}
	return h
}

func (p Point) sound() bool {
	return p.Rate >= minAmount && p.Rate <= maxAmount && p.Added >= 0 && p.Added <= maxAmount && p.Weight > 0 && p.Weight <= maxAmount
}

// mean is the point that stands for both.
func (p Point) mean(q Point) Point {
	w := p.Weight + q.Weight
	part := q.Weight / w
	return Point{Rate: p.Rate + (q.Rate-p.Rate)*part, Added: p.Added + (q.Added-p.Added)*part, Weight: w}
}

func slope(a, b Point) float64 { return (b.Added - a.Added) / (b.Rate - a.Rate) }

// Points returns the corners, by rising rate.
func (h *Hull) Points() []Point { return slices.Clone(h.points) }

// Added is the hull's value at a rate: below the lowest rate measured the
// transfer takes in proportion longer, above the highest nothing is gained.
func (h *Hull) Added(rate float64) float64 {
	i := sort.Search(len(h.points), func(i int) bool { return h.points[i].Rate >= rate })
	switch {
	case i == len(h.points):
		return h.points[i-1].Added
	case i == 0 && rate > 0:
		return h.points[0].Added * (h.points[0].Rate / rate)
	case i == 0:
		return math.Inf(1)
	}
	a, b := h.points[i-1], h.points[i]
	return a.Added + (b.Added-a.Added)*((rate-a.Rate)/(b.Rate-a.Rate))
}

// Knee is the lowest rate at which the response is within tolerance, in
// seconds, of the least that any rate gives. ok is false if that is the lowest
// rate measured, or if too little was measured above it to tell a knee from the
// end of a slope: by Eq. 3 the last compute window is gained over a factor of
// rates above the knee, and over one part in L on the slope.
func (h *Hull) Knee(tolerance float64) (rate float64, ok bool) {
	last := h.points[len(h.points)-1]
	want := last.Added + max(0, tolerance)
	i := sort.Search(len(h.points), func(i int) bool { return h.points[i].Added <= want })
	if i == 0 {
		return h.points[0].Rate, false
	}
	a, b := h.points[i-1], h.points[i]
	rate = a.Rate + (b.Rate-a.Rate)*((a.Added-want)/(a.Added-b.Added))
	return rate, h.top >= 1.25*rate
}

// at is the rate that the hull asks for where one more byte per second must
// save 1/x² seconds; where x is a breakpoint, after says on which side of it.
func (h *Hull) at(x float64, after bool) float64 {
	n := sort.Search(len(h.breaks), func(i int) bool { return h.breaks[i] > x || !after && h.breaks[i] == x })
	return h.points[n].Rate
}
