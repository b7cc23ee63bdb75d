package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var forms = []string{"json", "cbor", "header"}

// shapes have slices below, at and across blocks of 4 KiB and 64 KiB, odd ones,
// single layers and single chunks, and objects small enough to be kept inline.
var shapes = []struct{ n, layers, slice int }{
	{1, 1, 1}, {1, 1, 70_000}, {3, 2, 7}, {5, 4, 1000}, {4, 3, 65536}, {3, 5, 65537}, {7, 32, 4096}, {2, 3, 200_001}, {9, 8, 12345}, {33, 2, 2},
}

func kvCases() []kase {
	var out []kase
	for i, s := range shapes {
		for _, two := range []bool{false, true} {
			if two && s.slice%2 != 0 {
				continue
			}
			layout := "l2td"
			if two {
				layout = "2ltd"
			}
			name := fmt.Sprintf("kv/KVGet/%s-N%d-L%d-S%d", layout, s.n, s.layers, s.slice)
			out = append(out, oursOne(name, func(e *env) {
				b := e.bucket()
				g := newGeometry(uint64(i), s.n, s.layers, s.slice, two)
				e.store(b, g)
				everyForm(e, b, g)
			})...)
		}
	}
	return slices.Concat(out,
		oursOne("kv/KVGet/same-chunk-twice", func(e *env) {
			b := e.bucket()
			g := newGeometry(50, 2, 3, 5000, false)
			e.store(b, g)
			g.n, g.keys, g.chunks = 4, []string{g.keys[0], g.keys[1], g.keys[0], g.keys[0]}, [][]byte{g.chunks[0], g.chunks[1], g.chunks[0], g.chunks[0]}
			e.served(e.kvGet(b, "json", g.descriptor()), 4, "layer", g.payload(4, 0, 3, false))
		}),
		oursOne("kv/KVGet/odd-keys", func(e *env) {
			b := e.bucket()
			g := newGeometry(51, len(oddKeys), 2, 10, false)
			g.keys = oddKeys
			for j, k := range g.keys {
				e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/" + encodePath(k), Body: g.chunks[j]}), 200)
			}
			for _, form := range []string{"json", "cbor"} {
				e.served(e.kvGet(b, form, g.descriptor()), g.n, "layer", g.payload(g.n, 0, 2, false))
			}
		}),
		oursOne("kv/KVGet/multipart-chunks", func(e *env) {
			b := e.bucket()
			g := newGeometry(52, 2, 7, 900_001, false) // parts of 5 MiB end inside a slice
			for j, k := range g.keys {
				id, err := e.aws.CreateUpload(e.ctx, b, k, putOpts{})
				e.ok(err)
				parts := e.uploadParts(e.aws, b, k, id, [][]byte{g.chunks[j][:minPart+j], g.chunks[j][minPart+j:]})
				_, err = e.aws.Complete(e.ctx, b, k, id, parts)
				e.ok(err)
			}
			e.served(e.kvGet(b, "json", g.descriptor()), 2, "layer", g.payload(2, 0, 7, false))
			e.served(e.kvGet(b, "cbor", g.descriptor().with("delivery", "chunk")), 2, "chunk", g.payload(2, 0, 7, true))
		}),
		oursOne("kv/KVGet/many-chunks", func(e *env) {
			b := e.bucket()
			g := newGeometry(53, 3, 2, 600, false)
			e.store(b, g)
			const n = 3000
			keys, chunks := make([]string, n), make([][]byte, n)
			for j := range n {
				keys[j], chunks[j] = g.keys[j%3], g.chunks[j%3]
			}
			g.n, g.keys, g.chunks = n, keys, chunks
			e.served(e.kvGet(b, "json", g.descriptor()), n, "layer", g.payload(n, 0, 2, false))
		}),
		oursOne("kv/KVGet/missing-fails", func(e *env) {
			b := e.bucket()
			g := newGeometry(54, 5, 2, 100, false)
			e.store(b, g)
			for _, hole := range []int{4, 2, 0} {
				e.ok(e.aws.Delete(e.ctx, b, g.keys[hole]))
				for _, form := range forms {
					for _, mode := range []string{"layer", "chunk"} {
						a := e.kvGet(b, form, g.descriptor().with("delivery", mode))
						e.denied(a, 404, "NoSuchKey")
						equal(e, "Key", a.Fields["Key"], g.keys[hole])
						equal(e, "x-kv-matched", a.Header.Get("X-Kv-Matched"), strconv.Itoa(hole))
						equal(e, "x-kv-mode", a.Header.Get("X-Kv-Mode"), "")
					}
				}
			}
		}),
		oursOne("kv/KVGet/missing-truncates", func(e *env) {
			b := e.bucket()
			g := newGeometry(55, 5, 3, 70_000, false)
			e.store(b, g)
			d := g.descriptor().with("on_missing", "truncate")
			e.served(e.kvGet(b, "json", d), 5, "layer", g.payload(5, 0, 3, false))
			for _, hole := range []int{4, 2, 0} {
				e.ok(e.aws.Delete(e.ctx, b, g.keys[hole]))
				for _, form := range forms {
					e.served(e.kvGet(b, form, d), hole, "layer", g.payload(hole, 0, 3, false))
					e.served(e.kvGet(b, form, d.with("delivery", "chunk")), hole, "chunk", g.payload(hole, 0, 3, true))
					e.served(e.kvGet(b, form, d.with("first_layer", 1).with("layer_count", 1)), hole, "layer", g.payload(hole, 1, 1, false))
				}
			}
		}),
		oursOne("kv/KVGet/auto-is-layer-by-default", func(e *env) {
			b := e.bucket()
			g := newGeometry(56, 2, 2, 10, false)
			e.store(b, g)
			e.served(e.kvGet(b, "json", g.descriptor().with("delivery", "auto")), 2, "layer", g.payload(2, 0, 2, false))
			e.served(e.kvGet(b, "json", g.descriptor().with("layer_compute_us", 12.5)), 2, "layer", g.payload(2, 0, 2, false))
		}),
		oursOne("kv/KVGet/no-bucket", func(e *env) {
			g := newGeometry(57, 1, 1, 10, false)
			for _, form := range forms {
				e.denied(e.kvGet(e.newName(), form, g.descriptor()), 404, "NoSuchBucket")
			}
		}),
		oursOne("kv/KVGetObject/header-must-be-signed", func(e *env) {
			b := e.bucket()
			g := newGeometry(58, 2, 2, 10, false)
			e.store(b, g)
			a := e.do(req{Method: "GET", Path: "/" + b + "/" + g.keys[0], Header: map[string]string{"X-Kv-Descriptor": g.descriptor().header()}, Skip: []string{"x-kv-descriptor"}})
			e.denied(a, 403, "AccessDenied")
		}),
		oursOne("kv/KVGetObject/path-must-be-the-first-chunk", func(e *env) {
			b := e.bucket()
			g := newGeometry(59, 2, 2, 10, false)
			e.store(b, g)
			a := e.do(req{Method: "GET", Path: "/" + b + "/" + g.keys[1], Header: map[string]string{"X-Kv-Descriptor": g.descriptor().header()}})
			e.denied(a, 400, "InvalidArgument")
		}),
		oursOne("kv/KVGetObject/too-long", func(e *env) {
			b := e.bucket()
			g := newGeometry(60, 1, 1, 10, false)
			e.store(b, g)
			keys := []string{g.keys[0]}
			for range 300 {
				keys = append(keys, g.keys[0])
			}
			a := e.kvGet(b, "header", g.descriptor().with("chunk_keys", keys))
			equal(e, "status", a.Status, 400)
			named(e, a, "x-kv-descriptor")
		}),
		oursOne("kv/KVGetObject/bad-base64", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			for _, v := range []string{"!!!", "e30", "bm90IGpzb24"} {
				a := e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"X-Kv-Descriptor": v}})
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("%q: %d %s, want 400 InvalidArgument", v, a.Status, a.Code)
				}
			}
		}),
		oursOne("kv/KVGetObject/virtual-host", func(e *env) {
			if e.Domain == "" {
				e.Skip("the target has no domain for virtual-host style")
			}
			b := e.bucket()
			g := newGeometry(61, 3, 2, 5000, false)
			e.store(b, g)
			_, port, _ := strings.Cut(e.host, ":")
			host := b + "." + e.Domain + ":" + port
			want := g.payload(3, 0, 2, false)
			e.served(e.do(req{Method: "POST", Host: host, Path: "/", Query: "kv-get", Body: g.descriptor().json(), Header: map[string]string{"Content-Type": "application/json"}}), 3, "layer", want)
			e.served(e.do(req{Method: "GET", Host: host, Path: "/" + g.keys[0], Header: map[string]string{"X-Kv-Descriptor": g.descriptor().header()}}), 3, "layer", want)
		}),
		oursOne("kv/KVGet/presigned-is-refused-or-served", func(e *env) {
			// A presigned URL leaves the body unsigned: it may be served, for it
			// names no memory, but it must never be taken for something else.
			b := e.bucket()
			g := newGeometry(62, 2, 2, 100, false)
			e.store(b, g)
			r := e.build(req{Method: "POST", Path: "/" + b, Query: "kv-get", Header: map[string]string{"Content-Type": "application/json"}})
			e.signer(nil, time.Now()).presign(r, time.Hour)
			body := g.descriptor().json()
			r.Body, r.ContentLength = bodyOf(body), int64(len(body))
			if a := e.send(r); a.Status == 200 {
				e.served(a, 2, "layer", g.payload(2, 0, 2, false))
			} else if a.Status >= 500 {
				e.Errorf("answered %d %s", a.Status, a.Code)
			}
		}),
		oursOne("kv/KVMatch/longest-prefix", func(e *env) {
			b := e.bucket()
			g := newGeometry(63, 6, 1, 100, false)
			e.store(b, g)
			match := func(keys []string, want int) {
				e.Helper()
				a := e.kvMatch(nil, b, keys)
				e.accepted(a, 200)
				equal(e, fmt.Sprintf("matched of %d keys", len(keys)), strings.TrimSpace(string(a.Body)), fmt.Sprintf(`{"matched":%d}`, want))
				equal(e, "Content-Type", a.Header.Get("Content-Type"), "application/json")
			}
			match(g.keys, 6)
			match(append(slices.Clone(g.keys), "no such chunk"), 6)
			match(append([]string{"no such chunk"}, g.keys...), 0)
			match([]string{g.keys[0], g.keys[0], "no such chunk", g.keys[1]}, 2)
			e.ok(e.aws.Delete(e.ctx, b, g.keys[3]))
			match(g.keys, 3)
		}),
		oursOne("kv/KVMatch/cbor", func(e *env) {
			b := e.bucket()
			g := newGeometry(64, 3, 1, 100, false)
			e.store(b, g)
			a := e.do(req{Method: "POST", Path: "/" + b, Query: "kv-match", Body: fields{{"chunk_keys", append(slices.Clone(g.keys), "none")}}.cbor(), Header: map[string]string{"Content-Type": "application/cbor"}})
			e.accepted(a, 200)
			if !strings.Contains(string(a.Body), "matched") {
				e.Errorf("answer is %q", a.Body)
			}
		}),
		oursOne("kv/KVMatch/errors", func(e *env) {
			b := e.bucket()
			for body, name := range map[string]string{
				`{"chunk_keys":[]}`: "chunk_keys", `{}`: "chunk_keys", `{"chunk_keys":["a"],"more":1}`: "more",
				`{"chunk_keys":"a"}`: "chunk_keys", `{"chunk_keys":[1]}`: "chunk_keys", `{"chunk_keys":[""]}`: "chunk_keys", `{"chunk_keys":["a"],"chunk_keys":["b"]}`: "chunk_keys",
			} {
				a := e.do(req{Method: "POST", Path: "/" + b, Query: "kv-match", Body: []byte(body), Header: map[string]string{"Content-Type": "application/json"}})
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("%s: %d %s, want 400 InvalidArgument", body, a.Status, a.Code)
					continue
				}
				named(e, a, name)
			}
			e.denied(e.kvMatch(nil, e.newName(), []string{"a"}), 404, "NoSuchBucket")
		}),
		oursOne("kv/KVPut/is-501", func(e *env) {
			b := e.bucket()
			e.denied(e.do(req{Method: "POST", Path: "/" + b, Query: "kv-put", Body: []byte{0, 0, 0, 0}}), 501, "NotImplemented")
		}),
		oursOne("kv/KVRegister/a-fabric-is-501", func(e *env) {
			a := e.do(req{Method: "POST", Path: "/", Query: "kv-register", Header: map[string]string{"Content-Type": "application/json"},
				Body: []byte(`{"provider":"verbs;ofi_rxm","address":"AAAA","key":"AAAA","base":0,"length":4096}`)})
			e.denied(a, 501, "NotImplemented")
			named(e, a, "provider")
		}),
		oursOne("kv/KVRegister/names-the-bad-field", func(e *env) {
			for body, name := range map[string]string{
				`{}`: "provider", `{"provider":7}`: "provider", `{"provider":"shm"}`: "length", `{"provider":"shm","length":-1}`: "length",
				`{"provider":"shm","length":4096,"colour":1}`: "colour", `{"handle":"never given"}`: "handle", `{"id":"never given","nonce":"AAAA"}`: "id",
				`{"id":"x"}`: "nonce", `{"handle":"x","id":"y"}`: "handle",
			} {
				a := e.do(req{Method: "POST", Path: "/", Query: "kv-register", Body: []byte(body), Header: map[string]string{"Content-Type": "application/json"}})
				e.denied(a, 400, "InvalidArgument")
				named(e, a, name)
			}
		}),
		oursOne("kv/KVGet/rdma-target-with-an-unknown-handle", func(e *env) {
			b := e.bucket()
			g := newGeometry(65, 2, 2, 100, false)
			e.store(b, g)
			for _, form := range forms {
				a := e.kvGet(b, form, g.descriptor().with("rdma_target", fields{{"handle", "h"}, {"offset", 0}, {"length", 400}, {"tag", 1}}))
				e.denied(a, 400, "InvalidArgument")
				named(e, a, "rdma_target.handle")
				a = e.kvGet(b, form, g.descriptor().with("rdma_target", fields{{"handle", "h"}, {"offset", 0}, {"length", 399}, {"tag", 1}}))
				e.denied(a, 400, "InvalidArgument")
				named(e, a, "rdma_target.length")
			}
		}),
		oursOne("kv/PutObject/chain-headers", func(e *env) {
			b := e.bucket()
			e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/c0", Body: []byte("x"), Header: map[string]string{"X-Kv-Index": "0"}}), 200)
			e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/c1", Body: []byte("x"), Header: map[string]string{"X-Kv-Parent": "c0", "X-Kv-Index": "1"}}), 200)
			for _, v := range []string{"-1", "x", "99999999999999999999"} {
				a := e.do(req{Method: "PUT", Path: "/" + b + "/bad", Body: []byte("x"), Header: map[string]string{"X-Kv-Parent": "c0", "X-Kv-Index": v}})
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("x-kv-index %q: %d %s, want 400 InvalidArgument", v, a.Status, a.Code)
				}
			}
			a := e.do(req{Method: "PUT", Path: "/" + b + "/bad", Body: []byte("x"), Header: map[string]string{"X-Kv-Index": "1"}, Skip: []string{"x-kv-index"}})
			e.denied(a, 403, "AccessDenied")
		}),
	)
}

