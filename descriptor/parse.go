package descriptor

import (
	"errors"
	"fmt"
	"mime"
	"strings"
)

// Encoding is the encoding of a request body.
type Encoding uint8

// The encodings. Both carry the same documents: a map of the names in the
// table below to integers, floats, texts, arrays and maps.
const (
	JSON Encoding = iota // RFC 8259
	CBOR                 // the part of RFC 8949 that JSON can say as well; see cbor.go
)

// ContentType is the media type of e.
func (e Encoding) ContentType() string {
	if e == CBOR {
		return "application/cbor"
	}
	return "application/json"
}

// EncodingOf finds the encoding that a Content-Type header names. An empty
// header means JSON; parameters are ignored. False: neither of the two.
func EncodingOf(contentType string) (Encoding, bool) {
	if contentType == "" {
		return JSON, true
	}
	t, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return JSON, false
	case t == "application/json":
		return JSON, true
	case t == "application/cbor":
		return CBOR, true
	}
	return JSON, false
}

// bodyField stands in FieldError.Field when the document as a whole is bad.
const bodyField = "body"

// kind is the type of a value in a document.
type kind uint8

const (
	kindBad kind = iota
	kindObject
	kindArray
	kindText
	kindNumber
	kindBool
	kindNull
)

func (k kind) String() string {
	return [...]string{"something malformed", "an object", "an array", "a text", "a number", "a boolean", "null"}[k]
}

// number is an integer or a finite float.
type number struct {
	isInt bool
	i     int64
	f     float64 // the value in either case
}

// reader walks one document, value by value. Each method consumes exactly the
// value at hand, whose kind the caller has looked at; text that needs no
// decoding is a substring of the document. Errors are *syntaxError, valueError
// or what a visitor returned.
type reader interface {
	kind() kind
	object(visit func(name string) error) error
	array(visit func() error) error
	text() (string, error)
	number() (number, error)
	literal() (bool, error) // a boolean or null
	end() error             // that nothing follows
	errAt(msg string) error // a *syntaxError where the reader stands
}

// syntaxError says that the document is not of its encoding.
type syntaxError struct {
	off int
	msg string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.off, e.msg) }

// valueError is well-formed and not acceptable; the field is the caller's to name.
type valueError string

func (e valueError) Error() string { return string(e) }

func valueErrorf(format string, args ...any) error { return valueError(fmt.Sprintf(format, args...)) }

// maxDepth bounds the nesting of arrays and objects.
const maxDepth = 16

// field is one row of the table of a document D, shared by both encodings and
// by reading and writing.
type field[D any] struct {
	name     string
	required bool
	parse    func(r reader, d *D, lim *Limits) error
	write    func(w writer, d *D) // nil: never written
	given    func(d *D) bool      // whether there is something to write
}

// fields is the table of the descriptor. Names are matched byte for byte, each
// at most once, in any order.
//
// Integers are JSON numbers without fraction or exponent, or CBOR integers,
// within int64. Null is no value of any field.
var fields = []field[Descriptor]{
	{"chunk_keys", true, parseKeys, writeKeys, always},
	{"num_layers", true,
		func(r reader, d *Descriptor, _ *Limits) error { return parseCount(r, &d.NumLayers) },
		func(w writer, d *Descriptor) { w.integer(int64(d.NumLayers)) }, always},
	{"chunk_tokens", false,
		func(r reader, d *Descriptor, _ *Limits) error { return parseCount(r, &d.ChunkTokens) },
		func(w writer, d *Descriptor) { w.integer(int64(d.ChunkTokens)) },
		func(d *Descriptor) bool { return d.ChunkTokens != 0 }},
	{"per_layer_chunk_bytes", true,
		func(r reader, d *Descriptor, _ *Limits) (err error) {
			d.PerLayerChunkBytes, err = positive(r)
			return err
		},
		func(w writer, d *Descriptor) { w.integer(d.PerLayerChunkBytes) }, always},
	{"layout", false,
		func(r reader, d *Descriptor, _ *Limits) error { return parseName(r, &d.Layout, L2TD, TwoLTD) },
		func(w writer, d *Descriptor) { w.text(string(d.Layout)) },
		func(d *Descriptor) bool { return d.Layout != "" }},
	{"delivery", false,
		func(r reader, d *Descriptor, _ *Limits) error { return parseName(r, &d.Delivery, Auto, Layer, Chunk) },
		func(w writer, d *Descriptor) { w.text(string(d.Delivery)) },
		func(d *Descriptor) bool { return d.Delivery != "" }},
	{"first_layer", false,
		func(r reader, d *Descriptor, _ *Limits) error { return parseIndex(r, &d.FirstLayer) },
		func(w writer, d *Descriptor) { w.integer(int64(d.FirstLayer)) },
		func(d *Descriptor) bool { return d.FirstLayer != 0 }},
	{"layer_count", false,
		func(r reader, d *Descriptor, _ *Limits) error { return parseCount(r, &d.LayerCount) },
		func(w writer, d *Descriptor) { w.integer(int64(d.LayerCount)) },
		func(d *Descriptor) bool { return d.LayerCount != 0 }},
	{"on_missing", false,
		func(r reader, d *Descriptor, _ *Limits) error { return parseName(r, &d.OnMissing, Fail, Truncate) },
		func(w writer, d *Descriptor) { w.text(string(d.OnMissing)) },
		func(d *Descriptor) bool { return d.OnMissing != "" }},
	{"layer_compute_us", false, parseCompute,
		func(w writer, d *Descriptor) { w.float(d.LayerComputeMicros) },
		func(d *Descriptor) bool { return d.LayerComputeMicros != 0 }},
	{"layer_offsets", false,
		func(r reader, d *Descriptor, _ *Limits) error { d.HasLayerOffsets = true; return skipA(r, kindArray) },
		nil, never},
	{"rdma_target", false, parseTarget, writeTarget, func(d *Descriptor) bool { return d.Target != nil }},
}

