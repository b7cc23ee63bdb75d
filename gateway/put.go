package gateway

import (
	"net/http"
	"strconv"
)

// putObject stores one object, checked against every hash that came with it.
func (g *Gateway) putObject(w http.ResponseWriter, r *request) error {
	if err := checkKey(r.Key); err != nil {
		return err
	}
	o, err := describe(r.Header)
	if err != nil {
		return err
	}
	if o.Cond, err = writeCondition(r.Header); err != nil {
		return err
	}
	body, err := g.openBody(r)
	if err != nil {
		return err
	}
	o.Size, o.Checksum = body.Size(), body.Sum
	oi, err := g.store.Put(r.Context(), r.Bucket, r.Key, body, o)
	if err != nil {
		return err
	}
	h := w.Header()
	h["ETag"] = []string{quote(oi.ETag)}
	setChecksum(h, oi.Checksum)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

// tooLarge says what is over the largest object.
func tooLarge(size, limit int64) error {
	return fail("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size").
		with("ProposedSize", strconv.FormatInt(size, 10)).with("MaxSizeAllowed", strconv.FormatInt(limit, 10))
}