// everyForm gets a geometry in every form, mode and window that differ.
func everyForm(e *env, bucket string, g *geometry) {
	e.Helper()
	d := g.descriptor()
	type window struct{ first, count int }
	windows := []window{{0, g.layers}, {0, 1}, {g.layers - 1, 1}}
	if g.layers > 2 {
		windows = append(windows, window{1, g.layers - 2})
	}
	for i, w := range windows {
		f := d
		if i > 0 {
			f = f.with("first_layer", w.first).with("layer_count", w.count)
		}
		for _, form := range forms {
			e.served(e.kvGet(bucket, form, f), g.n, "layer", g.payload(g.n, w.first, w.count, false))
			e.served(e.kvGet(bucket, form, f.with("delivery", "layer")), g.n, "layer", g.payload(g.n, w.first, w.count, false))
			e.served(e.kvGet(bucket, form, f.with("delivery", "chunk")), g.n, "chunk", g.payload(g.n, w.first, w.count, true))
		}
	}
	// first_layer alone reaches to the last layer.
	last := g.layers - 1
	e.served(e.kvGet(bucket, "json", d.with("first_layer", last)), g.n, "layer", g.payload(g.n, last, 1, false))
	// A prefix of the chunks is a request like any other.
	e.served(e.kvGet(bucket, "cbor", d.with("chunk_keys", g.keys[:1])), 1, "layer", g.payload(1, 0, g.layers, false))
}

