package descriptor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// testdata/chunkkeys.json was computed by a separate program (Python's hashlib
// and struct) from the description in chunkkey.go, not by this package.
// Stored chunks depend on these values: they never change.
func TestChunkKeysGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/chunkkeys.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Format string
		Cases  []struct {
			Name      string
			Root      Root
			Salt      string `json:"salt_hex"`
			Tokens    []uint32
			RootBytes string `json:"root_bytes_hex"`
			RootHash  string `json:"root_hash_hex"`
			Keys      []string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if file.Format != strings.TrimRight(keyDomain, "\x00") || len(file.Cases) < 11 {
		t.Fatalf("format %q with %d cases", file.Format, len(file.Cases))
	}
	for _, c := range file.Cases {
		salt, err := hex.DecodeString(c.Salt)
		if err != nil {
			t.Fatal(err)
		}
		c.Root.TenantSalt = string(salt)
		b := c.Root.appendBinary(nil)
		if got := hex.EncodeToString(b); got != c.RootBytes {
			t.Errorf("%s: root bytes\n got %s\nwant %s", c.Name, got, c.RootBytes)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != c.RootHash {
			t.Errorf("%s: root hash %x, want %s", c.Name, sum, c.RootHash)
		}
		got, err := c.Root.Keys(c.Tokens)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if !slices.Equal(got, c.Keys) {
			t.Errorf("%s:\n got %q\nwant %q", c.Name, got, c.Keys)
		}
	}
}

func testRoot() Root {
	return Root{
		Model: "m", Revision: "r", DType: "bfloat16", NumLayers: 2, PerLayerChunkBytes: 4096, Layout: L2TD,
		ChunkTokens: 4, TPRank: 0, TPSize: 2,
	}
}

func randomTokens(seed uint64, n int) []uint32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	t := make([]uint32, n)
	for i := range t {
		t[i] = rng.Uint32()
	}
	return t
}

