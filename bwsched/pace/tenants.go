package pace

import (
	"fmt"
	"math"
)

// Limits are what one tenant's flows together are granted. The zero value
// limits nothing.
type Limits struct {
	// Weight, if not 0, guarantees the tenant's flows, as long as they can use
	// it, Weight out of the sum of the weights of the tenants that have flows
	// (1 for one without) of what the minimum rates of those leave.
	Weight  float64
	MinRate float64 // guaranteed besides, bytes per second
	MaxRate float64 // ceiling, bytes per second; 0: none
}

// check says what is wrong with limits on a link of some capacity.
func (l Limits) check(capacity float64) error {
	switch {
	case !finite(l.Weight) || !finite(l.MinRate) || !finite(l.MaxRate):
		return fmt.Errorf("limits must be finite and not negative, not %+v", l)
	case l.MaxRate > 0 && l.MinRate > l.MaxRate:
		return fmt.Errorf("minimum rate %g above maximum rate %g", l.MinRate, l.MaxRate)
	case l.MinRate > capacity:
		return fmt.Errorf("minimum rate %g above the link's %g", l.MinRate, capacity)
	}
	return nil
}

func finite(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }

// tenants admits flows. A place among MaxFlows is worth Capacity/MaxFlows. A
// tenant can take at most as many places as its ceiling is worth, and has half
// as many kept for it as its minimum rate is worth: half, so that where all of
// the link is promised others can still use what lies idle.
type tenants struct {
	most   int
	byName map[string]*account // those with limits, and those with flows
	kept   []*account          // those with places kept
	active []*account          // those with flows
	bounds int                 // active ones with limits
}

// account is one tenant.
type account struct {
	Limits
	name  string
	flows int
	kept  int // places
	most  int
	fixed bool // has limits, and stays
	at    int  // in tenants.active
	group int  // planner's
}

func newTenants(cfg Config) (tenants, error) {
	ts := tenants{most: cfg.MaxFlows, byName: make(map[string]*account, len(cfg.Tenants))}
	place := cfg.Capacity / float64(cfg.MaxFlows)
	least := 0.0
	for name, l := range cfg.Tenants {
		if err := l.check(cfg.Capacity); err != nil {
			return ts, fmt.Errorf("pace: tenant %q: %w", name, err)
		}
		a := &account{name: name, Limits: l, fixed: true, most: cfg.MaxFlows, kept: int(l.MinRate / place / 2)}
		if l.MaxRate > 0 {
			a.most = max(1, int(min(l.MaxRate/place, float64(cfg.MaxFlows))))
		}
		if least += l.MinRate; a.kept > 0 {
			ts.kept = append(ts.kept, a)
		}
		ts.byName[name] = a
	}
	if least > cfg.Capacity*(1+1e-9) {
		return ts, fmt.Errorf("pace: the tenants' minimum rates add up to %g, the link has %g", least, cfg.Capacity)
	}
	return ts, nil
}

// admit counts a flow of a tenant in; total is how many there are.
func (ts *tenants) admit(name string, total int) (*account, error) {
	a := ts.byName[name]
	if a == nil {
		a = &account{name: name, most: ts.most}
	}
	kept := 0 // for others
	for _, b := range ts.kept {
		if b != a {
			kept += max(0, b.kept-b.flows)
		}
	}
	switch {
	case a.flows >= a.most && a.most < ts.most:
		return nil, &BusyError{Limit: "paced deliveries of this tenant at one time"}
	case total+kept >= ts.most:
		return nil, &BusyError{Limit: "paced deliveries at one time"}
	}
	if a.flows++; a.flows == 1 {
		a.at = len(ts.active)
		ts.active = append(ts.active, a)
		ts.byName[name] = a
		if a.fixed {
			ts.bounds++
		}
	}
	return a, nil
}

// leave counts a flow of a tenant out.
func (ts *tenants) leave(a *account) {
	if a.flows--; a.flows > 0 {
		return
	}
	last := len(ts.active) - 1
	ts.active[a.at] = ts.active[last]
	ts.active[a.at].at = a.at
	ts.active[last] = nil
	ts.active = ts.active[:last]
	if a.fixed {
		ts.bounds--
		return
	}
	delete(ts.byName, a.name)
}

// limited reports whether a tenant with limits has flows.
func (ts *tenants) limited() bool { return ts.bounds > 0 }

// weight is the tenant's part of the sum that weights are taken from.
func (a *account) weight() float64 {
	if a.Weight > 0 {
		return a.Weight
	}
	return 1
}
