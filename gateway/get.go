package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// getObject sends an object or a range of it. The object is pinned for the
// whole answer, so an overwrite or delete meanwhile changes nothing of it.
func (g *Gateway) getObject(w http.ResponseWriter, r *request) error {
	obj, err := g.store.Open(r.Context(), r.Bucket, r.Key)
	if err != nil {
		return err
	}
	defer obj.Close()
	oi, err := obj.Info()
	if err != nil {
		return err
	}
	s, status, err := readHead(w.Header(), r, &oi)
	if err != nil {
		return err
	}
	if status == http.StatusNotModified || s.n == 0 {
		w.WriteHeader(status)
		return nil
	}
	return g.sendObject(w, r, obj, s, status)
}

// headObject is getObject without the bytes.
func (g *Gateway) headObject(w http.ResponseWriter, r *request) error {
	oi, err := g.store.Stat(r.Context(), r.Bucket, r.Key)
	if err != nil {
		return err
	}
	_, status, err := readHead(w.Header(), r, &oi)
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	return nil
}

// readHead evaluates the conditions and the range of a read and sets the
// headers of its answer.
func readHead(h http.Header, r *request, oi *storage.ObjectInfo) (span, int, error) {
	overrides, err := responseOverrides(r)
	if err != nil {
		return span{}, 0, err
	}
	c := conditionsOf(r.Header, "")
	v, failed := c.check(oi)
	if v == preconditionFailed {
		return span{}, 0, conditionFailed(failed)
	}
	h["ETag"] = []string{quote(oi.ETag)}
	h.Set("Last-Modified", oi.Modified.UTC().Format(http.TimeFormat))
	if v == notModified {
		for _, name := range [...]string{"Cache-Control", "Expires"} {
			if x := oi.Headers[name]; x != "" {
				h.Set(name, x)
			}
		}
		return span{}, http.StatusNotModified, nil
	}
	sum := oi.Checksum
	var s span
	if r.has("partNumber") {
		if s, sum, err = partRange(r, oi); err != nil {
			return span{}, 0, err
		}
		if oi.Parts > 0 {
			h.Set("X-Amz-Mp-Parts-Count", strconv.Itoa(oi.Parts))
		}
	} else {
		if s, err = rangeOf(r.Header, oi); err != nil {
			return span{}, 0, err
		}
		if s.part {
			sum = checksum.Sum{} // one of the whole, on a part of it, makes clients fail
		}
	}
	setObjectHeaders(h, oi)
	setTagCount(h, oi)
	for name, value := range overrides {
		h.Set(name, value)
	}
	if strings.EqualFold(r.Header.Get(checksum.HeaderMode), "ENABLED") {
		setChecksum(h, sum)
	}
	h.Set("Content-Length", strconv.FormatInt(s.n, 10))
	if s.part {
		if s.n > 0 {
			h.Set("Content-Range", s.contentRange(oi.Size))
		}
		return s, http.StatusPartialContent, nil
	}
	return s, http.StatusOK, nil
}

// partRange answers partNumber: where that part lies, and its checksum. An
// object that was put in one piece is its own first part.
func partRange(r *request, oi *storage.ObjectInfo) (span, checksum.Sum, error) {
	v := r.Query.Get("partNumber")
	n, ok := digits(v)
	if !ok || n < 1 || n > maxPartNumber {
		return span{}, checksum.Sum{}, invalidArgument("partNumber", v, "Part number must be an integer between 1 and 10000, inclusive")
	}
	if r.Header.Get("Range") != "" {
		return span{}, checksum.Sum{}, fail("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
	}
	p, ok := oi.Part(int(n))
	if !ok {
		return span{}, checksum.Sum{}, fail("InvalidPartNumber", "The requested partnumber is not satisfiable").
			with("PartNumberRequested", v).with("ActualPartCount", strconv.Itoa(max(oi.Parts, 1)))
	}
	return span{p.Offset, p.Size, true}, p.Checksum, nil
}

// setObjectHeaders puts on an answer what was stored beside the bytes.
func setObjectHeaders(h http.Header, oi *storage.ObjectInfo) {
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "binary/octet-stream")
	for name, value := range oi.Headers {
		h.Set(name, value)
	}
	for name, value := range oi.UserMeta {
		h.Set("X-Amz-Meta-"+name, value)
	}
	if oi.Chain.Index >= 0 {
		h.Set("X-Kv-Index", strconv.FormatInt(oi.Chain.Index, 10))
		if oi.Chain.Parent != "" {
			h.Set("X-Kv-Parent", oi.Chain.Parent)
		}
	}
}

// overrideHeaders are the query parameters by which a signed request chooses
// headers of its answer.
var overrideHeaders = map[string]string{
	"response-cache-control":       "Cache-Control",
	"response-content-disposition": "Content-Disposition",
	"response-content-encoding":    "Content-Encoding",
	"response-content-language":    "Content-Language",
	"response-content-type":        "Content-Type",
	"response-expires":             "Expires",
}

func responseOverrides(r *request) (map[string]string, error) {
	var out map[string]string
	for param, header := range overrideHeaders {
		if !r.has(param) {
			continue
		}
		v := r.Query.Get(param)
		if hasControl(v) {
			return nil, invalidArgument(param, v, "The value of %s holds a control character", param)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[header] = v
	}
	return out, nil
}

// hasControl reports whether v could not be the value of a header.
func hasControl(v string) bool {
	return strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// sendObject writes s of obj in pieces that start and end on block boundaries,
// so that no block outside the range is read and none is read twice. The first
// piece is read before the status line goes out: an object that is damaged
// where it is asked for is an error document, and only damage further on has
// to break the connection.
func (g *Gateway) sendObject(w http.ResponseWriter, r *request, obj storage.Object, s span, status int) error {
	bufp := g.buffers.Get().(*[]byte)
	defer g.buffers.Put(bufp)
	ctx, size := r.Context(), obj.Size()
	end := s.off + s.n
	for at := s.off - s.off%storage.BlockSize; at < end; at += pieceSize {
		stop := min(at+pieceSize, roundUp(end, storage.BlockSize), size)
		piece := (*bufp)[:stop-at]
		if err := obj.ReadAt(ctx, piece, at, storage.ReadHint{Class: storage.ClassPlain}); err != nil {
			return err
		}
		if status != 0 {
			w.WriteHeader(status)
			status = 0
		}
		if _, err := w.Write(piece[max(s.off-at, 0) : min(end, stop)-at]); err != nil {
			return err
		}
	}
	return nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