func mustKeys(t testing.TB, r Root, tokens []uint32) []string {
	t.Helper()
	k, err := r.Keys(tokens)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Every field of Root must change every key; KeyPrefix alone leaves the hash.
// The fields are walked by reflection so that a new one cannot be forgotten.
func TestChunkKeysDependOnEveryField(t *testing.T) {
	base := testRoot()
	tokens := randomTokens(1, 24)
	want := mustKeys(t, base, tokens)
	rt := reflect.TypeFor[Root]()
	for i := range rt.NumField() {
		r := base
		f := reflect.ValueOf(&r).Elem().Field(i)
		name := rt.Field(i).Name
		toks := tokens
		switch {
		case name == "Layout":
			f.SetString(string(TwoLTD))
		case f.Kind() == reflect.String:
			f.SetString(f.String() + "x")
		default:
			f.SetInt(f.Int() + 1)
		}
		got := mustKeys(t, r, toks)
		if name == "KeyPrefix" {
			for j := range want {
				if got[j] != "x"+want[j] {
					t.Errorf("KeyPrefix: key %d is %q, want x%s", j, got[j], want[j])
				}
			}
			continue
		}
		if len(got) == 0 {
			t.Fatalf("%s: no keys", name)
		}
		for _, k := range got {
			if slices.Contains(want, k) {
				t.Errorf("%s: key %s did not change", name, k)
			}
		}
	}
}

func TestChunkKeysPrefixProperty(t *testing.T) {
	r := testRoot()
	a := randomTokens(2, 40)
	all := mustKeys(t, r, a)
	if len(all) != 10 {
		t.Fatalf("%d keys, want 10", len(all))
	}
	for n := range len(a) + 1 {
		if got := mustKeys(t, r, a[:n]); len(got) != n/r.ChunkTokens || !slices.Equal(got, all[:len(got)]) {
			t.Fatalf("the keys of the first %d tokens are not the first %d keys", n, n/r.ChunkTokens)
		}
	}
	// One token changed: keys before its chunk stay, all from it on are new.
	for i := range a {
		b := slices.Clone(a)
		b[i] ^= 1 << (i % 32)
		got := mustKeys(t, r, b)
		for j := range got {
			if same := got[j] == all[j]; same != (j < i/r.ChunkTokens) {
				t.Fatalf("token %d changed: key %d same=%v", i, j, same)
			}
		}
	}
	seen := map[string]bool{}
	for _, k := range all {
		if len(k) != 64 || strings.Trim(k, "0123456789abcdef") != "" || seen[k] {
			t.Errorf("bad or repeated key %q", k)
		}
		seen[k] = true
	}
}

func TestHasherInPieces(t *testing.T) {
	r := testRoot()
	tokens := randomTokens(3, 43)
	want := mustKeys(t, r, tokens)
	for step := 1; step <= len(tokens); step++ {
		h, err := r.NewHasher()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for rest := tokens; len(rest) > 0; {
			n := min(step, len(rest))
			got = h.Append(got, rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(got, want) || h.Chunks() != len(want) || h.Pending() != len(tokens)%r.ChunkTokens {
			t.Fatalf("step %d: %d keys, Chunks %d, Pending %d", step, len(got), h.Chunks(), h.Pending())
		}
	}
}

func TestHasherClone(t *testing.T) {
	r := testRoot()
	common, left, right := randomTokens(4, 10), randomTokens(5, 9), randomTokens(6, 9)
	h, err := r.NewHasher()
	if err != nil {
		t.Fatal(err)
	}
	keys := h.Append(nil, common)
	c := h.Clone()
	gotLeft := h.Append(slices.Clone(keys), left)
	gotRight := c.Append(slices.Clone(keys), right)
	if want := mustKeys(t, r, slices.Concat(common, left)); !slices.Equal(gotLeft, want) {
		t.Error("the original went wrong after Clone")
	}
	if want := mustKeys(t, r, slices.Concat(common, right)); !slices.Equal(gotRight, want) {
		t.Error("the clone went wrong")
	}
}

func TestRootValidate(t *testing.T) {
	ok := testRoot()
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", MaxRootString+1)
	for _, c := range []struct {
		field string
		edit  func(*Root)
	}{
		{"model", func(r *Root) { r.Model = "" }},
		{"model", func(r *Root) { r.Model = long }},
		{"model", func(r *Root) { r.Model = "\xff" }},
		{"revision", func(r *Root) { r.Revision = "" }},
		{"dtype", func(r *Root) { r.DType = "" }},
		{"layout", func(r *Root) { r.Layout = "" }},
		{"layout", func(r *Root) { r.Layout = "L2TD" }},
		{"num_layers", func(r *Root) { r.NumLayers = 0 }},
		{"num_layers", func(r *Root) { r.NumLayers = -1 }},
		{"num_layers", func(r *Root) { r.NumLayers = 1 << 32 }},
		{"per_layer_chunk_bytes", func(r *Root) { r.PerLayerChunkBytes = 0 }},
		{"chunk_tokens", func(r *Root) { r.ChunkTokens = 0 }},
		{"chunk_tokens", func(r *Root) { r.ChunkTokens = 1<<24 + 1 }},
		{"tp_size", func(r *Root) { r.TPSize = 0 }},
		{"tp_rank", func(r *Root) { r.TPRank = 2 }},
		{"tp_rank", func(r *Root) { r.TPRank = -1 }},
		{"tenant_salt", func(r *Root) { r.TenantSalt = long }},
		{"key_prefix", func(r *Root) { r.KeyPrefix = strings.Repeat("p", MaxKeyPrefix+1) }},
		{"key_prefix", func(r *Root) { r.KeyPrefix = "\xff" }},
	} {
		r := testRoot()
		c.edit(&r)
		var fe *FieldError
		if err := r.Validate(); !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
		if k, err := r.Keys(randomTokens(1, 8)); err == nil || k != nil {
			t.Errorf("%s: Keys gave %q, %v", c.field, k, err)
		}
		if _, err := r.NewHasher(); err == nil {
			t.Errorf("%s: NewHasher took it", c.field)
		}
	}
}

// A key costs one allocation, its string.
func TestHasherAllocs(t *testing.T) {
	h, err := testRoot().NewHasher()
	if err != nil {
		t.Fatal(err)
	}
	tokens := randomTokens(7, 400)
	keys := make([]string, 0, 100)
	if n := testing.AllocsPerRun(10, func() { keys = h.Append(keys[:0], tokens) }); n > 100 {
		t.Errorf("%v allocations for 100 keys", n)
	}
}

func BenchmarkChunkKeys(b *testing.B) {
	r := testRoot()
	r.ChunkTokens = 16
	tokens := randomTokens(8, 64<<10)
	b.SetBytes(int64(4 * len(tokens)))
	for b.Loop() {
		mustKeys(b, r, tokens)
	}
}