// named checks that an error document names a field or limit.
func named(e *env, a reply, name string) {
	e.Helper()
	if !strings.Contains(a.Fields["Message"]+" "+a.Fields["ArgumentName"], name) {
		e.Errorf("the error does not name %s: %s", name, a.Body)
	}
}

// kvErrorCases are the bad inputs of the wire's description; each names the field.
func kvErrorCases() []kase {
	g := newGeometry(70, 3, 4, 100, false)
	d := g.descriptor()
	long := strings.Repeat("k", 1025)
	type bad struct {
		what, field string
		f           fields
		forms       []string // default: all that can carry it
	}
	both := []string{"json", "cbor"}
	jsonOnly := []string{"json"}
	bads := []bad{
		{"unknown-field", "surprise", d.with("surprise", 1), nil},
		{"misspelt-field", "chunk_key", append(fields{{"chunk_key", g.keys}}, d...), nil},
		{"case-matters", "Num_Layers", d.with("Num_Layers", 4), nil},
		{"repeated-field", "num_layers", append(slices.Clone(d), field{"num_layers", 4}), nil},
		{"no-keys-field", "chunk_keys", d.without("chunk_keys"), both},
		{"empty-keys", "chunk_keys", d.with("chunk_keys", []string{}), both},
		{"empty-key", "chunk_keys", d.with("chunk_keys", []string{g.keys[0], ""}), both},
		{"key-too-long", "chunk_keys", d.with("chunk_keys", []string{g.keys[0], long}), both},
		{"keys-null", "chunk_keys", d.with("chunk_keys", nil), both},
		{"keys-string", "chunk_keys", d.with("chunk_keys", g.keys[0]), both},
		{"keys-of-numbers", "chunk_keys", d.with("chunk_keys", []int{1, 2}), both},
		{"no-layers", "num_layers", d.without("num_layers"), nil},
		{"zero-layers", "num_layers", d.with("num_layers", 0), nil},
		{"negative-layers", "num_layers", d.with("num_layers", -4), nil},
		{"layers-string", "num_layers", d.with("num_layers", "4"), nil},
		{"layers-fraction", "num_layers", d.with("num_layers", 4.5), nil},
		{"layers-bool", "num_layers", d.with("num_layers", true), nil},
		{"layers-huge", "num_layers", d.with("num_layers", raw("99999999999999999999")), jsonOnly},
		{"layers-over-limit", "num_layers", d.with("num_layers", 1025), nil},
		{"no-slice", "per_layer_chunk_bytes", d.without("per_layer_chunk_bytes"), nil},
		{"zero-slice", "per_layer_chunk_bytes", d.with("per_layer_chunk_bytes", 0), nil},
		{"negative-slice", "per_layer_chunk_bytes", d.with("per_layer_chunk_bytes", -1), nil},
		{"slice-over-limit", "per_layer_chunk_bytes", d.with("per_layer_chunk_bytes", 64<<20+1), nil},
		{"slice-overflow", "per_layer_chunk_bytes", d.with("per_layer_chunk_bytes", 1<<62), nil},
		{"negative-tokens", "chunk_tokens", d.with("chunk_tokens", -16), nil},
		{"tokens-string", "chunk_tokens", d.with("chunk_tokens", "16"), nil},
		{"layout-unknown", "layout", d.with("layout", "l2dt"), nil},
		{"layout-number", "layout", d.with("layout", 2), nil},
		{"layout-odd-slice", "layout", d.with("layout", "2ltd").with("per_layer_chunk_bytes", 101), nil},
		{"delivery-unknown", "delivery", d.with("delivery", "fast"), nil},
		{"delivery-case", "delivery", d.with("delivery", "Layer"), nil},
		{"first-layer-negative", "first_layer", d.with("first_layer", -1), nil},
		{"first-layer-past-last", "first_layer", d.with("first_layer", 4), nil},
		{"layer-count-zero", "layer_count", d.with("layer_count", 0), nil},
		{"layer-count-negative", "layer_count", d.with("layer_count", -1), nil},
		{"window-past-last", "layer_count", d.with("first_layer", 2).with("layer_count", 3), nil},
		{"on-missing-unknown", "on_missing", d.with("on_missing", "ignore"), nil},
		{"on-missing-bool", "on_missing", d.with("on_missing", true), nil},
		{"compute-negative", "layer_compute_us", d.with("layer_compute_us", -1.5), nil},
		{"compute-string", "layer_compute_us", d.with("layer_compute_us", "1"), nil},
		{"null-value", "num_layers", d.with("num_layers", nil), nil},
		{"rdma-target-type", "rdma_target", d.with("rdma_target", "handle"), nil},
	}
	var out []kase
	for _, x := range bads {
		if x.forms == nil {
			x.forms = forms
		}
		for _, form := range x.forms {
			op := "KVGet"
			if form == "header" {
				op = "KVGetObject"
			}
			out = append(out, oursOne("kv-error/"+op+"/"+x.what+"/"+form, func(e *env) {
				b := e.bucket()
				e.store(b, g)
				a := e.kvGet(b, form, x.f)
				e.denied(a, 400, "InvalidArgument")
				named(e, a, x.field)
				e.served(e.kvGet(b, form, d), 3, "layer", g.payload(3, 0, 4, false)) // and goes on
			})...)
		}
	}
	return slices.Concat(out, kvBodyErrorCases(g))
}

