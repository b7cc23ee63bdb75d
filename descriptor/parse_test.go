package descriptor

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// good is a whole descriptor as the standard library's encoder writes it.
func good() map[string]any {
	return map[string]any{
		"chunk_keys": []string{"a", "b/c", "ü\u0000\"\\\n"}, "num_layers": 4, "chunk_tokens": 16,
		"per_layer_chunk_bytes": 6, "layout": "2ltd", "delivery": "chunk", "first_layer": 1, "layer_count": 2,
		"on_missing": "truncate", "layer_compute_us": 12.5,
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// both gives a JSON document in both encodings.
func both(t testing.TB, doc string) map[Encoding][]byte {
	t.Helper()
	c, ok := transcode(JSON, []byte(doc), CBOR)
	if !ok {
		t.Fatalf("%s does not go into CBOR", doc)
	}
	return map[Encoding][]byte{JSON: []byte(doc), CBOR: c}
}

func TestParse(t *testing.T) {
	want := &Descriptor{
		ChunkKeys: []string{"a", "b/c", "ü\u0000\"\\\n"}, NumLayers: 4, ChunkTokens: 16, PerLayerChunkBytes: 6,
		Layout: TwoLTD, Delivery: Chunk, FirstLayer: 1, LayerCount: 2, OnMissing: Truncate, LayerComputeMicros: 12.5,
	}
	for enc, body := range both(t, string(mustJSON(t, good()))) {
		got, err := Parse(enc, body, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", enc.ContentType(), err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", enc.ContentType(), got, want)
		}
		body[bytes.IndexByte(body, 'b')] = 'x' // the caller's again
		if got.ChunkKeys[1] != "b/c" {
			t.Error("the descriptor changes with the body")
		}
	}
}

func TestParseDefaults(t *testing.T) {
	for enc, body := range both(t, ` {"per_layer_chunk_bytes":3,"num_layers":7,"first_layer":2,"chunk_keys":["k"]} `) {
		got, err := Parse(enc, body, Limits{})
		want := &Descriptor{ChunkKeys: []string{"k"}, NumLayers: 7, PerLayerChunkBytes: 3, Layout: L2TD,
			Delivery: Auto, FirstLayer: 2, LayerCount: 5, OnMissing: Fail}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", enc.ContentType(), got, err)
		}
	}
}

func TestReservedFieldsAreNoticed(t *testing.T) {
	for enc, body := range both(t, `{"chunk_keys":["k"],"num_layers":1,"per_layer_chunk_bytes":1,"layer_offsets":[0,1.5,true]}`) {
		d, err := Parse(enc, body, Limits{})
		if err != nil || !d.HasLayerOffsets {
			t.Errorf("%s: %+v, %v", enc.ContentType(), d, err)
		}
	}
}

