package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/local"
	"github.com/objcached/objcached/storage/object"
	"github.com/objcached/objcached/tenant"
)

// kvHarness is a gateway with the data path over the embedded store in a
// directory. What it knows of the KV requests it knows from their description:
// it builds bodies and expects bytes without the packages under test.
type kvHarness struct {
	*harness
	stats func() object.Stats
}

func newKVHarness(t testing.TB, dc deliver.Config, change ...func(*Config)) *kvHarness {
	t.Helper()
	store, err := local.Open(t.Context(), local.Options{Dir: t.TempDir(), Capacity: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	h := newHarness(t, append([]func(*Config){func(c *Config) {
		c.Store = store
		c.Deliverer = over(store, dc)
	}}, change...)...)
	h.bucket(t, "kvs")
	return &kvHarness{h, store.Stats}
}

// over is the wiring of the data path.
func over(s storage.Store, c deliver.Config) Deliverer {
	d := deliver.New(s, c)
	return DelivererFunc(func(ctx context.Context, _ *tenant.Identity, bucket string, desc *descriptor.Descriptor) (Delivery, error) {
		return d.Prepare(ctx, bucket, desc)
	})
}

// chunks keeps what chunk made.
var chunks sync.Map

// chunk is the content of a chunk object: byte i is a function of key and i.
func chunk(key string, size int) []byte {
	type id struct {
		key  string
		size int
	}
	if b, ok := chunks.Load(id{key, size}); ok {
		return b.([]byte)
	}
	var seed uint64 = 14695981039346656037
	for _, c := range []byte(key) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	b := make([]byte, (size+7)&^7)
	for i := 0; i < len(b); i += 8 {
		x := (seed + uint64(i)) * 0x9e3779b97f4a7c15
		x ^= x >> 32
		binary.LittleEndian.PutUint64(b[i:], x*0xd6e8feb86659fd93)
	}
	chunks.Store(id{key, size}, b[:size:size])
	return b[:size:size]
}

// geometry is what a test asks for, by the names of the wire.
type geometry struct {
	n, l, s      int
	layout, mode string
	first, count int // count 0: not sent
}

func (g geometry) keys() []string {
	keys := make([]string, g.n)
	for j := range keys {
		keys[j] = fmt.Sprintf("%dx%d/chunk %d+é", g.l, g.s, j)
	}
	return keys
}

// fields is the descriptor.
func (g geometry) fields() map[string]any {
	f := map[string]any{"chunk_keys": g.keys(), "num_layers": g.l, "per_layer_chunk_bytes": g.s}
	if g.layout != "" {
		f["layout"] = g.layout
	}
	if g.mode != "" {
		f["delivery"] = g.mode
	}
	if g.count != 0 {
		f["first_layer"], f["layer_count"] = g.first, g.count
	}
	return f
}

// payload is the answer that the first n chunks must give.
func (g geometry) payload(n int) []byte {
	count := g.count
	if count == 0 {
		count = g.l
	}
	keys := g.keys()
	out := make([]byte, 0, n*count*g.s)
	for i := range n * count {
		j, layer := i%n, g.first+i/n
		if g.mode == "chunk" {
			j, layer = i/count, g.first+i%count
		}
		c := chunk(keys[j], g.l*g.s)
		if g.layout == "2ltd" {
			h := g.s / 2
			out = append(out, c[layer*h:(layer+1)*h]...)
			out = append(out, c[(g.l+layer)*h:(g.l+layer+1)*h]...)
		} else {
			out = append(out, c[layer*g.s:(layer+1)*g.s]...)
		}
	}
	return out
}

// store puts the chunks of g.
func (h *kvHarness) store(t testing.TB, g geometry) {
	t.Helper()
	for _, k := range g.keys() {
		h.put(t, "/kvs/"+uriEncode(k, true), chunk(k, g.l*g.s))
	}
}

func jsonBody(t testing.TB, f any) []byte {
	t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cborBody encodes the values that descriptors are made of, by RFC 8949.
func cborBody(v any) []byte {
	head := func(major byte, n int) []byte {
		return binary.BigEndian.AppendUint32([]byte{major<<5 | 26}, uint32(n))
	}
	switch v := v.(type) {
	case int:
		if v < 0 {
			return head(1, -1-v)
		}
		return head(0, v)
	case float64:
		return binary.BigEndian.AppendUint64([]byte{0xfb}, math.Float64bits(v))
	case string:
		return append(head(3, len(v)), v...)
	case []string:
		b := head(4, len(v))
		for _, s := range v {
			b = append(b, cborBody(s)...)
		}
		return b
	case map[string]any:
		b := head(5, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b = append(append(b, cborBody(name)...), cborBody(v[name])...)
		}
		return b
	}
	panic(fmt.Sprintf("no CBOR for %T", v))
}

// The three forms of a layerwise GET.
func (h *kvHarness) asJSON(t testing.TB, g geometry) wireRequest {
	return wireRequest{method: "POST", target: "/kvs?kv-get", body: jsonBody(t, g.fields()),
		header: map[string]string{"Content-Type": "application/json"}}
}

func (h *kvHarness) asCBOR(g geometry) wireRequest {
	return wireRequest{method: "POST", target: "/kvs?kv-get=", body: cborBody(g.fields()),
		header: map[string]string{"Content-Type": "application/cbor"}}
}

func (h *kvHarness) asHeader(t testing.TB, g geometry) wireRequest {
	return wireRequest{method: "GET", target: "/kvs/" + uriEncode(g.keys()[0], true),
		header: map[string]string{"x-kv-descriptor": base64.RawURLEncoding.EncodeToString(jsonBody(t, g.fields()))}}
}

// idle waits until no object is open: every pin has been given back.
func (h *kvHarness) idle(t *testing.T) {
	t.Helper()
	eventually(t, "all chunks closed", func() bool { return h.stats().OpenObjects == 0 && h.g.bodies.held.Load() == 0 })
}

// start sends a request and returns as soon as the answer's header is there.
func (h *kvHarness) start(t testing.TB, q wireRequest) *http.Response {
	t.Helper()
	resp, err := h.client.Do(h.request(t, q))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
