package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
)

// TestKVGetEveryByte asks for every geometry in all three forms.
func TestKVGetEveryByte(t *testing.T) {
	h := newKVHarness(t, deliver.Config{})
	asked := 0
	for _, base := range []geometry{
		{n: 1, l: 1, s: 1}, {n: 3, l: 5, s: 7}, {n: 4, l: 3, s: 1000}, {n: 7, l: 4, s: 4096}, {n: 2, l: 9, s: 16 << 10},
		{n: 3, l: 4, s: 64 << 10}, {n: 5, l: 3, s: 65535}, {n: 2, l: 3, s: 100_002}, {n: 2, l: 2, s: 300_000},
	} {
		h.store(t, base)
		for _, layout := range []string{"", "l2td", "2ltd"} {
			if layout == "2ltd" && base.s%2 != 0 {
				continue
			}
			for _, mode := range []string{"", "layer", "chunk"} {
				for _, w := range [][2]int{{0, 0}, {base.l / 2, 1}, {base.l - 1, 1}, {1, base.l - 1}} {
					g := base
					g.layout, g.mode, g.first, g.count = layout, mode, w[0], w[1]
					if g.first+g.count > g.l || g.first > 0 && g.count == 0 {
						continue
					}
					want := g.payload(g.n)
					wantMode := mode
					if mode == "" {
						wantMode = "layer"
					}
					asked++
					for i, q := range []wireRequest{h.asJSON(t, g), h.asCBOR(g), h.asHeader(t, g)} {
						if g.count != 0 && i != asked%3 {
							continue // windows take the forms in turn
						}
						form := []string{"JSON", "CBOR", "header"}[i]
						a := h.want(t, 200, q)
						if !bytes.Equal(a.body, want) {
							t.Fatalf("%+v in %s: the body differs", g, form)
						}
						for name, v := range map[string]string{
							"X-Kv-Matched": strconv.Itoa(g.n), "X-Kv-Mode": wantMode, "Cache-Control": "no-store",
							"Content-Type": "application/octet-stream", "Content-Length": strconv.Itoa(len(want)), "Etag": "",
						} {
							if got := a.Header.Get(name); got != v {
								t.Errorf("%+v in %s: %s is %q, want %q", g, form, name, got, v)
							}
						}
					}
				}
			}
		}
	}
	h.idle(t)
}

func TestKVThreshold(t *testing.T) {
	g := geometry{n: 3, l: 4, s: 100}
	h := newKVHarness(t, deliver.Config{Threshold: 1200})
	h.store(t, g)
	a := h.want(t, 200, h.asJSON(t, g))
	if a.Header.Get("X-Kv-Mode") != "layer" || !bytes.Equal(a.body, g.payload(3)) {
		t.Errorf("at the threshold: %s", a.Header.Get("X-Kv-Mode"))
	}
	g.first, g.count = 0, 3
	a = h.want(t, 200, h.asJSON(t, g))
	g.mode = "chunk" // what auto must have become
	if a.Header.Get("X-Kv-Mode") != "chunk" || !bytes.Equal(a.body, g.payload(3)) {
		t.Errorf("below the threshold: %s", a.Header.Get("X-Kv-Mode"))
	}
}

func TestKVMissing(t *testing.T) {
	g := geometry{n: 5, l: 3, s: 1000}
	h := newKVHarness(t, deliver.Config{})
	h.store(t, g)
	for have := g.n - 1; have >= 0; have-- {
		key := g.keys()[have]
		h.want(t, 204, wireRequest{method: "DELETE", target: "/kvs/" + uriEncode(key, true)})
		a := h.wantCode(t, "NoSuchKey", h.asJSON(t, g))
		if element(a.body, "Key") != key || a.Header.Get("X-Kv-Matched") != strconv.Itoa(have) || a.Header.Get("X-Kv-Mode") != "" {
			t.Errorf("%d there: %s, matched %q", have, a.body, a.Header.Get("X-Kv-Matched"))
		}
		f := g.fields()
		f["on_missing"] = "truncate"
		a = h.want(t, 200, wireRequest{method: "POST", target: "/kvs?kv-get", body: jsonBody(t, f)})
		if a.Header.Get("X-Kv-Matched") != strconv.Itoa(have) || a.ContentLength != int64(have*3000) || a.Header.Get("X-Kv-Mode") != "layer" {
			t.Errorf("%d there: %v", have, a.Header)
		}
		if have > 0 && !bytes.Equal(a.body, g.payload(have)) {
			t.Errorf("%d there: the body differs", have)
		}
	}
	h.idle(t)
}

