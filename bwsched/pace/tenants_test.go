package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/bwsched"
)

// TestTenantsLimits gives links of 1000 bytes per second to tenants, and
// compares what each tenant's flows are granted together with sums by hand.
func TestTenantsLimits(t *testing.T) {
	type tenant struct {
		name   string
		flows  int
		limits Limits
		want   float64
	}
	for _, c := range []struct {
		what    string
		tenants []tenant
	}{
		{"no limits", []tenant{{"a", 1, Limits{}, 100}, {"b", 9, Limits{}, 900}}},
		{"a ceiling", []tenant{{"a", 1, Limits{MaxRate: 100}, 100}, {"b", 1, Limits{}, 900}}},
		{"a ceiling and nobody else", []tenant{{"a", 3, Limits{MaxRate: 100}, 100}}},
		{"a minimum", []tenant{{"a", 1, Limits{MinRate: 700}, 700}, {"b", 9, Limits{}, 300}}},
		{"a minimum that is had anyway", []tenant{{"a", 9, Limits{MinRate: 700}, 900}, {"b", 1, Limits{}, 100}}},
		{"a ceiling that a minimum beside it puts out of reach",
			[]tenant{{"a", 19, Limits{MaxRate: 900}, 500}, {"b", 1, Limits{MinRate: 500}, 500}}},
		{"a minimum that a ceiling beside it meets",
			[]tenant{{"a", 8, Limits{MaxRate: 100}, 100}, {"b", 1, Limits{MinRate: 400}, 450}, {"c", 1, Limits{}, 450}}},
		{"a weight", []tenant{{"a", 1, Limits{Weight: 3}, 750}, {"b", 9, Limits{}, 250}}},
		{"two weights", []tenant{{"a", 1, Limits{Weight: 1}, 250}, {"b", 9, Limits{Weight: 3}, 750}}},
		{"a weight beside a minimum", []tenant{{"a", 1, Limits{Weight: 3}, 600}, {"b", 9, Limits{MinRate: 200}, 400}}},
		{"a weight under a ceiling", []tenant{{"a", 1, Limits{Weight: 3, MaxRate: 200}, 200}, {"b", 9, Limits{}, 800}}},
		{"everything at its ceiling", []tenant{{"a", 1, Limits{MaxRate: 100}, 100}, {"b", 9, Limits{MaxRate: 300}, 300}}},
		{"all of the link promised", []tenant{{"a", 8, Limits{MinRate: 600}, 600}, {"b", 1, Limits{MinRate: 400}, 400}, {"c", 5, Limits{}, 0}}},
	} {
		for _, mode := range []Mode{Layer, Chunk} {
			limits := map[string]Limits{}
			for _, x := range c.tenants {
				if x.limits != (Limits{}) {
					limits[x.name] = x.limits
				}
			}
			s := newSim(t, Config{Capacity: 1000, Policy: bwsched.Equal{}, Tenants: limits})
			for _, x := range c.tenants {
				for range x.flows {
					spec := pooled("", 1000)
					spec.Tenant, spec.Mode = x.name, mode
					s.join(spec).stopped = true
				}
			}
			s.play(s.l.cfg.Epoch)
			got := map[string]float64{}
			for _, p := range s.players {
				got[p.f.spec.Tenant] += p.f.Rate()
			}
			for _, x := range c.tenants {
				if math.Abs(got[x.name]-x.want) > 1e-3 {
					t.Errorf("%s: tenant %s has %g, want %g", c.what, x.name, got[x.name], x.want)
				}
			}
		}
	}
}

// TestMinimumIsForThoseWhoCanUseIt: what the policy would not give a tenant
// alone is not kept from the others.
func TestMinimumIsForThoseWhoCanUseIt(t *testing.T) {
	s := newSim(t, Config{Capacity: 1000, Policy: table{rates: map[string]float64{"a": 10, "b": 990}}, Tenants: map[string]Limits{"a": {MinRate: 700}}})
	for _, name := range []string{"a", "b"} {
		spec := pooled(name, 1000)
		spec.Tenant = name
		s.join(spec).stopped = true
	}
	s.play(s.l.cfg.Epoch)
	near(t, "a", s.players[0].f.Rate(), 10, 1e-9)
	near(t, "b", s.players[1].f.Rate(), 990, 1e-9)
}

