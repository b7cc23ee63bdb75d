package tenant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const secret = "s3cr3t-never-shown"

func TestSecretIsNeverPrinted(t *testing.T) {
	id := Identity{Name: "alice", Tenant: "research", AccessKey: "ALICEKEY", SecretKey: secret, Buckets: []string{"kv-*"}}
	users, err := NewUsers([]Identity{id})
	if err != nil {
		t.Fatal(err)
	}
	p, ok := users.Lookup("ALICEKEY")
	if !ok {
		t.Fatal("not found")
	}
	out := map[string]string{}
	for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		for name, v := range map[string]any{
			"value": id, "pointer": p, "slice": []Identity{id}, "map": map[string]*Identity{"a": p}, "struct": struct{ I Identity }{id},
			"error": fmt.Errorf("no access for %v", p),
		} {
			out[f+" "+name] = fmt.Sprintf(f, v)
		}
	}
	for name, v := range map[string]any{"value": id, "pointer": p, "slice": []Identity{id}, "struct": struct{ I *Identity }{p}} {
		var text, js bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "id", v)
		slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "id", v)
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		y, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out["slog text "+name], out["slog json "+name], out["json "+name], out["yaml "+name] = text.String(), js.String(), string(b), string(y)
	}
	for how, s := range out {
		hex := fmt.Sprintf("%x", secret)
		if strings.Contains(s, secret) || strings.Contains(strings.ToLower(s), hex) || strings.Contains(s, "SecretKey") {
			t.Errorf("%s shows the secret: %s", how, s)
		}
	}
	if got := fmt.Sprintf("%+v %v", p, Identity{Root: true}); got != "research/alice root" {
		t.Errorf("printed as %q", got)
	}
	if s := out["slog text value"]; !strings.Contains(s, "id.user=research/alice id.access_key=ALICEKEY") {
		t.Errorf("logged as %s", s)
	}
}

func TestUsers(t *testing.T) {
	patterns := []string{"a-*"}
	in := []Identity{{Name: "a", Tenant: "t", AccessKey: "AAA", SecretKey: "12345678", Buckets: patterns}, {AccessKey: "RRR", SecretKey: secret, Root: true}}
	u, err := NewUsers(in)
	if err != nil {
		t.Fatal(err)
	}
	in[0].Name, patterns[0] = "changed", "*"
	id, ok := u.Lookup("AAA")
	if !ok || id.Name != "a" || id.Buckets[0] != "a-*" || u.Len() != 2 {
		t.Errorf("%+v %v, changed through the caller's slice", id, ok)
	}
	if s, ok := u.Secret("RRR"); !ok || s != secret {
		t.Error("the root's secret is not found")
	}
	if s, ok := u.Secret("AA"); ok || s != "" {
		t.Error("found a key that is not there")
	}
	if _, ok := new(Users).Lookup("AAA"); ok {
		t.Error("the zero value knows someone")
	}
	if _, err := NewUsers([]Identity{in[0], in[1], {Name: "b", AccessKey: "AAA", SecretKey: secret}}); err == nil ||
		!strings.Contains(err.Error(), "AAA") || strings.Contains(err.Error(), secret) {
		t.Errorf("repeated access key: %v", err)
	}
}

func TestAccess(t *testing.T) {
	alice := &Identity{Name: "alice", Tenant: "t1"}
	alice2 := &Identity{Name: "alice", Tenant: "t2"}
	kv := &Identity{Name: "kv", Tenant: "t1", Buckets: []string{"kv-*", "shared"}}
	root := &Identity{Root: true}
	for _, c := range []struct {
		id                    *Identity
		bucket, owner, tenant string
		access, create        bool
	}{
		{root, "any", "alice", "t1", true, true},
		{root, "none", "", "", true, true},
		{nil, "any", "", "", false, false},
		{nil, "any", "alice", "t1", false, false},
		{alice, "hers", "alice", "t1", true, true},
		{alice2, "hers", "alice", "t1", false, true}, // the same name in another tenant
		{alice, "of-root", "", "", false, true},
		{alice, "missing", "", "", false, true},
		{alice, "kv-1", "kv", "t1", false, true},
		{kv, "kv-1", "alice", "t2", true, true}, // patterns lead into other tenants
		{kv, "kv-missing", "", "", true, true},
		{kv, "shared", "", "", true, true},
		{kv, "shared2", "", "", false, false},
		{kv, "old", "kv", "t1", true, false}, // its own from before the patterns
		{&Identity{}, "of-root", "", "", false, true},
	} {
		if got := MayAccess(c.id, c.bucket, c.owner, c.tenant); got != c.access {
			t.Errorf("MayAccess(%v, %s of %s/%s) = %v", c.id, c.bucket, c.tenant, c.owner, got)
		}
		if got := MayCreate(c.id, c.bucket); got != c.create {
			t.Errorf("MayCreate(%v, %s) = %v", c.id, c.bucket, got)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"**", "abc", true}, {"?", "", false}, {"?", "a", true},
		{"?", "ab", false}, {"a", "a", true}, {"a", "b", false}, {"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*b", "ab", true}, {"a*b", "axxb", true}, {"a*b", "abx", false}, {"a*b*c", "abbcc", true}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*ab", "aab", true}, {"*a?c*", "xxabcx", true}, {"kv-*", "kv-", true}, {"kv-*", "kv", false}, {"[a]", "a", false}, {"A", "a", false},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
	// What is exponential for a matcher that tries every star is quick here.
	if Match(strings.Repeat("a*", 2000)+"b", strings.Repeat("a", 20000)) {
		t.Error("matched")
	}
}

// naive fills a table from the definition.
func naive(p, n string) bool {
	ok := make([][]bool, len(p)+1)
	for i := range ok {
		ok[i] = make([]bool, len(n)+1)
	}
	for i := len(p); i >= 0; i-- {
		for j := len(n); j >= 0; j-- {
			switch {
			case i == len(p):
				ok[i][j] = j == len(n)
			case p[i] == '*':
				ok[i][j] = ok[i+1][j] || j < len(n) && ok[i][j+1]
			default:
				ok[i][j] = j < len(n) && (p[i] == '?' || p[i] == n[j]) && ok[i+1][j+1]
			}
		}
	}
	return ok[0][0]
}

func FuzzMatch(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Add("*a*b*", "ba")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern)*len(name) > 1<<20 {
			return
		}
		if got, want := Match(pattern, name), naive(pattern, name); got != want {
			t.Errorf("Match(%q, %q) = %v", pattern, name, got)
		}
		if !Match("*", name) || !strings.ContainsAny(name, "*?") && !Match(name, name) {
			t.Errorf("%q does not match itself or *", name)
		}
	})
}

func TestMatchAllocatesNothing(t *testing.T) {
	id := &Identity{Name: "a", Tenant: "t", Buckets: []string{"x*", "*y", "kv-*-?"}}
	if n := testing.AllocsPerRun(100, func() {
		if !MayAccess(id, "kv-abc-1", "", "") {
			t.Fatal("no access")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
