package tenant

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"go.yaml.in/yaml/v3"
)

const good = `# users of this store
users:
  - name: alice
    tenant: research
    access_key: ALICEKEY
    secret_key: "alice's secret: #1"
    buckets: ["kv-*", 'shared-?']
  - {name: bob, tenant: research, access_key: "01234567", secret_key: bob-secret}
  - name: alice
    tenant: other team
    access_key: OTHER/KEY+1
    secret_key: |-
      folded secret
`

func TestParseCredentials(t *testing.T) {
	got, err := ParseCredentials([]byte(good))
	want := []Identity{
		{Name: "alice", Tenant: "research", AccessKey: "ALICEKEY", SecretKey: "alice's secret: #1", Buckets: []string{"kv-*", "shared-?"}},
		{Name: "bob", Tenant: "research", AccessKey: "01234567", SecretKey: "bob-secret"},
		{Name: "alice", Tenant: "other team", AccessKey: "OTHER/KEY+1", SecretKey: "folded secret"},
	}
	if err != nil || !reflect.DeepEqual(got.Users, want) || got.Limits != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseCredentials([]byte("users: []\n")); err != nil || len(got.Users) != 0 {
		t.Errorf("no users: %v, %v", got, err)
	}
}

func TestCredentialMistakes(t *testing.T) {
	const a = "  - {name: a, tenant: t, access_key: AAA, secret_key: secret-of-a}\n"
	for _, c := range []struct {
		text string
		line int // 0: no *SyntaxError
		says string
	}{
		{"", 1, "empty"},
		{"# nothing\n", 1, "empty"},
		{"- a\n", 1, "mapping"},
		{"{}\n", 1, "users is missing"},
		{"users:\n", 1, "list"},
		{"users: {a: b}\n", 1, "list"},
		{"users:\n" + a + "more: 1\n", 3, `unknown field "more"`},
		{"users:\n" + a + "users: []\n", 3, "users is given twice"},
		{"users:\n" + a + "---\nusers: []\n", 3, "only one"},
		{"users:\n  - a\n", 2, "mapping"},
		{"users:\n  - name: a\n    tenant: t\n    access_key: AAA\n    secret_key: secret-of-a\n    acces_key: BBB\n", 6, `unknown field "acces_key"`},
		{"users:\n  - name: a\n    tenant: t\n    access_key: AAA\n    secret_key: secret-of-a\n    name: b\n", 6, "name is given twice"},
		{"users:\n  - Name: a\n", 2, `unknown field "Name"`},
		{"users:\n  - {tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "name is missing"},
		{"users:\n  - {name: a, access_key: AAA, secret_key: secret-of-a}\n", 2, "tenant is missing"},
		{"users:\n  - {name: a, tenant: t, secret_key: secret-of-a}\n", 2, "access_key is missing"},
		{"users:\n" + a + "  - {name: b, tenant: t, access_key: BBB}\n", 3, "secret_key is missing"},
		{"users:\n  - {name: '', tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "name is empty"},
		{"users:\n  - {name: a, tenant: ~, access_key: AAA, secret_key: secret-of-a}\n", 2, "tenant is empty"},
		{"users:\n  - {name: a, tenant: t, access_key: 1234, secret_key: secret-of-a}\n", 2, "quotes"},
		{"users:\n  - {name: true, tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "quotes"},
		{"users:\n  - {name: [a], tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "must be a string"},
		{"users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: secret7}\n", 2, "too short"},
		{"users:\n  - {name: a, tenant: t, access_key: AA, secret_key: secret-of-a}\n", 2, "3 to"},
		{"users:\n  - {name: a, tenant: t, access_key: A A, secret_key: secret-of-a}\n", 2, "printable"},
		{"users:\n  - {name: a, tenant: t, access_key: 'A,A', secret_key: secret-of-a}\n", 2, "commas"},
		{"users:\n  - {name: a/b, tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "slash"},
		{"users:\n  - {name: ' a', tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "space"},
		{"users:\n  - {name: \"a\\tb\", tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 2, "control"},
		{"users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: \"secret-of-\\n\"}\n", 2, "control"},
		{"users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: " + strings.Repeat("secret-of-a", 20) + "}\n", 2, "longer"},
		{"users:\n" + a + "  - {name: b, tenant: t, access_key: AAA, secret_key: secret-of-a}\n", 3, "user on line 2"},
		{"users:\n" + a + "  - {name: a, tenant: t, access_key: BBB, secret_key: secret-of-a}\n", 3, `already has a user "a" on line 2`},
		{"users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: secret-of-a, buckets: kv-*}\n", 2, "list"},
		{"users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: secret-of-a, buckets: ['']}\n", 2, "empty"},
		{"users:\n  - name: a\n    tenant: t\n    access_key: AAA\n    secret_key: secret-of-a\n    buckets:\n    - kv-*\n    - kv/*\n", 8, "no bucket name"},
		{"users:\n  - {name: &x a, tenant: *x, access_key: AAA, secret_key: secret-of-a}\n", 2, "anchors"},
		{"users: &u\n" + a, 1, "anchors"},
		{"users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: *secret-of-a }\n", 0, "anchors"},
		{"users:\n  - {name: a\n", 0, "line"},
		{"users: [\x00]", 0, "control"},
	} {
		got, err := ParseCredentials([]byte(c.text))
		var se *SyntaxError
		switch {
		case err == nil || got.Users != nil || got.Limits != nil:
			t.Errorf("%q is taken", c.text)
		case c.line != 0 && (!errors.As(err, &se) || se.Line != c.line):
			t.Errorf("%q: %v, want line %d", c.text, err, c.line)
		case !strings.Contains(err.Error(), c.says):
			t.Errorf("%q: %v, want it to say %q", c.text, err, c.says)
		case strings.Contains(err.Error(), "secret-of") || strings.Contains(err.Error(), "secret7"):
			t.Errorf("%q: the error shows a secret: %v", c.text, err)
		}
	}
}

func TestLoadCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	if _, _, err := LoadCredentials(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, c := range []struct {
		mode os.FileMode
		warn bool
	}{{0o600, false}, {0o400, false}, {0o644, true}, {0o640, true}, {0o602, true}} {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		got, warning, err := LoadCredentials(path)
		ids := got.Users
		if err != nil || len(ids) != 3 || (warning != "") != c.warn || c.warn && !strings.Contains(warning, fmt.Sprintf("%04o", c.mode)) {
			t.Errorf("mode %o: %d users, warning %q, %v", c.mode, len(ids), warning, err)
		}
	}
	_ = os.Chmod(path, 0o600)
	if err := os.WriteFile(path, []byte("users:\n- 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadCredentials(path); err == nil || !strings.Contains(err.Error(), path+": line 2") {
		t.Errorf("the error does not name file and line: %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("#\n"), maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadCredentials(path); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("huge file: %v", err)
	}
}

func TestRootPair(t *testing.T) {
	dir := t.TempDir()
	id, created, err := LoadOrCreateRoot(dir, rand.Reader)
	if err != nil || !created || !id.Root || id.Name != "" || id.Tenant != "" {
		t.Fatalf("%v, %v, %v", id, created, err)
	}
	if !regexp.MustCompile(`^[A-Z2-7]{20}$`).MatchString(id.AccessKey) || !regexp.MustCompile(`^[A-Za-z0-9_-]{40}$`).MatchString(id.SecretKey) {
		t.Errorf("keys %q and %q", id.AccessKey, id.SecretKey)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	st, err := os.Stat(filepath.Join(dir, RootFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// The second time no randomness is needed, and nothing is made.
	again, created, err := LoadOrCreateRoot(dir, iotest.ErrReader(errors.New("not needed")))
	if err != nil || created || !reflect.DeepEqual(again, id) {
		t.Errorf("%v, %v, %v", again, created, err)
	}
	other, _, err := LoadOrCreateRoot(t.TempDir(), rand.Reader)
	if err != nil || other.SecretKey == id.SecretKey || other.AccessKey == id.AccessKey {
		t.Error("two stores have the same keys")
	}
}

func TestRootPairFailures(t *testing.T) {
	dir := t.TempDir()
	for n := range int64(43) {
		short := &shortReader{n: n}
		if _, created, err := LoadOrCreateRoot(dir, short); err == nil || created {
			t.Fatalf("made from %d random bytes", n)
		}
	}
	if _, created, err := LoadOrCreateRoot(filepath.Join(dir, "none"), rand.Reader); !errors.Is(err, os.ErrNotExist) || created {
		t.Errorf("missing directory: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	path := filepath.Join(dir, RootFile)
	for _, c := range []struct {
		text, says string
		mode       os.FileMode
	}{
		{"", "empty", 0o600},
		{"access_key: AKEXAMPLE\n", "secret_key is missing", 0o600},
		{"access_key: AKEXAMPLE\nsecret_key: short\n", "too short", 0o600},
		{"access_key: AKEXAMPLE\nsecret_key: long-enough\nsecret_key: long-enough\n", "twice", 0o600},
		{"access_key: AKEXAMPLE\nsecret_key: long-enough\n", "chmod 600", 0o644},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, created, err := LoadOrCreateRoot(dir, rand.Reader)
		if err == nil || created || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "long-enough") {
			t.Errorf("%q: %v", c.text, err)
		}
		if left, _ := os.ReadFile(path); string(left) != c.text {
			t.Errorf("%q was changed to %q", c.text, left)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewRoot("ok-key", "short"); err == nil {
		t.Error("short secret taken")
	}
	if _, err := NewRoot("", "long enough"); err == nil {
		t.Error("empty access key taken")
	}
}

type shortReader struct{ n int64 }

func (s *shortReader) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, errors.New("no more randomness")
	}
	n := min(int64(len(p)), s.n)
	s.n -= n
	return int(n), nil
}

func TestRootPairAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	pairs := map[string]bool{}
	for range 16 {
		wg.Go(func() {
			id, created, err := LoadOrCreateRoot(dir, rand.Reader)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if created {
				made++
			}
			pairs[id.AccessKey+id.SecretKey] = true
		})
	}
	wg.Wait()
	if made != 1 || len(pairs) != 1 {
		t.Errorf("%d made, %d different pairs", made, len(pairs))
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// FuzzCredentials: nothing panics; what is taken agrees with a plain YAML
// decoding and obeys the rules; errors show no secret.
func FuzzCredentials(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("users:\n  - {name: a, tenant: t, access_key: AAA, secret_key: *secret-of-a }\n"))
	f.Add([]byte(twoTenants + "tenants:\n  - {name: t, weight: 2, min_rate: 1Gbps, max_rate: 1.25GB/s}\n  - {name: u, weight: 0.5}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? {a: b}\n: c\n"))
	f.Add([]byte("users: !!str\n- !x {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseCredentials(data)
		ids := got.Users
		if err != nil {
			if ids != nil || got.Limits != nil || err.Error() == "" {
				t.Fatalf("%v with %v", ids, err)
			}
			return
		}
		var plain struct {
			Users []struct {
				Name, Tenant string
				AccessKey    string `yaml:"access_key"`
				SecretKey    string `yaml:"secret_key"`
				Buckets      []string
			}
			Tenants []struct {
				Name    string
				Weight  float64
				MinRate string `yaml:"min_rate"`
				MaxRate string `yaml:"max_rate"`
			}
		}
		if err := yaml.Unmarshal(data, &plain); err != nil {
			t.Fatalf("taken, but no plain YAML: %v", err)
		}
		if len(plain.Users) != len(ids) {
			t.Fatalf("%d users, plainly %d", len(ids), len(plain.Users))
		}
		seen := map[string]bool{}
		for i, id := range ids {
			p := plain.Users[i]
			if want := (Identity{Name: p.Name, Tenant: p.Tenant, AccessKey: p.AccessKey, SecretKey: p.SecretKey, Buckets: append([]string(nil), p.Buckets...)}); !reflect.DeepEqual(id, want) {
				t.Fatalf("user %d differs from plain YAML", i)
			}
			if id.Root || id.Name == "" || id.Tenant == "" || len(id.SecretKey) < MinSecret || len(id.AccessKey) < 3 ||
				seen["k"+id.AccessKey] || seen["n"+id.Tenant+"/"+id.Name] {
				t.Fatalf("user %d breaks the rules", i)
			}
			seen["k"+id.AccessKey], seen["n"+id.Tenant+"/"+id.Name] = true, true
		}
		if _, err := NewUsers(ids); err != nil {
			t.Fatal(err)
		}
		if len(plain.Tenants) != len(got.Limits) {
			t.Fatalf("%d tenants, plainly %d", len(got.Limits), len(plain.Tenants))
		}
		for _, p := range plain.Tenants {
			l, ok := got.Limits[p.Name]
			if !ok || l.Weight != p.Weight || (l.MinRate > 0) != (p.MinRate != "") || (l.MaxRate > 0) != (p.MaxRate != "") ||
				!(l.MinRate <= l.MaxRate || l.MaxRate == 0) {
				t.Fatalf("tenant %q: %+v, plainly %+v", p.Name, l, p)
			}
		}
	})
}