// TestRandomTenants checks the rules themselves on random links.
func TestRandomTenants(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		limits := map[string]Limits{}
		left := 1000.0
		for i := range r.IntN(5) {
			var l Limits
			if r.IntN(2) == 0 {
				l.Weight = r.Float64() * 4
			}
			if r.IntN(2) == 0 {
				l.MinRate = r.Float64() * left
				left -= l.MinRate
			}
			if r.IntN(2) == 0 {
				l.MaxRate = l.MinRate + r.Float64()*500 + 31 // places for 30
			}
			limits[fmt.Sprint(i)] = l
		}
		s := newSim(t, Config{Capacity: 1000, Policy: bwsched.Equal{}, Tenants: limits})
		for range 1 + r.IntN(30) {
			spec := pooled("", 1000)
			spec.Tenant = fmt.Sprint(r.IntN(6))
			s.join(spec).stopped = true
		}
		s.play(s.l.cfg.Epoch)
		got, total := map[string]float64{}, 0.0
		for _, p := range s.players {
			got[p.f.spec.Tenant] += p.f.Rate()
			total += p.f.Rate()
		}
		room := 0.0
		for name, g := range got {
			l := limits[name]
			if g < l.MinRate-1e-6 {
				t.Fatalf("tenant %s has %g, guaranteed are %g (%v)", name, g, l.MinRate, limits)
			}
			if l.MaxRate > 0 && g > l.MaxRate+1e-6 {
				t.Fatalf("tenant %s has %g, at most %g (%v)", name, g, l.MaxRate, limits)
			}
			if room += l.MaxRate; l.MaxRate == 0 {
				room = math.Inf(1)
			}
		}
		if want := min(1000, room); math.Abs(total-want) > 1e-3 {
			t.Fatalf("%g is granted, want %g (%v, %v)", total, want, got, limits)
		}
	}
}

// TestAdmission: places are bounded, kept for those with a minimum, and few
// for those with a ceiling.
func TestAdmission(t *testing.T) {
	s := newSim(t, Config{Capacity: 1000, Policy: bwsched.Equal{}, MaxFlows: 10,
		Tenants: map[string]Limits{"kept": {MinRate: 600}, "few": {MaxRate: 250}, "one": {MaxRate: 1}}})
	var flows []*Flow
	join := func(tenant string, want string) {
		t.Helper()
		f, err := s.l.Join(context.Background(), Spec{Tenant: tenant, LayerBytes: 1, Layers: 1})
		var busy *BusyError
		switch {
		case want == "" && err != nil:
			t.Fatalf("%s: %v", tenant, err)
		case want != "" && (!errors.As(err, &busy) || busy.Limit != want):
			t.Fatalf("%s: %v, want %q", tenant, err, want)
		case want == "":
			flows = append(flows, f)
		}
	}
	const own, all = "paced deliveries of this tenant at one time", "paced deliveries at one time"
	join("one", "")
	join("one", own)
	join("few", "")
	join("few", "")
	join("few", own)
	for i := range 4 {
		join(fmt.Sprint("other", i), "")
	}
	join("other", all) // three places are kept
	for range 3 {
		join("kept", "")
	}
	join("kept", all)
	if got := s.l.Stats().Refused; got != 4 {
		t.Errorf("%d refused", got)
	}
	for _, f := range flows {
		f.Close()
		f.Close()
	}
	if len(s.l.tenants.byName) != 3 || len(s.l.tenants.active) != 0 {
		t.Errorf("tenants are kept: %v", s.l.tenants.byName)
	}
	join("other", "")
}

func TestConfigErrors(t *testing.T) {
	eq := bwsched.Equal{}
	for _, c := range []Config{
		{Policy: eq}, {Capacity: -1, Policy: eq}, {Capacity: math.NaN(), Policy: eq}, {Capacity: math.Inf(1), Policy: eq}, {Capacity: 1},
		{Capacity: 1, Policy: eq, Epoch: -1}, {Capacity: 1, Policy: eq, Burst: -1}, {Capacity: 1, Policy: eq, MaxFlows: -1},
		{Capacity: 1, Policy: eq, Tenants: map[string]Limits{"a": {MinRate: 2}}},
		{Capacity: 10, Policy: eq, Tenants: map[string]Limits{"a": {MinRate: 6}, "b": {MinRate: 6}}},
		{Capacity: 10, Policy: eq, Tenants: map[string]Limits{"a": {MinRate: 6, MaxRate: 5}}},
		{Capacity: 10, Policy: eq, Tenants: map[string]Limits{"a": {Weight: -1}}},
		{Capacity: 10, Policy: eq, Tenants: map[string]Limits{"a": {Weight: math.NaN()}}},
	} {
		if l, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
			_ = l.Close()
		}
	}
	s := newSim(t, Config{Capacity: 1, Policy: eq})
	for _, spec := range []Spec{{}, {LayerBytes: 1}, {Layers: 1}, {LayerBytes: 1, Layers: 1, Compute: -1}} {
		if _, err := s.l.Join(context.Background(), spec); err == nil {
			t.Errorf("%+v is taken", spec)
		}
	}
}
