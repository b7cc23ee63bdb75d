package gateway

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// maxCompleteBody holds 10,000 parts with ETag and checksum, in bytes.
const maxCompleteBody = 8 << 20

type createUploadResult struct {
	XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ InitiateMultipartUploadResult"`
	Bucket   string
	Key      string
	UploadID string `xml:"UploadId"`
}

func (g *Gateway) createUpload(w http.ResponseWriter, r *request) error {
	if err := checkKey(r.Key); err != nil {
		return err
	}
	o, err := describe(r.Header)
	if err != nil {
		return err
	}
	alg, typ, err := checksum.ForUpload(r.Header)
	if err != nil {
		return err
	}
	u, err := g.store.CreateUpload(r.Context(), r.Bucket, r.Key, o, alg, typ)
	if err != nil {
		return err
	}
	if alg != checksum.None {
		w.Header().Set(checksum.HeaderAlgorithm, string(alg))
		w.Header().Set(checksum.HeaderType, string(typ))
	}
	return writeXML(w, http.StatusOK, createUploadResult{Bucket: r.Bucket, Key: r.Key, UploadID: u.ID})
}

// partNumber reads the partNumber of an upload request.
func partNumber(r *request) (int, error) {
	v := r.Query.Get("partNumber")
	n, ok := digits(v)
	if !ok || n < 1 || n > maxPartNumber {
		return 0, invalidArgument("partNumber", v, "Part number must be an integer between 1 and 10000, inclusive")
	}
	return int(n), nil
}

// uploadPart stores one part. The upload is looked up before the body is
// asked for, so that a part of no upload is not sent in vain.
func (g *Gateway) uploadPart(w http.ResponseWriter, r *request) error {
	n, err := partNumber(r)
	if err != nil {
		return err
	}
	id := r.Query.Get("uploadId")
	u, err := g.store.GetUpload(r.Context(), r.Bucket, r.Key, id)
	if err != nil {
		return err
	}
	body, err := g.openPart(r, u)
	if err != nil {
		return err
	}
	o := storage.PartOptions{Size: body.Size(), Checksum: body.Computed}
	if u.Algorithm != checksum.None {
		if got := bodyAlgorithm(r.Header); got != u.Algorithm {
			return partChecksumMismatch(u.Algorithm, got)
		}
		o.Checksum = body.Sum
	}
	p, err := g.store.PutPart(r.Context(), r.Bucket, r.Key, id, n, body, o)
	if err != nil {
		return err
	}
	h := w.Header()
	h["ETag"] = []string{quote(p.ETag)}
	if !p.Checksum.IsZero() {
		h.Set(p.Checksum.Algorithm.Header(), p.Checksum.Value)
	}
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

func partChecksumMismatch(want, got checksum.Algorithm) error {
	name := "null"
	if got != checksum.None {
		name = strings.ToLower(string(got))
	}
	return fail("InvalidRequest", "Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
		strings.ToLower(string(want)), name)
}

// uploadPartCopy stores a part out of an object or a range of it.
func (g *Gateway) uploadPartCopy(w http.ResponseWriter, r *request) error {
	n, err := partNumber(r)
	if err != nil {
		return err
	}
	id := r.Query.Get("uploadId")
	u, err := g.store.GetUpload(r.Context(), r.Bucket, r.Key, id)
	if err != nil {
		return err
	}
	src, err := g.openSource(r)
	if err != nil {
		return err
	}
	defer src.obj.Close()
	s, err := copySourceRange(r.Header.Get("X-Amz-Copy-Source-Range"), src.info.Size)
	if err != nil {
		return err
	}
	if s.n > g.cfg.MaxObject {
		return tooLarge(s.n, g.cfg.MaxObject)
	}
	alg := u.Algorithm
	if alg == checksum.None {
		alg = defaultChecksum
	}
	body := g.newCopyReader(r.Context(), src.obj, s, alg)
	defer body.release()
	p, err := g.store.PutPart(r.Context(), r.Bucket, r.Key, id, n, body, storage.PartOptions{Size: s.n, Checksum: body.sum})
	if err != nil {
		return err
	}
	return writeXML(w, http.StatusOK, copyResult{
		XMLName:      xml.Name{Space: xmlNamespace, Local: "CopyPartResult"},
		LastModified: xmlTime(p.Modified), ETag: quote(p.ETag), xmlChecksum: checksumElements(p.Checksum),
	})
}

// copySourceRange reads bytes=first-last; both are required and must lie in
// the source.
func copySourceRange(v string, size int64) (span, error) {
	if v == "" {
		return span{n: size}, nil
	}
	first, last, ok := strings.Cut(strings.TrimPrefix(v, "bytes="), "-")
	a, ok1 := digits(first)
	b, ok2 := digits(last)
	if !ok || !ok1 || !ok2 || !strings.HasPrefix(v, "bytes=") || b < a {
		return span{}, invalidArgument("x-amz-copy-source-range", v,
			"The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy")
	}
	if b >= size {
		return span{}, invalidRange(v, size)
	}
	return span{off: a, n: b - a + 1}, nil
}

type completeRequest struct {
	XMLName xml.Name
	Parts   completeParts `xml:"Part"`
}

type completeParts []completePart

// UnmarshalXML implements xml.Unmarshaler for one part.
func (l *completeParts) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	return decodeEntry((*[]completePart)(l), maxPartNumber, d, start)
}

