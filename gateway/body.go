package gateway

import (
	"errors"
	"io"
	"net/http"

	"github.com/objcached/objcached/checksum"
)

// errBodyTooLarge says that a request body is longer than its operation allows.
var errBodyTooLarge = errors.New("request body too large")

type objectBody struct {
	io.Reader
	size int64
}

func (b *objectBody) Size() int64                   { return b.size }
func (b *objectBody) Sum() checksum.Sum             { return checksum.Sum{} }
func (b *objectBody) Algorithm() checksum.Algorithm { return checksum.None }

func (g *Gateway) openBody(r *request) (*objectBody, error) {
	if r.ContentLength < 0 {
		return nil, fail("MissingContentLength", "You must provide the Content-Length HTTP header.")
	}
	if r.ContentLength > g.cfg.MaxObject {
		return nil, tooLarge(r.ContentLength, g.cfg.MaxObject)
	}
	return &objectBody{r.Body, r.ContentLength}, nil
}

// readBody returns the whole body, checked against every hash and checksum it
// came with, or errBodyTooLarge if it has more than limit bytes.
func (g *Gateway) readBody(r *request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errBodyTooLarge
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errBodyTooLarge
	}
	return b, err
}

func (g *Gateway) readDocument(r *request, limit int64) ([]byte, error) { return g.readBody(r, limit) }

// hasBodyHash reports whether a request names a hash of its body besides the
// one that is signed.
func hasBodyHash(h http.Header) bool {
	if h.Get("Content-Md5") != "" || h.Get("X-Amz-Trailer") != "" {
		return true
	}
	for _, a := range checksum.Algorithms {
		if h.Get(a.Header()) != "" {
			return true
		}
	}
	return false
}
