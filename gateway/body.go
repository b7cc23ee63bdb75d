package gateway

import (
	"errors"
	"io"
)

// errBodyTooLarge says that a request body is longer than its operation allows.
var errBodyTooLarge = errors.New("request body too large")

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
