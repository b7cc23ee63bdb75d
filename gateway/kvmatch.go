package gateway

import (
	"net/http"
	"strconv"

	"github.com/objcached/objcached/descriptor"
)

// kvMatch answers POST /{bucket}?kv-match: how many of these chunks, in prefix
// order, are here. The answer is JSON whatever the question's encoding.
func (g *Gateway) kvMatch(w http.ResponseWriter, r *request) error {
	var keys []string
	err := g.kvBody(r, func(enc descriptor.Encoding, body []byte) (err error) {
		keys, err = descriptor.ParseMatch(enc, body, g.cfg.KVLimits)
		return err
	})
	if err != nil {
		return err
	}
	n, err := g.store.MatchPrefix(r.Context(), r.Bucket, keys)
	if err != nil {
		return err
	}
	body := strconv.AppendInt([]byte(`{"matched":`), int64(n), 10)
	body = append(body, '}', '\n')
	h := w.Header()
	h.Set("Content-Type", descriptor.JSON.ContentType())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, err = w.Write(body)
	return err
}