func always(*Descriptor) bool { return true }
func never(*Descriptor) bool  { return false }

// Parse reads the descriptor of a layerwise GET, checks it and fills in the
// defaults. Every error is a *FieldError. body is not kept; what the keys point
// into is at most twice as large as they are.
func Parse(enc Encoding, body []byte, lim Limits) (*Descriptor, error) {
	lim = lim.WithDefaults()
	d := new(Descriptor)
	if err := parseDocument(enc, body, lim, fields, d); err != nil {
		return nil, err
	}
	compact(d, len(body))
	if err := d.complete(lim); err != nil {
		return nil, err
	}
	return d, nil
}

// ParseMatch reads the body of kv-match: a map with the one field chunk_keys,
// under the same limits. Every error is a *FieldError.
func ParseMatch(enc Encoding, body []byte, lim Limits) ([]string, error) {
	lim = lim.WithDefaults()
	d := new(Descriptor)
	if err := parseDocument(enc, body, lim, fields[:1], d); err != nil {
		return nil, err
	}
	compact(d, len(body))
	if err := checkKeys(d.ChunkKeys, lim); err != nil {
		return nil, err
	}
	return d.ChunkKeys, nil
}

// parseDocument reads body, which may hold the fields of table, into d.
func parseDocument[D any](enc Encoding, body []byte, lim Limits, table []field[D], d *D) error {
	if int64(len(body)) > lim.BodyBytes {
		return &FieldError{bodyField, fmt.Sprintf("over the limit of %d bytes", lim.BodyBytes)}
	}
	r := newReader(enc, string(body))
	if k := r.kind(); k == kindBad {
		return named(bodyField, r.errAt("not "+enc.ContentType()))
	} else if k != kindObject {
		return &FieldError{bodyField, "must be an object, not " + k.String()}
	}
	return named(bodyField, parseObject(r, lim, "", table, d, r.end))
}

// parseObject reads the object at hand into d. Errors name its fields, with
// prefix before them. end is asked what follows the object.
func parseObject[D any](r reader, lim Limits, prefix string, table []field[D], d *D, end func() error) error {
	seen := make([]bool, len(table))
	err := r.object(func(name string) error {
		i := indexOf(table, name)
		if i < 0 {
			return &FieldError{prefix + clip(name), "unknown field"}
		}
		if seen[i] {
			return &FieldError{prefix + name, "given twice"}
		}
		seen[i] = true
		return named(prefix+name, table[i].parse(r, d, &lim))
	})
	if err == nil {
		err = end()
	}
	if err != nil {
		return err
	}
	for i := range table {
		if table[i].required && !seen[i] {
			return &FieldError{prefix + table[i].name, "missing"}
		}
	}
	return nil
}

// compact copies the keys out of the document if they are less than half of
// it. They live as long as a delivery takes, which a client decides, and must
// not keep megabytes of anything else in memory.
func compact(d *Descriptor, document int) {
	total := 0
	for _, k := range d.ChunkKeys {
		total += len(k)
	}
	if total >= document/2 {
		return
	}
	var b strings.Builder
	b.Grow(total)
	for _, k := range d.ChunkKeys {
		b.WriteString(k)
	}
	all := b.String()
	for i, k := range d.ChunkKeys {
		d.ChunkKeys[i], all = all[:len(k)], all[len(k):]
	}
}

