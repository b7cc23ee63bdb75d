package gateway

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/gateway/payload"
	"github.com/objcached/objcached/storage"
)

// errBodyTooLarge says that a request body is longer than its operation allows.
var errBodyTooLarge = errors.New("request body too large")

// maxBodies bounds the memory, in bytes, that the request bodies read whole (KV
// requests and XML documents) take at one time, from their first byte until
// they are parsed.
const maxBodies = 256 << 20

// xmlCost is how many bytes a document may take in memory for each of its own:
// an empty attribute of five bytes becomes a name, a value and their slices.
const xmlCost = 16

// bodyBudget counts that memory.
type bodyBudget struct{ held atomic.Int64 }

// take reserves n bytes; the caller gives them back.
func (b *bodyBudget) take(n int64) bool {
	if b.held.Add(n) > maxBodies {
		b.held.Add(-n)
		return false
	}
	return true
}

func (b *bodyBudget) give(n int64) { b.held.Add(-n) }

// holdBody reserves cost bytes for each byte of a body of at most limit bytes,
// until release.
func (g *Gateway) holdBody(r *request, limit, cost int64) (release func(), err error) {
	n := limit
	if r.ContentLength >= 0 {
		n = min(n, r.ContentLength)
	}
	n *= cost
	if !g.bodies.take(n) {
		g.metrics.slowDowns.Inc()
		return nil, slowDown("too many bytes of request bodies are held at one time")
	}
	return func() { g.bodies.give(n) }, nil
}

// openPart returns the bytes of a part, without their framing and held to
// every hash they came with. For an upload that asked for no checksum the
// default is computed besides.
func (g *Gateway) openPart(r *request, u storage.Upload) (*payload.Body, error) {
	o := payload.Options{MaxSize: g.cfg.MaxObject}
	if u.Algorithm == checksum.None {
		o.Compute = defaultChecksum
	}
	return payload.New(r.Request, r.Auth, o)
}

// defaultChecksum is kept of what a client sends without one, as S3 does.
const defaultChecksum = checksum.CRC64NVME

// objectBody is the body of an object, which has one checksum: the one it came
// with, or the default.
type objectBody struct{ *payload.Body }

// openBody returns the bytes of an object, without their framing and held to
// every hash they came with.
func (g *Gateway) openBody(r *request) (objectBody, error) {
	b, err := payload.New(r.Request, r.Auth, g.objectOptions(r))
	return objectBody{b}, err
}

func (g *Gateway) objectOptions(r *request) payload.Options {
	o := payload.Options{MaxSize: g.cfg.MaxObject}
	if bodyAlgorithm(r.Header) == checksum.None {
		o.Compute = defaultChecksum
	}
	return o
}

// Sum is the checksum to keep with the object, once Read has given io.EOF.
func (b objectBody) Sum() checksum.Sum {
	if s := b.Body.Sum(); !s.IsZero() {
		return s
	}
	return b.Computed()
}

// readBody returns the whole body, checked against every hash and checksum it
// came with, or errBodyTooLarge if it has more than limit bytes.
func (g *Gateway) readBody(r *request, limit int64) ([]byte, error) {
	return readWhole(r, limit, payload.Options{})
}

// readDocument is readBody for a request whose x-amz-checksum headers speak of
// an object and not of the body.
func (g *Gateway) readDocument(r *request, limit int64) ([]byte, error) {
	return readWhole(r, limit, payload.Options{ObjectChecksum: true})
}

func readWhole(r *request, limit int64, o payload.Options) ([]byte, error) {
	b, err := payload.New(r.Request, r.Auth, o)
	if err != nil {
		return nil, err
	}
	if b.Size() > limit {
		return nil, errBodyTooLarge
	}
	return b.ReadAll(limit)
}

// bodyAlgorithm is the checksum that a request carries for its body, in a
// header or a trailer. Whether there is just one, payload.New has checked.
func bodyAlgorithm(h http.Header) checksum.Algorithm {
	for _, a := range checksum.Algorithms {
		if len(h[a.Header()]) > 0 {
			return a
		}
	}
	return checksum.FromHeaderName(strings.TrimSpace(h.Get("X-Amz-Trailer")))
}

// hasBodyHash reports whether a request names a hash of its body besides the
// one that is signed.
func hasBodyHash(h http.Header) bool {
	return h.Get("Content-Md5") != "" || bodyAlgorithm(h) != checksum.None
}
