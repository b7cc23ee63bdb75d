package tenant

import (
	"go.yaml.in/yaml/v3"

	"github.com/objcached/objcached/internal/rate"
)

// Limits are a tenant's part of a paced link. The zero value limits nothing.
type Limits struct {
	Weight  float64 // guaranteed part, beside the weights of others; 0: none
	MinRate float64 // guaranteed besides, bytes per second
	MaxRate float64 // ceiling, bytes per second; 0: none
}

// maxWeight keeps sums of weights far from where numbers end.
const maxWeight = 1e9

// limits reads the list of tenants. Each must be the tenant of a user: a
// misspelt one would limit nobody.
func limits(list *yaml.Node, users []Identity) (map[string]Limits, error) {
	if list.Kind != yaml.SequenceNode {
		return nil, badLine(list, "tenants must be a list")
	}
	out := make(map[string]Limits, len(list.Content))
	for _, n := range list.Content {
		f, err := mapping(n, "a tenant", "name", "weight", "min_rate", "max_rate")
		if err != nil {
			return nil, err
		}
		name, err := text(n, f["name"], "name", checkName)
		if err != nil {
			return nil, err
		}
		if _, ok := out[name]; ok {
			return nil, badLine(n, "tenant %q is given twice", name)
		}
		if !hasTenant(users, name) {
			return nil, badLine(n, "no user is of tenant %q", name)
		}
		var l Limits
		if w := f["weight"]; w != nil {
			if l.Weight, err = weight(w); err != nil {
				return nil, err
			}
		}
		if l.MinRate, err = rateOf(f["min_rate"], "min_rate"); err != nil {
			return nil, err
		}
		if l.MaxRate, err = rateOf(f["max_rate"], "max_rate"); err != nil {
			return nil, err
		}
		if l.MaxRate > 0 && l.MinRate > l.MaxRate {
			return nil, badLine(n, "min_rate is above max_rate")
		}
		out[name] = l
	}
	return out, nil
}

func hasTenant(users []Identity, name string) bool {
	for _, id := range users {
		if id.Tenant == name {
			return true
		}
	}
	return false
}

func weight(n *yaml.Node) (float64, error) {
	if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") {
		var x float64
		if err := n.Decode(&x); err == nil && x > 0 && x <= maxWeight {
			return x, nil
		}
	}
	return 0, badLine(n, "weight must be a number above 0 and at most %g", float64(maxWeight))
}

// rateOf is the value of a rate, 0 if there is none.
func rateOf(n *yaml.Node, what string) (float64, error) {
	if n == nil {
		return 0, nil
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		if r, err := rate.Parse(n.Value); err == nil && r > 0 {
			return float64(r), nil
		}
	}
	return 0, badLine(n, "%s must be a rate above 0, like 10Gbps or 1.25GB/s", what)
}