// TestBadFields: every error names its field, the same in both encodings.
func TestBadFields(t *testing.T) {
	const base = `{"chunk_keys":["k"],"num_layers":2,"per_layer_chunk_bytes":4`
	lim := Limits{Chunks: 3, Layers: 8, SliceBytes: 64, BodyBytes: 4000}
	long := strings.Repeat("k", 1025)
	deep := strings.Repeat("[", 20) + strings.Repeat("]", 20)
	cases := []struct{ doc, field, reason string }{
		{base + `,"colour":1}`, "colour", "unknown"},
		{base + `,"Layout":"l2td"}`, "Layout", "unknown"},
		{base + `,"":1}`, "", "unknown"},
		{base + `,"` + long + `":1}`, long[:64] + "...", "unknown"},
		{`{"Chunk_Keys":["k"],"num_layers":2,"per_layer_chunk_bytes":4}`, "Chunk_Keys", "unknown"},
		{base + `,"num_layers":2}`, "num_layers", "twice"},
		{base + `,"chunk_keys":["k"]}`, "chunk_keys", "twice"},
		{base + `,"rdma_target":` + goodTarget + `,"rdma_target":{}}`, "rdma_target", "twice"},
		{`{"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "missing"},
		{`{"chunk_keys":["k"],"per_layer_chunk_bytes":4}`, "num_layers", "missing"},
		{`{"chunk_keys":["k"],"num_layers":2}`, "per_layer_chunk_bytes", "missing"},
		{`{}`, "chunk_keys", "missing"},
		{`[]`, "body", "object"}, {`"x"`, "body", "object"}, {`null`, "body", "object"}, {`7`, "body", "object"},

		{`{"chunk_keys":[],"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "empty"},
		{`{"chunk_keys":[""],"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "key 0 is empty"},
		{`{"chunk_keys":["a","` + long + `"],"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "key 1 is over the limit of 1024"},
		{`{"chunk_keys":["a","b","c","d"],"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "limit of 3 chunks"},
		{`{"chunk_keys":["a",2],"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "must be a text, not a number"},
		{`{"chunk_keys":"a","num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "must be an array, not a text"},
		{`{"chunk_keys":{"0":"a"},"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "not an object"},
		{`{"chunk_keys":null,"num_layers":2,"per_layer_chunk_bytes":4}`, "chunk_keys", "not null"},

		{`{"chunk_keys":["k"],"num_layers":0,"per_layer_chunk_bytes":4}`, "num_layers", "positive"},
		{`{"chunk_keys":["k"],"num_layers":-0,"per_layer_chunk_bytes":4}`, "num_layers", "positive"},
		{`{"chunk_keys":["k"],"num_layers":-3,"per_layer_chunk_bytes":4}`, "num_layers", "positive"},
		{`{"chunk_keys":["k"],"num_layers":9,"per_layer_chunk_bytes":4}`, "num_layers", "limit of 8 layers"},
		{`{"chunk_keys":["k"],"num_layers":2.0,"per_layer_chunk_bytes":4}`, "num_layers", "integer"},
		{`{"chunk_keys":["k"],"num_layers":1e0,"per_layer_chunk_bytes":4}`, "num_layers", "integer"},
		{`{"chunk_keys":["k"],"num_layers":"2","per_layer_chunk_bytes":4}`, "num_layers", "must be a number, not a text"},
		{`{"chunk_keys":["k"],"num_layers":true,"per_layer_chunk_bytes":4}`, "num_layers", "not a boolean"},
		{`{"chunk_keys":["k"],"num_layers":4294967297,"per_layer_chunk_bytes":4}`, "num_layers", "too large"},
		{`{"chunk_keys":["k"],"num_layers":2,"per_layer_chunk_bytes":0}`, "per_layer_chunk_bytes", "positive"},
		{`{"chunk_keys":["k"],"num_layers":2,"per_layer_chunk_bytes":-1}`, "per_layer_chunk_bytes", "positive"},
		{`{"chunk_keys":["k"],"num_layers":2,"per_layer_chunk_bytes":65}`, "per_layer_chunk_bytes", "limit of 64 bytes"},
		{`{"chunk_keys":["k"],"num_layers":2,"per_layer_chunk_bytes":[4]}`, "per_layer_chunk_bytes", "not an array"},

		{base + `,"chunk_tokens":0}`, "chunk_tokens", "positive"},
		{base + `,"chunk_tokens":-16}`, "chunk_tokens", "positive"},
		{base + `,"layout":"L2TD"}`, "layout", "none of"},
		{base + `,"layout":""}`, "layout", "none of"},
		{base + `,"layout":1}`, "layout", "must be a text"},
		{`{"chunk_keys":["k"],"num_layers":2,"per_layer_chunk_bytes":5,"layout":"2ltd"}`, "layout", "odd"},
		{base + `,"delivery":"layers"}`, "delivery", "none of"},
		{base + `,"on_missing":"skip"}`, "on_missing", "none of"},
		{base + `,"first_layer":2}`, "first_layer", "not below num_layers"},
		{base + `,"first_layer":-1}`, "first_layer", "negative"},
		{base + `,"first_layer":0.5}`, "first_layer", "integer"},
		{base + `,"layer_count":0}`, "layer_count", "positive"},
		{base + `,"layer_count":3}`, "layer_count", "past num_layers"},
		{base + `,"first_layer":1,"layer_count":2}`, "layer_count", "past num_layers"},
		{base + `,"first_layer":1,"layer_count":2147483647}`, "layer_count", "past num_layers"},
		{base + `,"layer_compute_us":0}`, "layer_compute_us", "positive"},
		{base + `,"layer_compute_us":-0.5}`, "layer_compute_us", "positive"},
		{base + `,"layer_compute_us":"3"}`, "layer_compute_us", "must be a number"},
		{base + `,"layer_offsets":{}}`, "layer_offsets", "must be an array"},
		{base + `,"rdma_target":[]}`, "rdma_target", "must be an object"},
		{base + `,"rdma_target":null}`, "rdma_target", "must be an object"},
	}
	for _, c := range cases {
		for enc, body := range both(t, c.doc) {
			wantField(t, enc, body, lim, c.field, c.reason)
		}
	}
	// What only one of the encodings can say.
	for _, c := range []struct{ doc, field, reason string }{
		{"", "body", "byte 0"}, {"{", "body", "byte 1"}, {base, "body", "expected"}, {base + `}}`, "body", "after"},
		{base + `,}`, "body", "field name"}, {base + `} x`, "body", "after"}, {base + `,"layout" "l2td"}`, "body", "':'"},
		{base + `,layout:"l2td"}`, "body", "field name"}, {base + `,"layout":'l2td'}`, "body", "value expected"},
		{base + `,"layout":}`, "body", "value expected"}, {base + `,"layout":"l2td}`, "body", "not closed"},
		{base + `,"first_layer":01}`, "body", "'}' expected"}, {base + `,"first_layer":+1}`, "body", "value expected"},
		{base + `,"first_layer":-}`, "body", "digit"}, {base + `,"layer_compute_us":1.}`, "body", "digit"},
		{base + `,"layer_compute_us":1e}`, "body", "digit"}, {base + `,"layer_compute_us":NaN}`, "body", "value expected"},
		{base + `,"layer_compute_us":1e999}`, "layer_compute_us", "out of range"},
		{base + `,"layer_compute_us":9223372036854775808}`, "layer_compute_us", "out of range"},
		{base + `,"layer_offsets":[nul]}`, "body", "value expected"},
		{base + `,"layer_offsets":[` + deep + `]}`, "body", "nested"},
		{base + `,"layer_offsets":[18446744073709551615]}`, "layer_offsets", "out of range"},
		{"\ufeff" + base + `}`, "body", "byte 0"},
		{base + ",\"layout\":\"\xff\"}", "body", "not UTF-8"},
		{base + `,"layout":"` + "\n" + `"}`, "body", "control character"},
		{base + `,"layout":"\n` + "\n" + `"}`, "body", "control character"},
		{base + `,"layout":"\q"}`, "body", "bad escape"}, {base + `,"layout":"\u12g4"}`, "body", "bad escape"},
		{base + `,"layout":"\u12`, "body", "bad escape"}, {base + `,"layout":"\`, "body", "not closed"},
		{base + `,"layout":"\ud800"}`, "body", "surrogate"}, {base + `,"layout":"\udc00"}`, "body", "surrogate"},
		{base + `,"layout":"\ud800\u0041"}`, "body", "surrogate"}, {base + `,"layout":"\ud800\u`, "body", "surrogate"},
		{base + `}` + strings.Repeat(" ", 4000), "body", "limit of 4000 bytes"},
	} {
		wantField(t, JSON, []byte(c.doc), lim, c.field, c.reason)
	}
	key := "\x6achunk_keys"
	for _, c := range []struct{ doc, field, reason string }{
		{"", "body", "byte 0"}, {"\x41x", "body", "byte 0"}, {"\xd9\xd9\xf7\xa0", "body", "byte 0"}, {"\xa0\x00", "body", "after"},
		{"\xf7", "body", "byte 0"}, {"\xff", "body", "byte 0"}, {"\xa1", "body", "field name"}, {"\xa1\x01\x01", "body", "field name"},
		{"\xbf", "body", "field name"}, {"\xa1\x7f\x61a\xff\x01", "a", "unknown"}, {"\xa1\x7f\x41a\xff\x01", "body", "piece"},
		{"\xa1\x7f\x7f\xff\xff\x01", "body", "piece"}, {"\xa1\x7f\x61a", "body", "early"}, {"\xa1\x7f\x62a", "body", "early"},
		{"\xa1\x61\xff\x01", "body", "UTF-8"}, {"\xa1\x7f\x61\xff\xff\x01", "body", "UTF-8"},
		{"\xa1" + key + "\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "body", "value expected"},
		{"\xa1" + key + "\x81\x7b\xff\xff\xff\xff\xff\xff\xff\xff", "body", "early"},
		{"\xa1" + key + "\x81\x41a", "body", "value expected"}, {"\xa1" + key + "\x98", "body", "early"},
		{"\xa1" + key + "\x9c", "body", "reserved"}, {"\xa1" + key + "\x9f", "body", "value expected"},
		{"\xa1\x6anum_layers\x1b\x80\x00\x00\x00\x00\x00\x00\x00", "num_layers", "out of range"},
		{"\xa1\x6anum_layers\x3b\x80\x00\x00\x00\x00\x00\x00\x00", "num_layers", "out of range"},
		{"\xa1\x6anum_layers\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", "num_layers", "positive"},
		{"\xa1\x6anum_layers\x1f", "body", "reserved"}, {"\xa1\x6anum_layers\xf9\x3c", "body", "early"},
		{"\xa1\x6anum_layers\xf9\x3c\x00", "num_layers", "integer"}, {"\xa1\x6anum_layers\xf8\x15", "body", "value expected"},
		{"\xa1\x70layer_compute_us\xf9\x7c\x00", "layer_compute_us", "out of range"},
		{"\xa1\x70layer_compute_us\xf9\x7e\x00", "layer_compute_us", "out of range"},
		{"\xa1\x70layer_compute_us\xfa\x7f\x80\x00\x00", "layer_compute_us", "out of range"},
		{"\xa1\x70layer_compute_us\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00", "layer_compute_us", "out of range"},
		{"\xa1\x6dlayer_offsets\x81" + strings.Repeat("\x81", 20) + "\x00", "body", "nested"},
		{"\xa1\x6dlayer_offsets\x81\xa1\x00\x00", "body", "field name"}, {"\xa1\x6dlayer_offsets\x81\xa1\x61a\xc0\x00", "body", "value expected"},
	} {
		wantField(t, CBOR, []byte(c.doc), lim, c.field, c.reason)
	}
}

func wantField(t *testing.T, enc Encoding, body []byte, lim Limits, name, reason string) {
	t.Helper()
	d, err := Parse(enc, body, lim)
	fe, ok := err.(*FieldError)
	if d != nil || !ok || fe.Field != name || !strings.Contains(fe.Error(), reason) {
		t.Errorf("%s %.200q: got %v, want field %q and %q", enc.ContentType(), body, err, name, reason)
	}
}

func TestOverflow(t *testing.T) {
	lim := Limits{SliceBytes: math.MaxInt64, Layers: math.MaxInt}
	const doc = `{"chunk_keys":["a","b"],"num_layers":%d,"per_layer_chunk_bytes":%d}`
	for _, c := range []struct {
		l, s int64
		ok   bool
	}{{1, 1 << 61, true}, {2, 1<<61 - 1, true}, {2, 1 << 61, false}, {1, 1 << 62, false}, {1 << 30, 1 << 62, false}, {4, 1 << 62, false}} {
		for enc, body := range both(t, fmt.Sprintf(doc, c.l, c.s)) {
			if c.ok {
				if d, err := Parse(enc, body, lim); err != nil || d.ChunkBytes() != c.l*c.s {
					t.Errorf("%d*%d: %v", c.l, c.s, err)
				}
				continue
			}
			wantField(t, enc, body, lim, "per_layer_chunk_bytes", "overflow")
		}
	}
}

func TestParseMatch(t *testing.T) {
	keys := []string{"x", "y\u2028", "x"}
	for _, enc := range []Encoding{JSON, CBOR} {
		b, err := MarshalMatch(enc, keys)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseMatch(enc, b, Limits{}); err != nil || !reflect.DeepEqual(got, keys) {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := ParseMatch(enc, b, Limits{Chunks: 2}); err == nil || err.(*FieldError).Field != "chunk_keys" {
			t.Errorf("over the limit: %v", err)
		}
		if _, err := MarshalMatch(enc, nil); err == nil {
			t.Error("no keys are no match")
		}
	}
	for doc, name := range map[string]string{
		`{"chunk_keys":["a"],"num_layers":1}`: "num_layers", `{}`: "chunk_keys", `{"chunk_keys":[]}`: "chunk_keys",
		`{"chunk_keys":["a"],"chunk_keys":["a"]}`: "chunk_keys", `["a"]`: "body",
	} {
		for enc, body := range both(t, doc) {
			if _, err := ParseMatch(enc, body, Limits{}); err == nil || err.(*FieldError).Field != name {
				t.Errorf("%s: got %v, want field %q", doc, err, name)
			}
		}
	}
}

// TestCBORForms reads forms that our writer does not make.
func TestCBORForms(t *testing.T) {
	doc := "\xbf" + // open map
		"\x6achunk_keys" + "\x9f" + "\x61a" + "\x7f\x61b\x60\x62cd\xff" + "\x78\x01e" + "\xff" +
		"\x7f\x63num\x67_layers\xff" + "\x1b\x00\x00\x00\x00\x00\x00\x00\x02" + // not the shortest form
		"\x75per_layer_chunk_bytes" + "\x19\x01\x00" +
		"\x70layer_compute_us" + "\xf9\x3e\x00" + "\xff"
	d, err := Parse(CBOR, []byte(doc), Limits{})
	want := &Descriptor{ChunkKeys: []string{"a", "bcd", "e"}, NumLayers: 2, PerLayerChunkBytes: 256, Layout: L2TD,
		Delivery: Auto, LayerCount: 2, OnMissing: Fail, LayerComputeMicros: 1.5}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestHalf(t *testing.T) {
	for h, want := range map[uint16]float64{0: 0, 0x0001: 0x1p-24, 0x03ff: 0x3ffp-24, 0x0400: 0x1p-14, 0x3c00: 1,
		0xc000: -2, 0x7bff: 65504, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := half(h); got != want {
			t.Errorf("half(%#x) = %v, want %v", h, got, want)
		}
	}
	if !math.IsNaN(half(0x7e00)) {
		t.Error("0x7e00 is no number")
	}
}

func TestMarshal(t *testing.T) {
	d := &Descriptor{ChunkKeys: []string{"a", "\"\\\x01ü"}, NumLayers: 80, PerLayerChunkBytes: 1 << 20, ChunkTokens: 300,
		Layout: TwoLTD, Delivery: Layer, FirstLayer: 24, LayerCount: 23, OnMissing: Truncate, LayerComputeMicros: 7}
	for _, enc := range []Encoding{JSON, CBOR} {
		b, err := Marshal(enc, d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(enc, b, Limits{})
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s: got %+v, %v", b, got, err)
		}
	}
	// The standard library agrees that it is JSON, and on what it says.
	b, _ := Marshal(JSON, &Descriptor{ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 2})
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil || len(m) != 3 || !reflect.DeepEqual(m["chunk_keys"], []any{"a", "\"\\\x01ü"}) {
		t.Errorf("%s: %v, %v", b, m, err)
	}
	for name, bad := range map[string]Descriptor{
		"chunk_keys":            {NumLayers: 1, PerLayerChunkBytes: 1},
		"num_layers":            {ChunkKeys: d.ChunkKeys, PerLayerChunkBytes: 1},
		"layout":                {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, Layout: "x"},
		"delivery":              {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, Delivery: "x"},
		"on_missing":            {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, OnMissing: "x"},
		"rdma_target.handle":    {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, Target: &Target{Length: 1}},
		"layer_offsets":         {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, HasLayerOffsets: true},
		"layer_compute_us":      {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, LayerComputeMicros: math.NaN()},
		"chunk_tokens":          {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, ChunkTokens: -1},
		"layer_count":           {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, LayerCount: -1},
		"first_layer":           {ChunkKeys: d.ChunkKeys, NumLayers: 1, PerLayerChunkBytes: 1, FirstLayer: -1},
		"per_layer_chunk_bytes": {ChunkKeys: d.ChunkKeys, NumLayers: 1},
	} {
		if _, err := Marshal(CBOR, &bad); err == nil || err.(*FieldError).Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Marshal(JSON, &Descriptor{ChunkKeys: []string{"\xff"}, NumLayers: 1, PerLayerChunkBytes: 1}); err == nil {
		t.Error("a key that is not UTF-8 cannot be written")
	}
}

func TestHeader(t *testing.T) {
	d := &Descriptor{ChunkKeys: []string{"a?>~"}, NumLayers: 2, PerLayerChunkBytes: 3, Layout: L2TD, Delivery: Auto,
		LayerCount: 2, OnMissing: Fail}
	h, err := EncodeHeader(d)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(h)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // with every length of padding
		for _, v := range []string{base64.RawURLEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw)} {
			if got, err := ParseHeader(v, Limits{}); err != nil || !reflect.DeepEqual(got, d) {
				t.Errorf("%q: %+v, %v", v, got, err)
			}
		}
		raw = append(raw, ' ')
	}
	ok := base64.URLEncoding.EncodeToString(raw)
	for _, bad := range []string{"", "=", "====", "e30===", ok + "=", ok + "====", "a b", ok[:8] + "\n" + ok[8:], "e3+", "e3/", strings.Repeat("A", MaxHeaderBytes+1)} {
		if _, err := ParseHeader(bad, Limits{}); err == nil || err.(*FieldError).Field != "x-kv-descriptor" {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	if _, err := ParseHeader(base64.URLEncoding.EncodeToString([]byte(`{"num_layers":0}`)), Limits{}); err == nil || err.(*FieldError).Field != "num_layers" {
		t.Errorf("a bad field: %v", err)
	}
	d.ChunkKeys = make([]string, 80)
	for i := range d.ChunkKeys {
		d.ChunkKeys[i] = strings.Repeat("f", 64)
	}
	if _, err := EncodeHeader(d); err == nil || err.(*FieldError).Field != "x-kv-descriptor" {
		t.Errorf("too long: %v", err)
	}
}

func TestEncodingOf(t *testing.T) {
	for ct, want := range map[string]string{"": "application/json", "application/json; charset=utf-8": "application/json",
		"Application/CBOR": "application/cbor", "text/plain": "", "application/json;;": "", "application/octet-stream": ""} {
		enc, ok := EncodingOf(ct)
		if ok != (want != "") || ok && enc.ContentType() != want {
			t.Errorf("%q: %v %v", ct, enc.ContentType(), ok)
		}
	}
}

// TestClaimedLengths: what a document claims allocates nothing.
func TestClaimedLengths(t *testing.T) {
	doc := binary.BigEndian.AppendUint64([]byte("\xa1\x6achunk_keys\x9b"), 1<<40)
	doc = append(doc, "\x61a"...)
	if n := testing.AllocsPerRun(20, func() { _, _ = Parse(CBOR, doc, Limits{}) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func manyKeys(n int) *Descriptor {
	d := &Descriptor{NumLayers: 32, PerLayerChunkBytes: 64 << 10}
	for i := range n {
		d.ChunkKeys = append(d.ChunkKeys, fmt.Sprintf("%064x", i*0x9e3779b97f4a7c1))
	}
	return d
}

// TestParseAllocations: keys are substrings of one copy of the body.
func TestParseAllocations(t *testing.T) {
	for _, enc := range []Encoding{JSON, CBOR} {
		body, err := Marshal(enc, manyKeys(3584))
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = Parse(enc, body, Limits{}) }); n > 40 {
			t.Errorf("%s: %v allocations for 3584 keys", enc.ContentType(), n)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{224, 3584, 65536} {
		for _, enc := range []Encoding{JSON, CBOR} {
			body, err := Marshal(enc, manyKeys(n))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/N=%d", enc.ContentType()[12:], n), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Parse(enc, body, Limits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