func kvBodyErrorCases(g *geometry) []kase {
	send := func(e *env, bucket, ctype string, body []byte) reply {
		return e.do(req{Method: "POST", Path: "/" + bucket, Query: "kv-get", Body: body, Header: map[string]string{"Content-Type": ctype}})
	}
	return slices.Concat(
		oursOne("kv-error/KVGet/wrong-object-size", func(e *env) {
			b := e.bucket()
			e.store(b, g)
			for _, n := range []int{0, 399, 401, 100_000} {
				e.put(b, g.keys[1], data(1, n))
				for _, form := range forms {
					a := e.kvGet(b, form, g.descriptor())
					e.denied(a, 400, "InvalidArgument")
					if !strings.Contains(string(a.Body), g.keys[1]) {
						e.Errorf("%d bytes: the error does not name the key: %s", n, a.Body)
					}
				}
			}
		}),
		oursOne("kv-error/KVGet/not-a-descriptor", func(e *env) {
			b := e.bucket()
			e.store(b, g)
			good := string(g.descriptor().json())
			for _, body := range []string{"", "{", "[]", "null", `"x"`, "12", good + "{}", good + "x", good[:len(good)-1], "\xff\xfe" + good, strings.Replace(good, ":", "=", 1), strings.Repeat("[", 100_000)} {
				a := send(e, b, "application/json", []byte(body))
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("JSON %.40q: %d %s, want 400 InvalidArgument", body, a.Status, a.Code)
				}
			}
			cbor := g.descriptor().cbor()
			for _, body := range [][]byte{nil, {0xa0}, {0xbf, 0xff}, {0xff}, {0x80}, {0xbb, 255, 255, 255, 255, 255, 255, 255, 255}, cbor[:len(cbor)-1], append(slices.Clone(cbor), 0), []byte(strings.Repeat("\x81", 100_000))} {
				a := send(e, b, "application/cbor", body)
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("CBOR % x: %d %s, want 400 InvalidArgument", body[:min(len(body), 12)], a.Status, a.Code)
				}
			}
			e.served(send(e, b, "application/json", []byte(good)), 3, "layer", g.payload(3, 0, 4, false))
		}),
		oursOne("kv-error/KVGet/content-type", func(e *env) {
			b := e.bucket()
			e.store(b, g)
			for _, ctype := range []string{"text/plain", "application/xml", "application/x-www-form-urlencoded"} {
				a := send(e, b, ctype, g.descriptor().json())
				if a.Status < 400 || a.Status >= 500 {
					e.Errorf("%s: %d, want 4xx", ctype, a.Status)
				}
			}
			want := g.payload(3, 0, 4, false)
			e.served(send(e, b, "application/json; charset=utf-8", g.descriptor().json()), 3, "layer", want)
		}),
		oursOne("kv-error/KVGet/too-many-keys", func(e *env) {
			b := e.bucket()
			keys := make([]string, 65537)
			for i := range keys {
				keys[i] = "k"
			}
			for _, form := range []string{"json", "cbor"} {
				a := e.kvGet(b, form, g.descriptor().with("chunk_keys", keys))
				e.denied(a, 400, "InvalidArgument")
				named(e, a, "chunk_keys")
			}
		}),
		oursOne("kv-error/KVGet/body-too-large", func(e *env) {
			b := e.bucket()
			body := slices.Grow(g.descriptor().json(), 16<<20)
			body = append(body, strings.Repeat(" ", 16<<20)...)
			a := send(e, b, "application/json", body)
			e.denied(a, 400, "InvalidArgument")
			named(e, a, "body")
		}),
		oursOne("kv-error/KVGet/forged", func(e *env) {
			b := e.bucket()
			e.store(b, g)
			a := e.do(req{Method: "POST", Path: "/" + b, Query: "kv-get", Body: g.descriptor().json(), Payload: hexSHA256([]byte("another body")), Header: map[string]string{"Content-Type": "application/json"}})
			e.denied(a, 400, "XAmzContentSHA256Mismatch")
			a = e.do(req{Method: "POST", Path: "/" + b, Query: "kv-get", Body: g.descriptor().json(), Key: &TenantKey{AccessKey: e.AccessKey, SecretKey: "wrong"}})
			e.denied(a, 403, "SignatureDoesNotMatch")
			a = e.do(req{Method: "POST", Path: "/" + b, Query: "kv-get", Body: g.descriptor().json(), Anon: true})
			e.denied(a, 403, "AccessDenied")
		}),
	)
}