type completePart struct {
	PartNumber int
	ETag       string
	xmlChecksum
}

type completeResult struct {
	XMLName      xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUploadResult"`
	Location     string
	Bucket       string
	Key          string
	ETag         string
	ChecksumType string `xml:",omitempty"`
	xmlChecksum
}

func (g *Gateway) completeUpload(w http.ResponseWriter, r *request) error {
	var o storage.CompleteOptions
	var err error
	if o.Cond, err = writeCondition(r.Header); err != nil {
		return err
	}
	if o.Checksum, err = expectedChecksum(r.Header); err != nil {
		return err
	}
	if v := r.Header.Get("X-Amz-Mp-Object-Size"); v != "" {
		n, ok := digits(v)
		if !ok || n == 0 {
			return invalidArgument("x-amz-mp-object-size", v, "x-amz-mp-object-size must be a positive integer")
		}
		o.Size = n
	}
	parts, err := g.completedParts(r)
	if err != nil {
		return err
	}
	oi, err := g.store.CompleteUpload(r.Context(), r.Bucket, r.Key, r.Query.Get("uploadId"), parts, o)
	if err != nil {
		return err
	}
	return writeXML(w, http.StatusOK, completeResult{
		Location: location(r), Bucket: r.Bucket, Key: r.Key, ETag: quote(oi.ETag),
		ChecksumType: string(oi.Checksum.Type), xmlChecksum: checksumElements(oi.Checksum),
	})
}

// completedParts reads the list of parts.
func (g *Gateway) completedParts(r *request) ([]storage.CompletedPart, error) {
	release, err := g.holdBody(r, maxCompleteBody, xmlCost)
	if err != nil {
		return nil, err
	}
	defer release()
	body, err := g.readDocument(r, maxCompleteBody)
	if errors.Is(err, errBodyTooLarge) {
		return nil, malformedXML(err)
	}
	if err != nil {
		return nil, err
	}
	var req completeRequest
	if err := decodeXML(body, &req); err != nil {
		return nil, err
	}
	if req.XMLName.Local != "CompleteMultipartUpload" || len(req.Parts) == 0 {
		return nil, malformedXML(nil)
	}
	parts := make([]storage.CompletedPart, len(req.Parts))
	for i, p := range req.Parts {
		if p.PartNumber < 1 || p.PartNumber > maxPartNumber {
			return nil, invalidArgument("PartNumber", strconv.Itoa(p.PartNumber), "Part number must be an integer between 1 and 10000, inclusive")
		}
		parts[i] = storage.CompletedPart{Number: p.PartNumber, ETag: unquote(p.ETag)}
		for _, a := range checksum.Algorithms {
			v := *p.field(a)
			if v == "" {
				continue
			}
			if !parts[i].Checksum.IsZero() {
				return nil, fail("InvalidRequest", "A part has more than one checksum.")
			}
			parts[i].Checksum = checksum.Sum{Algorithm: a, Value: v}
		}
	}
	return parts, nil
}

// expectedChecksum reads the checksum that the client expects of the whole
// object. On this request the x-amz-checksum headers do not speak of the body.
func expectedChecksum(h http.Header) (checksum.Sum, error) {
	var s checksum.Sum
	for _, a := range checksum.Algorithms {
		v := h.Get(a.Header())
		if v == "" {
			continue
		}
		if !s.IsZero() {
			return s, fail("InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum types are not allowed.")
		}
		s = checksum.Sum{Algorithm: a, Value: v}
	}
	if v := h.Get(checksum.HeaderType); v != "" {
		t, ok := checksum.ParseType(v)
		if !ok {
			return s, fail("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
		}
		s.Type = t
	}
	return s, nil
}

// location is the URL of the object a request made.
func location(r *request) string {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host + r.URL.EscapedPath()
}

func (g *Gateway) abortUpload(w http.ResponseWriter, r *request) error {
	if err := g.store.AbortUpload(r.Context(), r.Bucket, r.Key, r.Query.Get("uploadId")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
