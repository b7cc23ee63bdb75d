package descriptor

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestKeysDoNotKeepTheBody: a few keys in a large body must not keep all of it
// in memory for as long as their delivery lasts.
func TestKeysDoNotKeepTheBody(t *testing.T) {
	const n, padding = 16, 1 << 20
	body := []byte(`{"chunk_keys":["first","` + strings.Repeat("k", 700) + `","é\n"],"num_layers":1,"per_layer_chunk_bytes":1` +
		strings.Repeat(" ", padding) + "}")
	want := []string{"first", strings.Repeat("k", 700), "é\n"}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // the first may have been under way
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var kept []*Descriptor
	for range n {
		d, err := Parse(JSON, body, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, d)
	}
	if after := heap(); after > before+n*padding/4 {
		t.Errorf("%d descriptors keep %d bytes of their bodies", n, after-before)
	}
	for _, d := range kept {
		if !slices.Equal(d.ChunkKeys, want) {
			t.Fatalf("keys %q", d.ChunkKeys)
		}
	}
}

// TestKeysOfDenseBodies: the usual body, nothing but keys, is not copied twice.
func TestKeysOfDenseBodies(t *testing.T) {
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("%064x", i))
	}
	body := []byte(`{"chunk_keys":["` + strings.Join(keys, `","`) + `"]}`)
	got, err := ParseMatch(JSON, body, Limits{})
	if err != nil || !slices.Equal(got, keys) {
		t.Fatalf("%d keys, %v", len(got), err)
	}
}
