package descriptor

import (
	"encoding/base64"
	"fmt"
)

// writer builds one document. In object and array, item writes the i-th of
// exactly n items; an object's item calls name and then writes one value.
type writer interface {
	object(n int, item func(i int))
	array(n int, item func(i int))
	name(s string)
	text(s string)
	integer(i int64)
	float(f float64)
	bytes() []byte
}

func newWriter(enc Encoding, size int) writer {
	b := make([]byte, 0, size)
	if enc == CBOR {
		return &cborWriter{b}
	}
	return &jsonWriter{b}
}

// Marshal writes d as the body of a layerwise GET, leaving out optional fields
// that have their zero value. It first checks d as a server without limits
// would (*FieldError); d is not changed. HasLayerOffsets has nothing to write
// and is refused.
func Marshal(enc Encoding, d *Descriptor) ([]byte, error) {
	c := *d
	if d.Target != nil {
		t := *d.Target
		c.Target = &t
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if d.HasLayerOffsets {
		return nil, &FieldError{"layer_offsets", "reserved"}
	}
	size := keysSize(d.ChunkKeys) + 400
	if d.Target != nil {
		size += 12 * (len(d.Target.LayerBases) + len(d.Target.Slots) + 20)
	}
	w := newWriter(enc, size)
	writeObject(w, fields, d)
	return w.bytes(), nil
}

// writeObject writes the fields of d that are given.
func writeObject[D any](w writer, table []field[D], d *D) {
	var given []*field[D]
	for i := range table {
		if table[i].given(d) {
			given = append(given, &table[i])
		}
	}
	w.object(len(given), func(i int) {
		w.name(given[i].name)
		given[i].write(w, d)
	})
}

// MarshalMatch writes the body of kv-match.
func MarshalMatch(enc Encoding, keys []string) ([]byte, error) {
	if err := checkKeys(keys, noLimits); err != nil {
		return nil, err
	}
	w := newWriter(enc, keysSize(keys)+32)
	w.object(1, func(int) {
		w.name(fields[0].name)
		writeKeys(w, &Descriptor{ChunkKeys: keys})
	})
	return w.bytes(), nil
}

func keysSize(keys []string) int {
	n := 0
	for _, k := range keys {
		n += len(k) + 3
	}
	return n
}

func writeKeys(w writer, d *Descriptor) {
	w.array(len(d.ChunkKeys), func(i int) { w.text(d.ChunkKeys[i]) })
}

// HeaderName is the header of the header form: an ordinary GET of the first
// chunk's key with the descriptor beside it.
const HeaderName = "X-Kv-Descriptor"

// MaxHeaderBytes is the most the header's value may have; stores cap all
// headers together at 8 KiB.
const MaxHeaderBytes = 6 << 10

// headerField is HeaderName as errors show it.
const headerField = "x-kv-descriptor"

// EncodeHeader gives the value of the header form: base64url, without padding,
// of the JSON form. A *FieldError says that d is bad or does not fit.
func EncodeHeader(d *Descriptor) (string, error) {
	b, err := Marshal(JSON, d)
	if err != nil {
		return "", err
	}
	if n := base64.RawURLEncoding.EncodedLen(len(b)); n > MaxHeaderBytes {
		return "", &FieldError{headerField, fmt.Sprintf("%d bytes, over the limit of %d", n, MaxHeaderBytes)}
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// ParseHeader is Parse for the header form. The base64url may be padded.
func ParseHeader(value string, lim Limits) (*Descriptor, error) {
	b, err := decodeHeader(headerField, value)
	if err != nil {
		return nil, err
	}
	d, err := Parse(JSON, b, lim)
	if fe, ok := err.(*FieldError); ok && fe.Field == bodyField {
		return nil, &FieldError{headerField, fe.Reason}
	}
	return d, err
}
