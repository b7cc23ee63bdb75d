package conformance

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A client of the KV requests that knows only their wire: it imports nothing
// of objcached, builds descriptors field by field, and works out every
// expected byte from the chunks it has put.

// fields is a descriptor. Values are string, int, float64, bool, nil, []string,
// []int, fields or raw JSON.
type fields []field

type field struct {
	name  string
	value any
}

// raw is JSON that goes out as it is; it has no CBOR form.
type raw string

// with returns a copy with a field set, replaced or added.
func (f fields) with(name string, value any) fields {
	g := slices.Clone(f)
	for i := range g {
		if g[i].name == name {
			g[i].value = value
			return g
		}
	}
	return append(g, field{name, value})
}

func (f fields) without(name string) fields {
	return slices.DeleteFunc(slices.Clone(f), func(x field) bool { return x.name == name })
}

// json renders the descriptor with its fields in order, repeated ones too.
func (f fields) json() []byte {
	out := []byte{'{'}
	for i, x := range f {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendQuote(out, x.name)
		out = append(out, ':')
		switch v := x.value.(type) {
		case raw:
			out = append(out, v...)
		case fields:
			out = append(out, v.json()...)
		default:
			b, err := json.Marshal(v)
			if err != nil {
				panic(err) // a case's own mistake
			}
			out = append(out, b...)
		}
	}
	return append(out, '}')
}

// cborHead is RFC 8949's initial byte and argument, in the shortest form.
func cborHead(out []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(out, major<<5|byte(n))
	case n < 1<<8:
		return append(out, major<<5|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(out, major<<5|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(out, major<<5|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(out, major<<5|27), n)
}

func cborText(out []byte, s string) []byte { return append(cborHead(out, 3, uint64(len(s))), s...) }

func cborInt(out []byte, n int) []byte {
	if n < 0 {
		return cborHead(out, 1, uint64(-1-n))
	}
	return cborHead(out, 0, uint64(n))
}

// cbor renders the descriptor in CBOR.
func (f fields) cbor() []byte {
	out := cborHead(nil, 5, uint64(len(f)))
	for _, x := range f {
		out = cborText(out, x.name)
		switch v := x.value.(type) {
		case string:
			out = cborText(out, v)
		case int:
			out = cborInt(out, v)
		case float64:
			out = binary.BigEndian.AppendUint64(append(out, 7<<5|27), math.Float64bits(v))
		case bool:
			out = append(out, 7<<5|20)
			if v {
				out[len(out)-1]++
			}
		case nil:
			out = append(out, 7<<5|22)
		case []string:
			out = cborHead(out, 4, uint64(len(v)))
			for _, s := range v {
				out = cborText(out, s)
			}
		case []int:
			out = cborHead(out, 4, uint64(len(v)))
			for _, n := range v {
				out = cborInt(out, n)
			}
		case fields:
			out = append(out, v.cbor()...)
		default:
			panic(fmt.Sprintf("no CBOR for %T", v)) // a case's own mistake
		}
	}
	return out
}

// header renders the descriptor for x-kv-descriptor.
func (f fields) header() string { return base64.RawURLEncoding.EncodeToString(f.json()) }

// geometry is a set of chunks of one shape.
type geometry struct {
	n, layers, slice int
	twoLTD           bool
	keys             []string
	chunks           [][]byte
}

func newGeometry(seed uint64, n, layers, slice int, twoLTD bool) *geometry {
	g := &geometry{n: n, layers: layers, slice: slice, twoLTD: twoLTD}
	for j := range n {
		g.keys = append(g.keys, fmt.Sprintf("chunks/%d/%04d", seed, j))
		g.chunks = append(g.chunks, data(seed*1000+uint64(j), layers*slice))
	}
	return g
}

// descriptor has the required fields, and the layout if it is not the default.
func (g *geometry) descriptor() fields {
	f := fields{{"chunk_keys", g.keys}, {"num_layers", g.layers}, {"chunk_tokens", 16}, {"per_layer_chunk_bytes", g.slice}}
	if g.twoLTD {
		f = append(f, field{"layout", "2ltd"})
	}
	return f
}

// piece is the K and then the V of layer l of chunk j.
func (g *geometry) piece(j, l int) []byte {
	c := g.chunks[j]
	if !g.twoLTD {
		return c[l*g.slice : (l+1)*g.slice]
	}
	half := g.slice / 2
	v := c[g.layers*half:]
	return append(slices.Clone(c[l*half:(l+1)*half]), v[l*half:(l+1)*half]...)
}

// payload is the expected body for the first n chunks.
func (g *geometry) payload(n, first, count int, chunkMajor bool) []byte {
	out := make([]byte, 0, n*count*g.slice)
	if chunkMajor {
		for j := range n {
			for l := first; l < first+count; l++ {
				out = append(out, g.piece(j, l)...)
			}
		}
		return out
	}
	for l := first; l < first+count; l++ {
		for j := range n {
			out = append(out, g.piece(j, l)...)
		}
	}
	return out
}

// store puts the chunks into a bucket.
func (e *env) store(bucket string, g *geometry) {
	e.Helper()
	for j, k := range g.keys {
		e.put(bucket, k, g.chunks[j])
	}
}

// kvGet sends a descriptor in one of its forms: "json", "cbor" or "header".
func (e *env) kvGet(bucket, form string, f fields) reply {
	e.Helper()
	return e.kvGetAs(nil, bucket, form, f)
}

func (e *env) kvGetAs(key *TenantKey, bucket, form string, f fields) reply {
	e.Helper()
	q := req{Method: "POST", Path: "/" + bucket, Query: "kv-get", Key: key}
	switch form {
	case "json":
		q.Body, q.Header = f.json(), map[string]string{"Content-Type": "application/json"}
	case "cbor":
		q.Body, q.Header = f.cbor(), map[string]string{"Content-Type": "application/cbor"}
	case "header":
		first := "none"
		for _, x := range f {
			if keys, ok := x.value.([]string); ok && x.name == "chunk_keys" && len(keys) > 0 {
				first = keys[0]
			}
		}
		q.Method, q.Path, q.Query = "GET", "/"+bucket+"/"+encodePath(first), ""
		q.Header = map[string]string{"X-Kv-Descriptor": f.header()}
	default:
		e.Fatalf("no form %q", form)
	}
	return e.do(q)
}

// served checks a layerwise answer in full.
func (e *env) served(a reply, matched int, mode string, want []byte) {
	e.Helper()
	e.accepted(a, 200)
	equal(e, "x-kv-matched", a.Header.Get("X-Kv-Matched"), strconv.Itoa(matched))
	equal(e, "x-kv-mode", a.Header.Get("X-Kv-Mode"), mode)
	equal(e, "Content-Length", a.Header.Get("Content-Length"), strconv.Itoa(len(want)))
	equal(e, "Cache-Control", a.Header.Get("Cache-Control"), "no-store")
	e.same(a.Body, want)
}

// kvMatch asks how many of keys exist in order.
func (e *env) kvMatch(key *TenantKey, bucket string, keys []string) reply {
	e.Helper()
	return e.do(req{Method: "POST", Path: "/" + bucket, Query: "kv-match", Key: key,
		Body: fields{{"chunk_keys", keys}}.json(), Header: map[string]string{"Content-Type": "application/json"}})
}
