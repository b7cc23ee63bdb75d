package tenant

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const twoTenants = "users:\n" +
	"  - {name: a, tenant: t, access_key: AAA, secret_key: secret-of-a}\n" +
	"  - {name: b, tenant: u, access_key: BBB, secret_key: secret-of-b}\n"

func TestLimits(t *testing.T) {
	got, err := ParseCredentials([]byte(twoTenants + `tenants:
  - name: t
    weight: 2.5
    min_rate: 1Gbps
    max_rate: 1.25GB/s
  - {name: u, weight: 3}
`))
	want := map[string]Limits{"t": {Weight: 2.5, MinRate: 125e6, MaxRate: 1.25e9}, "u": {Weight: 3}}
	if err != nil || !reflect.DeepEqual(got.Limits, want) || len(got.Users) != 2 {
		t.Errorf("%+v, %v", got.Limits, err)
	}
}

func TestLimitMistakes(t *testing.T) {
	for _, c := range []struct {
		text string
		line int
		says string
	}{
		{"tenants: t\n", 4, "list"},
		{"tenants:\n  - t\n", 5, "mapping"},
		{"tenants:\n  - {weight: 1}\n", 5, "name is missing"},
		{"tenants:\n  - {name: x}\n", 5, `no user is of tenant "x"`},
		{"tenants:\n  - {name: t}\n  - {name: t}\n", 6, "twice"},
		{"tenants:\n  - {name: t, rate: 1Gbps}\n", 5, `unknown field "rate"`},
		{"tenants:\n  - {name: t, weight: 0}\n", 5, "weight"},
		{"tenants:\n  - {name: t, weight: .inf}\n", 5, "weight"},
		{"tenants:\n  - {name: t, weight: .nan}\n", 5, "weight"},
		{"tenants:\n  - {name: t, weight: 1e300}\n", 5, "weight"},
		{"tenants:\n  - {name: t, weight: \"2\"}\n", 5, "weight"},
		{"tenants:\n  - {name: t, weight: [2]}\n", 5, "weight"},
		{"tenants:\n  - name: t\n    min_rate: 10\n", 6, "min_rate must be a rate"},
		{"tenants:\n  - name: t\n    max_rate: 0Gbps\n", 6, "max_rate must be a rate"},
		{"tenants:\n  - {name: t, max_rate: }\n", 5, "max_rate must be a rate"},
		{"tenants:\n  - {name: t, min_rate: 2Gbps, max_rate: 1Gbps}\n", 5, "above"},
	} {
		_, err := ParseCredentials([]byte(twoTenants + c.text))
		var se *SyntaxError
		if !errors.As(err, &se) || se.Line != c.line || !strings.Contains(se.Reason, c.says) {
			t.Errorf("%q: %v, want line %d and %q", c.text, err, c.line, c.says)
		}
	}
}
