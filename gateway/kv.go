package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/tenant"
)

// DelivererFunc is a function as a Deliverer.
type DelivererFunc func(ctx context.Context, who *tenant.Identity, bucket string, d *descriptor.Descriptor) (Delivery, error)

// Prepare calls f.
func (f DelivererFunc) Prepare(ctx context.Context, who *tenant.Identity, bucket string, d *descriptor.Descriptor) (Delivery, error) {
	return f(ctx, who, bucket, d)
}

// kvBody reads the body of a KV request, verified, and hands it to parse, after
// which it is gone.
func (g *Gateway) kvBody(r *request, parse func(enc descriptor.Encoding, body []byte) error) error {
	contentType := r.Header.Get("Content-Type")
	enc, ok := descriptor.EncodingOf(contentType)
	if !ok {
		return invalidArgument("Content-Type", contentType, "Content-Type must be %s or %s.",
			descriptor.JSON.ContentType(), descriptor.CBOR.ContentType())
	}
	limit := g.cfg.KVLimits.BodyBytes
	release, err := g.holdBody(r, limit, 1)
	if err != nil {
		return err
	}
	defer release()
	body, err := g.readBody(r, limit)
	if errors.Is(err, errBodyTooLarge) {
		return &descriptor.FieldError{Field: "body", Reason: fmt.Sprintf("over the limit of %d bytes", limit)}
	}
	if err != nil {
		return err
	}
	return parse(enc, body)
}

// kvGet answers POST /{bucket}?kv-get, the layerwise GET.
func (g *Gateway) kvGet(w http.ResponseWriter, r *request) error {
	var d *descriptor.Descriptor
	err := g.kvBody(r, func(enc descriptor.Encoding, body []byte) (err error) {
		d, err = descriptor.Parse(enc, body, g.cfg.KVLimits)
		return err
	})
	if err != nil {
		return err
	}
	if d.Target != nil && !bodyIsSigned(r) {
		return errUnsigned("rdma_target")
	}
	return g.deliverKV(w, r, d)
}

// conditionHeaders are those by which a GET asks something of the one object
// it names. A layerwise GET names many, so that none of them can be answered.
var conditionHeaders = [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"}

// kvGetObject answers GET /{bucket}/{first chunk key} with x-kv-descriptor. A
// Range header is ignored, as HTTP allows: clients that always send one get
// the whole payload, as their x-kv-descriptor asks.
func (g *Gateway) kvGetObject(w http.ResponseWriter, r *request) error {
	values := r.Header[descriptor.HeaderName]
	name := strings.ToLower(descriptor.HeaderName)
	if len(values) != 1 {
		return &descriptor.FieldError{Field: name, Reason: "given twice"}
	}
	for _, c := range conditionHeaders {
		if r.Header.Get(c) != "" {
			return notImplemented("%s together with %s", c, name)
		}
	}
	if len(r.Header[descriptor.ObjectTargetHeader]) > 0 {
		return &descriptor.FieldError{Field: strings.ToLower(descriptor.ObjectTargetHeader), Reason: "does not go with " + name +
			", whose rdma_target says where the bytes go"}
	}
	d, err := descriptor.ParseHeader(values[0], g.cfg.KVLimits)
	if err != nil {
		return err
	}
	if d.ChunkKeys[0] != r.Key {
		return &descriptor.FieldError{Field: "chunk_keys", Reason: "the first key is not the one of the request's path"}
	}
	return g.deliverKV(w, r, d)
}

// deliverKV answers with the payload of d.
func (g *Gateway) deliverKV(w http.ResponseWriter, r *request, d *descriptor.Descriptor) error {
	switch {
	case g.deliver == nil:
		return notImplemented("the KV requests")
	case d.HasLayerOffsets:
		return notImplemented("layer_offsets").with("ArgumentName", "layer_offsets")
	}
	if d.Target != nil && g.cfg.Memory == nil {
		return &descriptor.FieldError{Field: "rdma_target.handle", Reason: "unknown: this server has no memory registered"}
	}
	y, err := g.deliver.Prepare(r.Context(), r.Identity, r.Bucket, d)
	if err != nil {
		return err
	}
	defer func() { _ = y.Close() }() // closing readers has nothing to lose
	if d.Target != nil {
		return g.deliverMemory(w, r, y, d)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(y.Size(), 10))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Kv-Matched", strconv.Itoa(y.Matched()))
	h.Set("X-Kv-Mode", y.Mode())
	if rate := y.GrantedRate(); rate > 0 {
		h.Set("X-Kv-Granted-Rate", strconv.FormatFloat(rate, 'f', 0, 64))
	}
	if y.Size() == 0 {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	// The status line goes out with the first bytes: a fault before them is
	// still answered as an error, and one after them breaks the connection.
	if err := y.WriteTo(r.Context(), w); err != nil {
		h.Del("X-Kv-Matched")
		return err
	}
	return nil
}

// kvPut answers POST /{bucket}?kv-put, which a later version serves.
func (g *Gateway) kvPut(http.ResponseWriter, *request) error { return notImplemented("kv-put") }

// uploadPartFrom answers PUT of a part with x-kv-rdma-target. Taken for an
// ordinary one it would store the empty body.
func (g *Gateway) uploadPartFrom(http.ResponseWriter, *request) error {
	return notImplemented("x-kv-rdma-target for a part")
}

// kvObjectToken answers GET and PUT of an object with x-amz-rdma-token, the
// wire of cuObject clients. They take exactly this reply as "send it again
// without"; a PUT with a token has no body, and serving it as an ordinary one
// would store nothing under the key.
func (g *Gateway) kvObjectToken(http.ResponseWriter, *request) error {
	return notImplemented("x-amz-rdma-token").header("X-Amz-Rdma-Reply", "501")
}