// TestKVErrors: every bad input has its S3 error, which names the field, and
// the server goes on.
func TestKVErrors(t *testing.T) {
	g := geometry{n: 2, l: 3, s: 1000}
	h := newKVHarness(t, deliver.Config{}, func(c *Config) {
		c.KVLimits = descriptor.Limits{Chunks: 4, Layers: 8, SliceBytes: 1 << 20, BodyBytes: 6000}
	})
	h.store(t, g)
	good := func(change map[string]any) []byte {
		f := g.fields()
		for k, v := range change {
			f[k] = v
		}
		return jsonBody(t, f)
	}
	for _, c := range []struct {
		name  string
		body  []byte
		field string
	}{
		{"unknown field", good(map[string]any{"color": 1}), "color"},
		{"wrong case", good(map[string]any{"Num_Layers": 3}), "Num_Layers"},
		{"repeated", []byte(`{"num_layers":3,"num_layers":3}`), "num_layers"},
		{"missing", []byte(`{"chunk_keys":["a"],"num_layers":3}`), "per_layer_chunk_bytes"},
		{"wrong type", good(map[string]any{"num_layers": "3"}), "num_layers"},
		{"fraction", good(map[string]any{"num_layers": 3.5}), "num_layers"},
		{"no keys", good(map[string]any{"chunk_keys": []string{}}), "chunk_keys"},
		{"long key", good(map[string]any{"chunk_keys": []string{strings.Repeat("k", 1025)}}), "chunk_keys"},
		{"zero layers", good(map[string]any{"num_layers": 0}), "num_layers"},
		{"negative size", good(map[string]any{"per_layer_chunk_bytes": -1}), "per_layer_chunk_bytes"},
		{"zero tokens", good(map[string]any{"chunk_tokens": 0}), "chunk_tokens"},
		{"window past the end", good(map[string]any{"first_layer": 1, "layer_count": 3}), "layer_count"},
		{"window behind the end", good(map[string]any{"first_layer": 3}), "first_layer"},
		{"zero window", good(map[string]any{"layer_count": 0}), "layer_count"},
		{"layout", good(map[string]any{"layout": "ltd2"}), "layout"},
		{"odd halves", good(map[string]any{"layout": "2ltd", "per_layer_chunk_bytes": 999}), "layout"},
		{"delivery", good(map[string]any{"delivery": "Layer"}), "delivery"},
		{"on_missing", good(map[string]any{"on_missing": nil}), "on_missing"},
		{"compute", good(map[string]any{"layer_compute_us": -3}), "layer_compute_us"},
		{"too many chunks", good(map[string]any{"chunk_keys": []string{"a", "b", "c", "d", "e"}}), "chunk_keys"},
		{"too many layers", good(map[string]any{"num_layers": 9}), "num_layers"},
		{"too large slices", good(map[string]any{"per_layer_chunk_bytes": 1<<20 + 1}), "per_layer_chunk_bytes"},
		{"wrong size", good(map[string]any{"num_layers": 4}), "chunk_keys"},
		{"not JSON", []byte(`{"chunk_keys":`), "body"},
		{"trailing data", append(good(nil), '1'), "body"},
		{"empty", []byte{}, "body"},
		{"too long", append(good(nil), bytes.Repeat([]byte(" "), 6000)...), "body"},
	} {
		a := h.wantCode(t, "InvalidArgument", wireRequest{method: "POST", target: "/kvs?kv-get", body: c.body})
		if got := element(a.body, "ArgumentName"); got != c.field {
			t.Errorf("%s: names %q, want %q: %s", c.name, got, c.field, a.body)
		}
		if !strings.Contains(element(a.body, "Message"), c.field) && c.name != "wrong size" {
			t.Errorf("%s: the message does not name %s: %s", c.name, c.field, a.body)
		}
		if c.name == "wrong size" && element(a.body, "Key") != g.keys()[0] {
			t.Errorf("%s: does not name the key: %s", c.name, a.body)
		}
	}
	// The same through the other doors.
	a := h.wantCode(t, "InvalidArgument", wireRequest{method: "POST", target: "/kvs?kv-get", body: []byte("\xa1\x61x\x01"),
		header: map[string]string{"Content-Type": "application/cbor"}})
	if element(a.body, "ArgumentName") != "x" {
		t.Errorf("CBOR: %s", a.body)
	}
	a = h.wantCode(t, "InvalidArgument", wireRequest{method: "POST", target: "/kvs?kv-get", body: good(nil),
		header: map[string]string{"Content-Type": "text/plain"}})
	if element(a.body, "ArgumentName") != "Content-Type" {
		t.Errorf("content type: %s", a.body)
	}
	h.wantCode(t, "NoSuchBucket", wireRequest{method: "POST", target: "/none?kv-get", body: good(nil)})
	h.wantCode(t, "AccessDenied", wireRequest{method: "POST", target: "/kvs?kv-get", body: good(nil), user: aliceKey})
	h.wantCode(t, "AccessDenied", wireRequest{method: "POST", target: "/kvs?kv-match", body: good(nil), user: aliceKey})
	h.wantCode(t, "NotImplemented", wireRequest{method: "POST", target: "/kvs?kv-get&acl", body: good(nil)})

	if a := h.want(t, 200, h.asJSON(t, g)); !bytes.Equal(a.body, g.payload(2)) {
		t.Error("the server does not go on as before")
	}
	h.idle(t)
}

