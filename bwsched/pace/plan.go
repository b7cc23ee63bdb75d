package pace

import (
	"math"

	"github.com/objcached/objcached/bwsched"
)

// planPerFlow bounds what planning may cost when flows come and go all the
// time, in ns: plans are at least this far apart per flow, about ten times what
// one takes (BenchmarkPlan).
const planPerFlow = 5000

// mark notes that flows have changed; urgent changes do not wait for the end
// of the epoch if the policy follows them.
func (l *Link) mark(now float64, urgent bool) {
	if l.closed {
		return
	}
	if epoch := float64(l.cfg.Epoch); !l.changed && now > l.epochEnd {
		l.epochEnd += math.Ceil((now-l.epochEnd)/epoch) * epoch // epochs go by unchanged
	}
	l.changed = true
	l.urgent = l.urgent || urgent && l.replans
	l.replan(now)
	if l.changed && l.waiting > 0 {
		l.rouse(l.planAt())
	}
}

// planAt is when the next plan is to be made, if there is a change.
func (l *Link) planAt() float64 {
	if l.urgent {
		return min(l.epochEnd, l.planned+planPerFlow*float64(len(l.flows)))
	}
	return l.epochEnd
}

// replan gives every flow its rate if it is time to.
func (l *Link) replan(now float64) {
	if !l.changed || now < l.planAt() {
		return
	}
	l.changed, l.urgent = false, false
	l.planned, l.epochEnd = now, now+float64(l.cfg.Epoch)
	l.borrow.rebase(l.flows)
	l.plan.now = now
	l.plan.plan(&l.cfg, l.flows, &l.tenants)
	l.stats.Plans++
	l.stats.Granted = 0
	for i, f := range l.plan.flows {
		rate := l.plan.rates[i]
		if rate == 0 && l.replans {
			rate = l.crumb(f)
		}
		f.setRate(rate, now)
		l.stats.Granted += f.rate
	}
	if l.waiting > 0 {
		l.rouse(now)
	}
}

// crumb is the rate of a flow that a policy gives nothing for now, in favour
// of others: all crumbs together are a thousandth of the link. With it the flow
// is lent what those others do not ask for. Otherwise a client that stops
// reading would hold up who comes after it.
func (l *Link) crumb(f *Flow) float64 {
	of := l.cfg.Capacity
	if f.tenant.MaxRate > 0 {
		of = min(of, f.tenant.MaxRate)
	}
	return of / 1000 / float64(len(l.flows))
}

// planner holds the scratch memory of a plan.
type planner struct {
	now    float64
	flows  []*Flow // by tenant
	rates  []float64
	groups []group

	some      []*Flow // those of a step, and their rates
	someRates []float64
	reqs      []bwsched.Request
	reqRates  []float64
}

// group is the flows of one tenant: planner.flows[lo:hi].
type group struct {
	t      *account
	lo, hi int
	frozen bool
	least  float64 // guaranteed, in bytes per second
	asked  bool    // least is no more than the policy would give it
	most   float64
	want   float64 // what it is to have, if it has less or more
}