func newReader(enc Encoding, doc string) reader {
	if enc == CBOR {
		return &cborReader{s: doc}
	}
	return newJSONReader(doc)
}

func indexOf[D any](table []field[D], name string) int {
	for i := range table {
		if table[i].name == name {
			return i
		}
	}
	return -1
}

// named makes err a *FieldError: of the body if the document is malformed,
// else of the field at hand.
func named(field string, err error) error {
	var fe *FieldError
	var se *syntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fe):
		return fe
	case errors.As(err, &se):
		return &FieldError{bodyField, se.Error()}
	}
	return &FieldError{field, err.Error()}
}

// clip keeps what a client sent us short enough for an error message.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "")
}

// want checks the kind of the value at hand.
func want(r reader, k kind) error {
	switch got := r.kind(); got {
	case k:
		return nil
	case kindBad:
		return r.errAt("value expected")
	default:
		return valueErrorf("must be %v, not %v", k, got)
	}
}

func parseKeys(r reader, d *Descriptor, lim *Limits) error {
	if err := want(r, kindArray); err != nil {
		return err
	}
	return r.array(func() error {
		if len(d.ChunkKeys) == lim.Chunks {
			return valueErrorf("over the limit of %d chunks", lim.Chunks)
		}
		if err := want(r, kindText); err != nil {
			return err
		}
		key, err := r.text()
		if err != nil {
			return err
		}
		if err := checkKey(len(d.ChunkKeys), key); err != nil {
			return err
		}
		d.ChunkKeys = append(d.ChunkKeys, key)
		return nil
	})
}

func checkKey(i int, key string) error {
	if len(key) == 0 {
		return valueErrorf("key %d is empty", i)
	}
	if len(key) > MaxKeyBytes {
		return valueErrorf("key %d is over the limit of %d bytes", i, MaxKeyBytes)
	}
	return nil
}

func integer(r reader) (int64, error) {
	if err := want(r, kindNumber); err != nil {
		return 0, err
	}
	n, err := r.number()
	if err != nil {
		return 0, err
	}
	if !n.isInt {
		return 0, valueError("must be an integer")
	}
	return n.i, nil
}

func positive(r reader) (int64, error) {
	n, err := integer(r)
	if err == nil && n <= 0 {
		err = valueErrorf("must be positive, not %d", n)
	}
	return n, err
}

// maxCount bounds counts so that they fit an int anywhere; the limits that
// matter are far below.
const maxCount = 1<<31 - 1

func parseCount(r reader, to *int) error {
	n, err := positive(r)
	if err == nil && n > maxCount {
		err = valueErrorf("%d is too large", n)
	}
	if err != nil {
		return err
	}
	*to = int(n)
	return nil
}

func parseIndex(r reader, to *int) error {
	n, err := integer(r)
	switch {
	case err != nil:
		return err
	case n < 0:
		return valueErrorf("must not be negative: %d", n)
	case n > maxCount:
		return valueErrorf("%d is too large", n)
	}
	*to = int(n)
	return nil
}

// parseName reads one of a few names.
func parseName[T ~string](r reader, to *T, names ...T) error {
	if err := want(r, kindText); err != nil {
		return err
	}
	s, err := r.text()
	if err != nil {
		return err
	}
	for _, n := range names {
		if s == string(n) {
			*to = n
			return nil
		}
	}
	return valueErrorf("%q is none of %q", clip(s), names)
}

func parseCompute(r reader, d *Descriptor, _ *Limits) error {
	if err := want(r, kindNumber); err != nil {
		return err
	}
	n, err := r.number()
	if err != nil {
		return err
	}
	if n.f <= 0 {
		return valueErrorf("must be positive, not %v", n.f)
	}
	d.LayerComputeMicros = n.f
	return nil
}

// skipA passes over a value of kind k, checking no more than its form.
func skipA(r reader, k kind) error {
	if err := want(r, k); err != nil {
		return err
	}
	return skip(r)
}

func skip(r reader) error {
	var err error
	switch r.kind() {
	case kindObject:
		err = r.object(func(string) error { return skip(r) })
	case kindArray:
		err = r.array(func() error { return skip(r) })
	case kindText:
		_, err = r.text()
	case kindNumber:
		_, err = r.number()
	case kindBool, kindNull:
		_, err = r.literal()
	default:
		err = r.errAt("value expected")
	}
	return err
}
