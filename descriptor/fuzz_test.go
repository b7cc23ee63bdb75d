package descriptor

import (
	"encoding/json"
	"reflect"
	"testing"
)

// transcode rewrites a document in the other encoding. False: it is malformed.
func transcode(from Encoding, doc []byte, to Encoding) ([]byte, bool) {
	r := newReader(from, string(doc))
	root := new(node)
	if err := root.read(r); err != nil || r.end() != nil {
		return nil, false
	}
	w := newWriter(to, len(doc))
	root.write(w)
	return w.bytes(), true
}

// node is any value of a document.
type node struct {
	kind   kind
	names  []string
	values []*node
	text   string
	num    number
	truth  bool
}

func (n *node) read(r reader) error {
	n.kind = r.kind()
	var err error
	item := func() error {
		v := new(node)
		n.values = append(n.values, v)
		return v.read(r)
	}
	switch n.kind {
	case kindObject:
		return r.object(func(name string) error {
			n.names = append(n.names, name)
			return item()
		})
	case kindArray:
		return r.array(item)
	case kindText:
		n.text, err = r.text()
	case kindNumber:
		n.num, err = r.number()
	case kindBool, kindNull:
		n.truth, err = r.literal()
	default:
		err = r.errAt("value expected")
	}
	return err
}

func (n *node) write(w writer) {
	switch n.kind {
	case kindObject:
		w.object(len(n.names), func(i int) {
			w.name(n.names[i])
			n.values[i].write(w)
		})
	case kindArray:
		w.array(len(n.values), func(i int) { n.values[i].write(w) })
	case kindText:
		w.text(n.text)
	case kindNumber:
		if n.num.isInt {
			w.integer(n.num.i)
		} else {
			w.float(n.num.f)
		}
	case kindBool, kindNull:
		name, simple := "null", byte(0xf6)
		if n.kind == kindBool {
			name, simple = "false", 0xf4
			if n.truth {
				name, simple = "true", 0xf5
			}
		}
		switch w := w.(type) {
		case *jsonWriter:
			w.b = append(w.b, name...)
		case *cborWriter:
			w.b = append(w.b, simple)
		}
	}
}

var fuzzLimits = Limits{Chunks: 64, Layers: 1024, SliceBytes: 1 << 62}

// fuzzParse is the body of both targets: no panic; every error names a field;
// the other encoding of the same document gives the same answer; and what was
// accepted survives being written and read again.
func fuzzParse(t *testing.T, enc Encoding, doc []byte) {
	d, err := Parse(enc, doc, fuzzLimits)
	if err != nil {
		if _, ok := err.(*FieldError); !ok {
			t.Fatalf("%T is no *FieldError: %v", err, err)
		}
	}
	other := CBOR - enc
	moved, ok := transcode(enc, doc, other)
	if !ok {
		if err == nil {
			t.Fatal("accepted a malformed document")
		}
		return
	}
	if enc == JSON && !json.Valid(doc) {
		t.Fatal("not JSON by the standard library")
	}
	if other == JSON && !json.Valid(moved) {
		t.Fatalf("wrote what is no JSON: %q", moved)
	}
	od, oerr := Parse(other, moved, fuzzLimits)
	switch {
	case (err == nil) != (oerr == nil):
		t.Fatalf("%v in one encoding, %v in the other (%q)", err, oerr, moved)
	case err != nil:
		if f, of := err.(*FieldError).Field, oerr.(*FieldError).Field; f != of {
			t.Fatalf("%q in one encoding, %q in the other (%q)", f, of, moved)
		}
		return
	case !reflect.DeepEqual(d, od):
		t.Fatalf("%+v in one encoding, %+v in the other", d, od)
	}
	if d.HasLayerOffsets {
		return
	}
	for _, e := range []Encoding{JSON, CBOR} {
		b, err := Marshal(e, d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse(e, b, fuzzLimits); err != nil || !reflect.DeepEqual(d, again) {
			t.Fatalf("wrote %q: %+v, %v", b, again, err)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add(mustJSON(f, good()))
	f.Add([]byte(targetBase + goodTarget + "}"))
	f.Add([]byte(targetBase + `{"handle":"h","offset":0,"length":64,"tag":0,"layer_bases":[0,32],"planes":2,"plane_stride":16,"blocks_per_chunk":1,"block_stride":4,"slots":[1,0]}}`))
	f.Fuzz(func(t *testing.T, doc []byte) { fuzzParse(t, JSON, doc) })
}

func FuzzParseCBOR(f *testing.F) {
	b, ok := transcode(JSON, mustJSON(f, good()), CBOR)
	if !ok {
		f.Fatal("the seed is malformed")
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, doc []byte) { fuzzParse(t, CBOR, doc) })
}

func FuzzParseHeader(f *testing.F) {
	h, err := EncodeHeader(&Descriptor{ChunkKeys: []string{"a"}, NumLayers: 1, PerLayerChunkBytes: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(h)
	f.Fuzz(func(t *testing.T, v string) {
		d, err := ParseHeader(v, fuzzLimits)
		if err != nil {
			if _, ok := err.(*FieldError); !ok {
				t.Fatalf("%T is no *FieldError", err)
			}
			return
		}
		if d.HasLayerOffsets {
			return
		}
		again, err := EncodeHeader(d)
		if err != nil {
			if len(v) <= MaxHeaderBytes/2 {
				t.Fatal(err) // defaults written out can make it longer, not twice as long
			}
			return
		}
		if e, err := ParseHeader(again, fuzzLimits); err != nil || !reflect.DeepEqual(d, e) {
			t.Fatalf("%+v, %v", e, err)
		}
	})
}
