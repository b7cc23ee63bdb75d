package gateway

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/objcached/objcached/storage"
)

const (
	maxDeleteKeys = 1000
	// maxDeleteBody holds 1000 keys of 1024 bytes, each byte written as a
	// character reference of six bytes, and the elements around them.
	maxDeleteBody = 8 << 20
	// deleteWorkers deletes run at a time, so that they share flushes.
	deleteWorkers = 16
)

// deleteObject removes an object. One that is not there is as good as removed,
// unless the request insists on an entity tag.
func (g *Gateway) deleteObject(w http.ResponseWriter, r *request) error {
	c, err := writeCondition(r.Header)
	if err != nil {
		return err
	}
	if c.IfNoneMatch != "" {
		return notImplemented("If-None-Match on a delete")
	}
	err = g.store.Delete(r.Context(), r.Bucket, r.Key, c)
	if err != nil && (c.IfMatch != "" || !storage.IsNoSuchKey(err)) {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type deleteRequest struct {
	XMLName xml.Name
	Quiet   bool
	Objects deleteEntries `xml:"Object"`
}

type deleteEntries []deleteEntry

// UnmarshalXML implements xml.Unmarshaler for one entry.
func (l *deleteEntries) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	return decodeEntry((*[]deleteEntry)(l), maxDeleteKeys, d, start)
}

type deleteEntry struct {
	Key              *string
	VersionID        string `xml:"VersionId"`
	ETag             string
	LastModifiedTime *string
	Size             *string
}

type deleteResult struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ DeleteResult"`
	Deleted []deletedEntry
	Errors  []deleteError `xml:"Error"`
}

type deletedEntry struct {
	Key       string
	VersionID string `xml:"VersionId,omitempty"`
}

type deleteError struct {
	Key       string
	VersionID string `xml:"VersionId,omitempty"`
	Code      string
	Message   string
}

// deleteObjects removes up to a thousand objects. It answers 200 with what
// became of each; a key that was not there counts as deleted.
func (g *Gateway) deleteObjects(w http.ResponseWriter, r *request) error {
	if !hasBodyHash(r.Header) {
		return fail("InvalidRequest", "Missing required header for this request: Content-MD5 OR x-amz-checksum-*")
	}
	release, err := g.holdBody(r, maxDeleteBody, xmlCost)
	if err != nil {
		return err
	}
	defer release()
	body, err := g.readBody(r, maxDeleteBody)
	if errors.Is(err, errBodyTooLarge) {
		return malformedXML(err)
	}
	if err != nil {
		return err
	}
	var req deleteRequest
	if err := decodeXML(body, &req); err != nil {
		return err
	}
	if req.XMLName.Local != "Delete" || len(req.Objects) == 0 {
		return malformedXML(nil)
	}
	for _, o := range req.Objects {
		if o.Key == nil || *o.Key == "" {
			return malformedXML(nil)
		}
	}
	errs := make([]error, len(req.Objects))
	var group errgroup.Group
	group.SetLimit(deleteWorkers)
	for i, o := range req.Objects {
		group.Go(func() error {
			errs[i] = g.deleteOne(r.Context(), r, o)
			return nil
		})
	}
	_ = group.Wait() // the workers return nil; errs has the results
	res := deleteResult{}
	for i, o := range req.Objects {
		if errs[i] == nil {
			if !req.Quiet {
				res.Deleted = append(res.Deleted, deletedEntry{*o.Key, o.VersionID})
			}
			continue
		}
		e := toAPIError(r, errs[i])
		if e.status() >= http.StatusInternalServerError && e.Cause != nil {
			// The request's own line says 200.
			g.log.Error("delete failed", "request_id", r.ID, "bucket", r.Bucket, "key", *o.Key, "error", e.Cause)
		}
		res.Errors = append(res.Errors, deleteError{*o.Key, o.VersionID, e.Code, e.Message})
	}
	return writeXML(w, http.StatusOK, res)
}

func (g *Gateway) deleteOne(ctx context.Context, r *request, o deleteEntry) error {
	if err := checkKey(*o.Key); err != nil {
		return err
	}
	if o.VersionID != "" && o.VersionID != "null" {
		return notImplemented("VersionId in Delete")
	}
	if o.LastModifiedTime != nil || o.Size != nil {
		return notImplemented("LastModifiedTime and Size in Delete")
	}
	c := storage.Condition{IfMatch: unquote(o.ETag)}
	err := g.store.Delete(ctx, r.Bucket, *o.Key, c)
	if storage.IsNoSuchKey(err) && c.IfMatch == "" {
		return nil
	}
	return err
}