func TestKVHeaderForm(t *testing.T) {
	g := geometry{n: 2, l: 2, s: 100}
	h := newKVHarness(t, deliver.Config{})
	h.store(t, g)
	value := func(b []byte) map[string]string {
		return map[string]string{"x-kv-descriptor": base64.URLEncoding.EncodeToString(b)}
	}
	first := "/kvs/" + uriEncode(g.keys()[0], true)
	// Padded, and with the Range header that some clients always send.
	q := h.asHeader(t, g)
	q.header = value(append(jsonBody(t, g.fields()), ' '))
	q.header["Range"] = "bytes=0-9"
	if a := h.want(t, 200, q); !bytes.Equal(a.body, g.payload(2)) {
		t.Error("the body differs")
	}
	for name, c := range map[string]struct {
		target string
		header map[string]string
		field  string
	}{
		"another key": {"/kvs/" + uriEncode(g.keys()[1], true), value(jsonBody(t, g.fields())), "chunk_keys"},
		"no base64":   {first, map[string]string{"x-kv-descriptor": "!"}, "x-kv-descriptor"},
		"no JSON":     {first, value([]byte("{")), "x-kv-descriptor"},
		"too long":    {first, map[string]string{"x-kv-descriptor": strings.Repeat("A", 6145)}, "x-kv-descriptor"},
		"bad field":   {first, value([]byte(`{"num_layers":0}`)), "num_layers"},
	} {
		a := h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: c.target, header: c.header})
		if element(a.body, "ArgumentName") != c.field {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	for _, c := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		q := h.asHeader(t, g)
		q.header[c] = `"x"`
		h.wantCode(t, "NotImplemented", q)
	}
	// A descriptor that was not signed is not the sender's.
	r := h.request(t, wireRequest{method: "GET", target: first})
	r.Header.Set("x-kv-descriptor", h.asHeader(t, g).header["x-kv-descriptor"])
	resp, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("an unsigned descriptor: %d", resp.StatusCode)
	}
	h.idle(t)
}