// plan splits the capacity among flows: by the policy and in fair shares, over
// all flows together, as long as no tenant leaves its limits. Tenants that do
// are given what their limit says, split among their own flows in the same
// way, and the others share what is left, until it fits. Which side is held
// first matters: if those below their minimum lack more than those above their
// ceiling have too much, only the former are held, because the others will
// lose to them, and the other way around.
func (p *planner) plan(cfg *Config, flows []*Flow, ts *tenants) {
	p.rates = resize(p.rates, len(flows))
	p.flows = append(p.flows[:0], flows...)
	if !ts.limited() {
		p.split(cfg.Policy, cfg.Capacity, p.flows, p.rates)
		return
	}
	p.group(cfg, flows, ts)
	left := cfg.Capacity
	for range len(p.groups) + 1 {
		p.share(cfg.Policy, left)
		var lack, excess float64
		for i := range p.groups {
			g := &p.groups[i]
			if g.frozen {
				continue
			}
			got := sum(p.rates[g.lo:g.hi])
			g.want = got
			slack := 1e-9 * cfg.Capacity
			if got < g.least-slack && !g.asked {
				// A minimum is for those who can use it: the policy may give less.
				g.asked = true
				scratch := p.someRates[:g.hi-g.lo] // the shares are in p.rates by now
				p.split(cfg.Policy, g.least, p.flows[g.lo:g.hi], scratch)
				g.least = min(g.least, sum(scratch))
			}
			switch {
			case got > g.most+slack:
				g.want = g.most
				excess += got - g.most
			case got < g.least-slack:
				g.want = g.least
				lack += g.least - got
			}
		}
		if lack == 0 && excess == 0 {
			return
		}
		for i := range p.groups {
			g := &p.groups[i]
			if g.frozen {
				continue
			}
			got := sum(p.rates[g.lo:g.hi])
			if g.want > got && lack >= excess || g.want < got && excess >= lack {
				g.frozen = true
				p.split(cfg.Policy, g.want, p.flows[g.lo:g.hi], p.rates[g.lo:g.hi])
				left = max(0, left-sum(p.rates[g.lo:g.hi]))
			}
		}
	}
}

// group sorts the flows by tenant.
func (p *planner) group(cfg *Config, flows []*Flow, ts *tenants) {
	p.groups = p.groups[:0]
	at := 0
	weights, least := 0.0, 0.0
	for _, t := range ts.active {
		t.group = len(p.groups)
		p.groups = append(p.groups, group{t: t, lo: at, hi: at})
		at += t.flows
		weights += t.weight()
		least += t.MinRate
	}
	for _, f := range flows {
		g := &p.groups[f.tenant.group]
		p.flows[g.hi] = f
		g.hi++
	}
	for i := range p.groups {
		g := &p.groups[i]
		if g.most = g.t.MaxRate; g.most == 0 {
			g.most = cfg.Capacity
		}
		g.least = g.t.MinRate
		if g.t.Weight > 0 {
			g.least += g.t.Weight / weights * max(0, cfg.Capacity-least)
		}
		g.least = min(g.least, g.most)
	}
}

// share splits what is left among the flows of tenants that are not held.
func (p *planner) share(policy bwsched.Policy, left float64) {
	p.some = p.some[:0]
	for _, g := range p.groups {
		if !g.frozen {
			p.some = append(p.some, p.flows[g.lo:g.hi]...)
		}
	}
	p.someRates = resize(p.someRates, len(p.some))
	p.split(policy, left, p.some, p.someRates)
	at := 0
	for _, g := range p.groups {
		if !g.frozen {
			at += copy(p.rates[g.lo:g.hi], p.someRates[at:])
		}
	}
}

// split gives each flow outside of the pool an equal share of all, and the
// pool the rest.
func (p *planner) split(policy bwsched.Policy, capacity float64, flows []*Flow, rates []float64) {
	if len(flows) == 0 {
		return
	}
	p.reqs = p.reqs[:0]
	fair := capacity / float64(len(flows))
	for i, f := range flows {
		if rates[i] = fair; f.spec.pooled() {
			p.reqs = append(p.reqs, f.request(p.now))
		}
	}
	if len(p.reqs) == 0 {
		return
	}
	pool := fair * float64(len(p.reqs))
	p.reqRates = resize(p.reqRates, len(p.reqs))
	policy.Rates(pool, p.reqs, p.reqRates)
	total := sum(p.reqRates)
	k := 0
	for i, f := range flows {
		if !f.spec.pooled() {
			continue
		}
		rates[i] = p.reqRates[k]
		if total > pool { // by rounding
			rates[i] *= pool / total
		}
		k++
	}
}

func resize(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n, n+n/2)
	}
	return s[:n]
}

func sum(s []float64) float64 {
	t := 0.0
	for _, x := range s {
		t += x
	}
	return t
}
