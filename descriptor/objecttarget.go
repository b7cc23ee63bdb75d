package descriptor

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// ObjectTargetHeader names the memory that the bytes of one object go to (GET)
// or come from (PUT) in place of the body.
const ObjectTargetHeader = "X-Kv-Rdma-Target"

// objectTargetField is ObjectTargetHeader as errors show it.
const objectTargetField = "x-kv-rdma-target"

// Path is how the bytes of one object get between store and memory
// (ObjectCache §4.1).
type Path string

// The paths.
const (
	Direct Path = "direct" // S3RDMA Direct: nothing in between
	Buffer Path = "buffer" // S3RDMA Buffer: staged in a buffer of the server's first
)

// ObjectTarget is the value of x-kv-rdma-target: base64url, without padding, of
//
//	{"handle": "...", "offset": 0, "length": 1048576, "tag": 1, "path": "direct"}
//
// The first four are those of rdma_target and all needed. A GET writes at most
// Length bytes, from Offset on; a PUT stores exactly the Length bytes there.
// Offset counts from the first byte of the registered memory. Errors name the
// fields as those of rdma_target: "rdma_target.handle".
type ObjectTarget struct {
	Handle string
	Offset int64 // bytes
	Length int64 // bytes
	Tag    int64
	Path   Path // default Direct
}

var objectTargetFields = append(windowFields((*ObjectTarget).window), field[ObjectTarget]{"path", false,
	func(r reader, t *ObjectTarget, _ *Limits) error { return parseName(r, &t.Path, Direct, Buffer) },
	func(w writer, t *ObjectTarget) { w.text(string(t.Path)) },
	func(t *ObjectTarget) bool { return t.Path != "" }})

func (t *ObjectTarget) window() window { return window{&t.Handle, &t.Offset, &t.Length, &t.Tag} }

// complete checks t and fills in the default.
func (t *ObjectTarget) complete() error {
	if err := t.window().check(); err != nil {
		return err
	}
	switch t.Path {
	case "":
		t.Path = Direct
	case Direct, Buffer:
	default:
		return &FieldError{targetPrefix + "path", fmt.Sprintf("must be %q or %q", Direct, Buffer)}
	}
	return nil
}

// Encode gives the header's value. Its error is a *FieldError.
func (t *ObjectTarget) Encode() (string, error) {
	c := *t
	if err := c.complete(); err != nil {
		return "", err
	}
	w := newWriter(JSON, 256)
	writeObject(w, objectTargetFields, t)
	return base64.RawURLEncoding.EncodeToString(w.bytes()), nil
}

// ParseObjectTarget reads the header's value, checks it and fills in the
// default. Every error is a *FieldError. The base64url may be padded.
func ParseObjectTarget(value string) (*ObjectTarget, error) {
	b, err := decodeHeader(objectTargetField, value)
	if err != nil {
		return nil, err
	}
	t := new(ObjectTarget)
	r := newReader(JSON, string(b))
	if k := r.kind(); k != kindObject {
		return nil, &FieldError{objectTargetField, "must be a JSON object"}
	}
	err = named(objectTargetField, parseObject(r, noLimits, targetPrefix, objectTargetFields, t, r.end))
	if fe, ok := err.(*FieldError); ok && fe.Field == bodyField {
		err = &FieldError{objectTargetField, fe.Reason}
	}
	if err == nil {
		err = t.complete()
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// decodeHeader takes the base64url off a header's value.
func decodeHeader(name, value string) ([]byte, error) {
	if len(value) > MaxHeaderBytes {
		return nil, &FieldError{name, fmt.Sprintf("over the limit of %d bytes", MaxHeaderBytes)}
	}
	if strings.HasSuffix(value, "=") && len(value)%4 == 0 {
		value = strings.TrimSuffix(strings.TrimSuffix(value, "="), "=")
	}
	// The decoder would pass over line breaks, which no header can carry.
	b, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || strings.ContainsAny(value, "\r\n") {
		return nil, &FieldError{name, "not base64url"}
	}
	return b, nil
}