func TestKVMatch(t *testing.T) {
	g := geometry{n: 4, l: 1, s: 10}
	h := newKVHarness(t, deliver.Config{}, func(c *Config) { c.KVLimits.Chunks = 5 })
	h.store(t, g)
	match := func(body []byte, contentType string) int {
		t.Helper()
		a := h.want(t, 200, wireRequest{method: "POST", target: "/kvs?kv-match", body: body, header: map[string]string{"Content-Type": contentType}})
		var v map[string]int
		if err := json.Unmarshal(a.body, &v); err != nil || len(v) != 1 || a.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %v", a.body, err)
		}
		return v["matched"]
	}
	keys := g.keys()
	for want, asked := range map[int][]string{0: {"x", keys[0]}, 1: {keys[0], "x", keys[1]}, 2: {keys[3], keys[3], "y"}, 4: keys} {
		f := map[string]any{"chunk_keys": asked}
		if n := match(jsonBody(t, f), "application/json"); n != want {
			t.Errorf("%q in JSON: %d, want %d", asked, n, want)
		}
		if n := match(cborBody(f), "application/cbor"); n != want {
			t.Errorf("%q in CBOR: %d, want %d", asked, n, want)
		}
	}
	for body, field := range map[string]string{
		`{"chunk_keys":[]}`: "chunk_keys", `{"chunk_keys":["a"],"num_layers":1}`: "num_layers", `{}`: "chunk_keys",
		`{"chunk_keys":["a","b","c","d","e","f"]}`: "chunk_keys", `[`: "body",
	} {
		a := h.wantCode(t, "InvalidArgument", wireRequest{method: "POST", target: "/kvs?kv-match", body: []byte(body)})
		if element(a.body, "ArgumentName") != field {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	h.wantCode(t, "NoSuchBucket", wireRequest{method: "POST", target: "/none?kv-match", body: []byte(`{"chunk_keys":["a"]}`)})
}

// TestKVLater: what a later version serves is refused by name, never half done.
func TestKVLater(t *testing.T) {
	g := geometry{n: 1, l: 1, s: 10}
	h := newKVHarness(t, deliver.Config{})
	h.store(t, g)
	// Without a memory transport no handle is known.
	for name, v := range map[string]any{"rdma_target": map[string]any{"handle": "h", "offset": 0, "length": 10, "tag": 1}, "layer_offsets": []int{0, 10}} {
		f := g.fields()
		f[name] = v
		code, field := "NotImplemented", name
		if name == "rdma_target" {
			code, field = "InvalidArgument", "rdma_target.handle"
		}
		a := h.wantCode(t, code, wireRequest{method: "POST", target: "/kvs?kv-get", body: jsonBody(t, f)})
		if element(a.body, "ArgumentName") != field {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if a := h.do(t, wireRequest{method: "POST", target: "/?kv-register", body: []byte(`{"providers":true}`)}); a.StatusCode != 200 || string(a.body) != `{"providers":[]}` {
		t.Errorf("providers of a server without memory: %d %s", a.StatusCode, a.body)
	}
	for body, want := range map[string][2]string{
		`{}`: {"InvalidArgument", "provider"}, `{"provider":"shm","length":4096}`: {"NotImplemented", "provider"},
		`{"provider":"tcp;ofi_rxm","length":1,"address":"AA==","key":"AA=="}`: {"NotImplemented", "provider"},
		`{"provider":"tcp;ofi_rxm","length":1,"key":"AA=="}`:                  {"InvalidArgument", "address"}, `{"handle":"h"}`: {"InvalidArgument", "handle"},
		`{"id":"i","nonce":"AA"}`: {"InvalidArgument", "id"}, `{"length":1}`: {"InvalidArgument", "provider"},
	} {
		a := h.wantCode(t, want[0], wireRequest{method: "POST", target: "/?kv-register", body: []byte(body)})
		if element(a.body, "ArgumentName") != want[1] {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	key := "/kvs/" + uriEncode(g.keys()[0], true)
	h.wantCode(t, "NotImplemented", wireRequest{method: "POST", target: "/kvs?kv-put", body: []byte("x")})
	for _, method := range []string{"GET", "PUT"} {
		a := h.wantCode(t, "NotImplemented", wireRequest{method: method, target: key, header: map[string]string{"x-amz-rdma-token": "0:1:2"}})
		if a.Header.Get("X-Amz-Rdma-Reply") != "501" {
			t.Errorf("%s with a token: %v", method, a.Header)
		}
	}
	// Nothing was stored over the chunk.
	if a := h.want(t, 200, wireRequest{method: "GET", target: key}); !bytes.Equal(a.body, chunk(g.keys()[0], 10)) {
		t.Error("the chunk was changed")
	}
	none := newHarness(t)
	none.bucket(t, "kvs")
	none.wantCode(t, "NotImplemented", h.asJSON(t, g))
}

// TestKVCorruptBlock: before the first byte it is an error, after it the
// connection breaks short; the layer never arrives whole.
func TestKVCorruptBlock(t *testing.T) {
	const s = 64 << 10
	g := geometry{n: 3, l: 12, s: s}
	store, blobs := openStore(t)
	h := newHarness(t, func(c *Config) {
		c.Store = store
		c.Deliverer = over(store, deliver.Config{})
	})
	h.bucket(t, "kvs")
	kv := &kvHarness{h, store.Stats}
	kv.store(t, g)
	keys := g.keys()
	want := g.payload(g.n)

	blobs.flip(t, chunk(keys[1], 64), 7*s+100) // layer 7 of chunk 1
	resp := kv.start(t, kv.asJSON(t, g))
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || err == nil || resp.ContentLength != int64(len(want)) {
		t.Fatalf("status %d, %d bytes, %v: the body is not broken", resp.StatusCode, len(got), err)
	}
	if whole := 7 * g.n * s; len(got) < whole || len(got) >= whole+2*s || !bytes.Equal(got, want[:len(got)]) {
		t.Errorf("%d bytes arrived, the bad slice begins at %d", len(got), whole+s)
	}
	kv.idle(t)

	blobs.flip(t, chunk(keys[0], 64), 5) // layer 0 of chunk 0
	a := h.wantCode(t, "InternalError", kv.asJSON(t, g))
	if a.Header.Get("X-Kv-Matched") != "" || a.Header.Get("X-Kv-Mode") != "" {
		t.Errorf("an error that looks like a payload: %v", a.Header)
	}
	kv.idle(t)
}

// large is a payload that no socket buffer holds, of a few chunks.
func large(t *testing.T, h *kvHarness) (wireRequest, []byte) {
	g := geometry{n: 2, l: 16, s: 64 << 10}
	h.store(t, g)
	f := g.fields()
	var keys []string
	for range 16 {
		keys = append(keys, g.keys()...)
	}
	f["chunk_keys"] = keys
	want := make([]byte, 0, len(keys)*g.l*g.s)
	for l := range g.l {
		for _, k := range keys {
			c := chunk(k, g.l*g.s)
			want = append(want, c[l*g.s:(l+1)*g.s]...)
		}
	}
	return wireRequest{method: "POST", target: "/kvs?kv-get", body: jsonBody(t, f)}, want
}

// TestKVClientStops: a client that stops reading, or leaves, frees everything.
func TestKVClientStops(t *testing.T) {
	h := newKVHarness(t, deliver.Config{}, func(c *Config) { c.StallTimeout = 100 * time.Millisecond })
	q, want := large(t, h)
	// It stays, and does not read.
	resp := h.start(t, q)
	h.idle(t)
	if got, err := io.ReadAll(resp.Body); err == nil || len(got) >= len(want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	// It leaves in the middle.
	resp = h.start(t, q)
	if _, err := io.ReadFull(resp.Body, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	h.idle(t)
}

// TestKVBusy: over the limit is 503 with a time to come back, and the limit is
// free again when the one who held it is gone.
func TestKVBusy(t *testing.T) {
	h := newKVHarness(t, deliver.Config{MaxDeliveries: 1})
	q, want := large(t, h)
	resp := h.start(t, q)
	a := h.wantCode(t, "SlowDown", q)
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	h.idle(t)
	if a := h.want(t, 200, q); !bytes.Equal(a.body, want) {
		t.Error("the body differs")
	}
}

// TestKVDeletedMeanwhile: what was opened is what is read, whatever happens to
// the keys.
func TestKVDeletedMeanwhile(t *testing.T) {
	h := newKVHarness(t, deliver.Config{})
	q, want := large(t, h)
	resp := h.start(t, q)
	g := geometry{n: 2, l: 16, s: 64 << 10}
	h.want(t, 204, wireRequest{method: "DELETE", target: "/kvs/" + uriEncode(g.keys()[0], true)})
	h.put(t, "/kvs/"+uriEncode(g.keys()[1], true), bytes.Repeat([]byte("new owner"), 200_000))
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v: not the bytes that were opened", len(got), err)
	}
	h.idle(t)
}

// TestKVManyClients: 200 at once get the payload or 503, and nothing stays.
func TestKVManyClients(t *testing.T) {
	h := newKVHarness(t, deliver.Config{MaxDeliveries: 50})
	g := geometry{n: 4, l: 4, s: 20_000}
	h.store(t, g)
	want := g.payload(g.n)
	q := h.asJSON(t, g)
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	for i := range 200 {
		req := h.request(t, q)
		wg.Go(func() {
			resp, err := h.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			var got []byte
			if i%10 == 0 { // some leave early
				_, err = io.ReadFull(resp.Body, make([]byte, 10))
			} else if got, err = io.ReadAll(resp.Body); resp.StatusCode == 200 && !bytes.Equal(got, want) {
				err = fmt.Errorf("a wrong body of %d bytes", len(got))
			}
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			counts[resp.StatusCode]++
		})
	}
	wg.Wait()
	if counts[200] == 0 || counts[200]+counts[503] != 200 {
		t.Errorf("answers by status: %v", counts)
	}
	h.idle(t)
}
