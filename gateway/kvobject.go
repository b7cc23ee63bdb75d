package gateway

import (
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway/payload"
	"github.com/objcached/objcached/gateway/sigv4"
)

// Plain S3 over memory: with the header x-kv-rdma-target the bytes of one
// object go to the client's memory (GET) or come from it (PUT), and the bodies
// are empty. Everything else of the two requests holds: Range, conditions,
// metadata, checksums, the ETag.
//
// An answer tells that the bytes went by memory by x-kv-bytes, how many they
// were; a client that does not find it there has talked to another store. The
// other headers speak of the object and not of the empty body, so the answer to
// a GET says "Cache-Control: no-store" whatever the object has: a cache that
// kept it would give out an empty object. A HEAD moves no bytes and ignores
// the header.

const kvBytes = "X-Kv-Bytes"

// objectTarget reads and checks the header as far as the gateway can: what it
// makes the server do to memory must be covered by the signature, as must that
// there is no body.
func (g *Gateway) objectTarget(r *request) (*descriptor.ObjectTarget, error) {
	values := r.Header[descriptor.ObjectTargetHeader]
	name := strings.ToLower(descriptor.ObjectTargetHeader)
	bad := func(reason string) error { return &descriptor.FieldError{Field: name, Reason: reason} }
	switch {
	case len(values) != 1:
		return nil, bad("given twice")
	case r.Auth.Payload != sigv4.PayloadSigned:
		return nil, errUnsigned(name)
	case r.ContentLength != 0:
		return nil, bad("does not go with a body")
	case r.Auth.PayloadSHA256 != sha256.Sum256(nil):
		return nil, fail("XAmzContentSHA256Mismatch", "With %s x-amz-content-sha256 is that of the empty body.", name)
	}
	for _, other := range [...]string{"X-Amz-Rdma-Token", "X-Amz-Copy-Source"} {
		if len(r.Header[other]) > 0 {
			return nil, bad("does not go with " + strings.ToLower(other))
		}
	}
	t, err := descriptor.ParseObjectTarget(values[0])
	if err != nil {
		return nil, err
	}
	if g.cfg.Memory == nil {
		return nil, &descriptor.FieldError{Field: "rdma_target.handle", Reason: "unknown: this server has no memory registered"}
	}
	return t, nil
}

// getObjectInto answers GET of an object with x-kv-rdma-target. A tag is used
// up when the object has been found and the conditions hold.
func (g *Gateway) getObjectInto(w http.ResponseWriter, r *request) error {
	t, err := g.objectTarget(r)
	if err != nil {
		return err
	}
	obj, err := g.store.Open(r.Context(), r.Bucket, r.Key)
	if err != nil {
		return err
	}
	defer obj.Close()
	oi, err := obj.Info()
	if err != nil {
		return err
	}
	h := w.Header()
	s, status, err := readHead(h, r, &oi)
	if err != nil {
		return err
	}
	if status == http.StatusNotModified {
		w.WriteHeader(status)
		return nil
	}
	if s.n > t.Length {
		return &descriptor.FieldError{Field: "rdma_target.length", Reason: strconv.FormatInt(t.Length, 10) +
			" bytes do not hold the " + strconv.FormatInt(s.n, 10) + " that are asked for"}
	}
	if err := g.cfg.Memory.WriteObject(r.Context(), r.Identity, t, obj, s.off, s.n); err != nil {
		return err
	}
	h.Set(kvBytes, strconv.FormatInt(s.n, 10))
	h.Set("Content-Length", "0")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	return nil
}

// putObjectFrom answers PUT of an object with x-kv-rdma-target.
func (g *Gateway) putObjectFrom(w http.ResponseWriter, r *request) error {
	t, err := g.objectTarget(r)
	if err != nil {
		return err
	}
	return g.storeObject(w, r, func() (objectBody, func(), error) {
		src, err := g.cfg.Memory.ReadObject(r.Context(), r.Identity, t)
		if err != nil {
			return objectBody{}, nil, err
		}
		done := func() { _ = src.Close() } // closing a reader has nothing to lose
		// An error takes it off again with all that is said of the object.
		w.Header().Set(kvBytes, strconv.FormatInt(t.Length, 10))
		body, err := payload.FromMemory(r.Header, src, t.Length, g.objectOptions(r))
		return objectBody{body}, done, err
	})
}
