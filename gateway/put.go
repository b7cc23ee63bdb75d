package gateway

import (
	"net/http"
	"strconv"
)

// putObject stores one object from the request's body.
func (g *Gateway) putObject(w http.ResponseWriter, r *request) error {
	return g.storeObject(w, r, func() (objectBody, func(), error) {
		body, err := g.openBody(r)
		return body, nil, err
	})
}

// storeObject stores what open gives as the object that r describes, checked
// against every hash that came with it. done, if open gave one, is called when
// the body is not needed any more, also after an error.
func (g *Gateway) storeObject(w http.ResponseWriter, r *request, open func() (body objectBody, done func(), err error)) error {
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
	body, done, err := open()
	if done != nil {
		defer done()
	}
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
