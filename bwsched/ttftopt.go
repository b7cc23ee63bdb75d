package bwsched

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// TTFTOpt minimises the sum of the added TTFTs when rates may be planned again
// at every arrival, first layer and finish. Requests stand in an order; the
// first in it that has its layer 0 gets its target, one that waits for layer 0
// gets all that is left (nothing hides X_0, so it is a burst), and so on. Which
// order is best depends on how long the shortage lasts, so a few are played to
// the end by Eq. 3 and the best is taken. What is left when everyone has its
// target is lent. See docs/decisions on the derivation.
//
// The target is the zero-stall rate, or the knee of the class's learnt curve.
// The zero value is ready for use.
type TTFTOpt struct {
	curves *Curves

	items, play []item
	ranked      []ranked
	order, best []int32
	live        []int32
	trial       []float64
}

const (
	// least is the part of the link that goes to the oldest request, so that
	// nobody waits for ever behind others that keep coming; those of one age
	// split it.
	least = 1.0 / 16
	// maxPlayed is up to how many requests the orders are played to the end,
	// which takes time in proportion to the square of their number.
	maxPlayed = 64
)

// item is a request in the making of a plan.
type item struct {
	width float64 // target, at most the capacity
	rest  float64 // bytes to come
	first float64 // bytes of layer 0 to come; 0: started
	at    int32   // index among the requests
	age   time.Duration
}

// ranked is an item's place in an order.
type ranked struct {
	key float64
	at  int32 // index among the items
}

// Name implements Policy.
func (*TTFTOpt) Name() string { return "ttft-opt" }

// Replans says that the rates follow the requests' state.
func (*TTFTOpt) Replans() bool { return true }

func (p *TTFTOpt) useCurves(c *Curves) { p.curves = c }

// Target is the zero-stall rate, or where a curve of the class has been learnt,
// the rate whose added TTFT is one compute window above the least: what Eq. 3
// says of the zero-stall rate (X_0 = c there). What is lent comes on top.
func (p *TTFTOpt) Target(r Request) float64 {
	t := ZeroStall(r)
	if h := p.curves.learnt(r.Class); h != nil {
		if knee, ok := h.Knee(window(r)); ok {
			return knee
		}
	}
	return t
}

// Rates implements Policy. Where two requests are alike, the older goes first,
// and of one age the earlier in reqs.
func (p *TTFTOpt) Rates(capacity float64, reqs []Request, rates []float64) {
	capacity = usable(capacity)
	p.items = p.items[:0]
	for i, r := range reqs {
		rates[i] = 0
		if !sized(r) || capacity == 0 {
			continue
		}
		it := item{width: min(p.Target(r), capacity), rest: r.LayerBytes * float64(layers(r)), at: int32(i), age: r.Age}
		if !r.Started {
			it.first = r.LayerBytes
		}
		p.items = append(p.items, it)
	}
	if len(p.items) == 0 {
		return
	}
	p.sort(byArea)
	if n := len(p.items); n > 1 && n <= maxPlayed {
		p.best = append(p.best[:0], p.order...)
		area := p.playOut(capacity)
		p.sort(byWidth)
		if p.playOut(capacity) >= area {
			p.order = append(p.order[:0], p.best...)
		}
	}
	p.trial = grow(p.trial, len(p.items))
	dispatch(capacity, p.items, p.order, p.trial)
	for i, it := range p.items {
		rates[it.at] = p.trial[i]
	}
}

// The two orders. If i goes before j and there is not room for both, j loses
// by it as long as i lasts, in proportion to 1/width of j; unless j is short
// enough to be through before, then it loses in proportion to its own length.
// The first favours few bytes, the second a narrow width; byArea weighs both.
func byArea(it item) float64  { return it.rest * it.width }
func byWidth(it item) float64 { return it.width }

// sort fills order. Requests of one key go by fewest bytes, then oldest first.
func (p *TTFTOpt) sort(key func(item) float64) {
	p.ranked = p.ranked[:0]
	for i, it := range p.items {
		p.ranked = append(p.ranked, ranked{key: key(it), at: int32(i)})
	}
	items := p.items
	slices.SortFunc(p.ranked, func(a, b ranked) int {
		if c := cmp.Compare(a.key, b.key); c != 0 {
			return c
		}
		x, y := &items[a.at], &items[b.at]
		if c := cmp.Compare(x.rest, y.rest); c != 0 {
			return c
		}
		if c := cmp.Compare(x.first, y.first); c != 0 {
			return c
		}
		if x.age != y.age {
			return cmp.Compare(y.age, x.age)
		}
		return int(a.at) - int(b.at)
	})
	p.order = p.order[:0]
	for _, r := range p.ranked {
		p.order = append(p.order, r.at)
	}
}

// dispatch gives each item its rate in order; what remains is lent to the
// started ones by width, so that all get ahead of their compute alike.
func dispatch(capacity float64, items []item, order []int32, rates []float64) {
	oldest, alike := items[order[0]].age, 0
	for _, i := range order {
		switch a := items[i].age; {
		case a > oldest:
			oldest, alike = a, 1
		case a == oldest:
			alike++
		}
	}
	left, widths := capacity, 0.0
	share := least * capacity / float64(alike)
	for _, i := range order {
		if rates[i] = 0; items[i].age == oldest {
			rates[i] = min(items[i].width, share)
		}
		left -= rates[i]
		widths += items[i].width
	}
	for _, i := range order {
		more := max(0, left)
		if items[i].first == 0 {
			more = min(more, items[i].width-rates[i])
		}
		rates[i] += more
		left -= more
	}
	if left > 0 && widths > 0 {
		for _, i := range order {
			rates[i] += left * (items[i].width / widths)
		}
	}
}

// playOut returns the sum of what the requests' TTFTs would gain from now on if
// no other came, in seconds, served in the order that stands in p.order, which
// it leaves as it is. While layer 0 is awaited a prefill loses all the time that
// passes; then it loses the part by which its rate is below its width.
func (p *TTFTOpt) playOut(capacity float64) float64 {
	p.play = append(p.play[:0], p.items...)
	p.trial = grow(p.trial, len(p.items))
	p.live = append(p.live[:0], p.order...)
	live := p.live
	lost := 0.0
	for len(live) > 0 {
		dispatch(capacity, p.play, live, p.trial)
		step := math.Inf(1)
		for _, i := range live {
			step = min(step, p.play[i].next()/p.trial[i])
		}
		if math.IsInf(step, 1) {
			return step
		}
		kept := live[:0]
		for _, i := range live {
			it, rate := &p.play[i], p.trial[i]
			if it.first > 0 {
				lost += step
			} else {
				lost += step * max(0, 1-rate/it.width)
			}
			done := it.next()/rate <= step
			it.rest = max(0, it.rest-rate*step)
			switch {
			case done && it.first > 0:
				it.first = 0
			case done:
				continue
			case it.first > 0:
				it.first = max(0, it.first-rate*step)
			}
			if it.rest > 0 {
				kept = append(kept, i)
			}
		}
		live = kept
	}
	return lost
}

// grow returns a slice of n values, whatever they are.
func grow(s []float64, n int) []float64 { return slices.Grow(s[:0], n)[:n] }

// next is how many bytes away the item's next event is.
func (it *item) next() float64 {
	if it.first > 0 {
		return it.first
	}
	return it.rest
}
