package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway/sigv4"
)

// bodyIsSigned reports whether the signature covers the request's body. What
// makes the server write to memory must not be changed on its way.
func bodyIsSigned(r *request) bool {
	return r.Auth.Payload != sigv4.PayloadUnsigned && r.Auth.Payload != sigv4.PayloadUnsignedTrailer
}

func errUnsigned(what string) error {
	return fail("AccessDenied", "%s needs a signed payload.", what)
}

// kvRegister answers POST /?kv-register: the steps by which a client proves
// that memory is its own. Ids, handles and nonces are in no error.
func (g *Gateway) kvRegister(w http.ResponseWriter, r *request) error {
	if !bodyIsSigned(r) {
		return errUnsigned("kv-register")
	}
	var q *descriptor.Register
	err := g.kvBody(r, func(enc descriptor.Encoding, body []byte) (err error) {
		q, err = descriptor.ParseRegister(enc, body, g.cfg.KVLimits)
		return err
	})
	offered := []descriptor.Provider{} // not null in JSON
	if g.cfg.Memory != nil {
		offered = append(offered, g.cfg.Memory.Providers()...)
	}
	switch {
	case err != nil:
		return err
	case q.Providers:
		return writeJSON(w, descriptor.Providers{Providers: offered})
	case q.Provider != "" && !slices.ContainsFunc(offered, func(p descriptor.Provider) bool { return p.Provider == q.Provider }):
		return notImplemented("the provider %.32q", q.Provider).with("ArgumentName", "provider")
	case g.cfg.Memory == nil && q.Handle != "":
		return &descriptor.FieldError{Field: "handle", Reason: "unknown"}
	case g.cfg.Memory == nil:
		return &descriptor.FieldError{Field: "id", Reason: "unknown"}
	}
	a, err := g.cfg.Memory.Register(r.Context(), r.Identity, q)
	if err != nil {
		return err
	}
	return writeJSON(w, a)
}

// deliverMemory answers a layerwise GET with a target: no status line before
// the last layer or the failure.
func (g *Gateway) deliverMemory(w http.ResponseWriter, r *request, y Delivery, d *descriptor.Descriptor) error {
	sum, err := g.cfg.Memory.Deliver(r.Context(), r.Identity, y, d)
	if err != nil {
		w.Header().Set("X-Kv-Layers-Ready", strconv.Itoa(len(sum.PerLayerMicros)))
		return err
	}
	w.Header().Set("X-Kv-Matched", strconv.Itoa(sum.Matched))
	w.Header().Set("X-Kv-Mode", sum.Mode)
	return writeJSON(w, sum)
}

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, err = w.Write(body)
	return err
}
