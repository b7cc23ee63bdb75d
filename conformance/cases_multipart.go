package conformance

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const minPart = 5 << 20

// multipartETag is the MD5 of the parts' MD5s, and their number.
func multipartETag(parts [][]byte) string {
	h := md5.New()
	for _, p := range parts {
		s := md5.Sum(p)
		h.Write(s[:])
	}
	return hex.EncodeToString(h.Sum(nil)) + "-" + strconv.Itoa(len(parts))
}

// upload stores parts under numbers 1, 3, 5… and returns what completes them.
func (e *env) uploadParts(c sdk, bucket, key, id string, parts [][]byte) []part {
	e.Helper()
	var out []part
	for i, body := range parts {
		p, err := c.PutPart(e.ctx, bucket, key, id, 2*i+1, body)
		e.ok(err)
		equal(e, "ETag of the part", p.ETag, md5Hex(body))
		out = append(out, part{2*i + 1, p.ETag, int64(len(body))})
	}
	return out
}

func multipartCases() []kase {
	return slices.Concat(
		both("multipart/CompleteMultipartUpload/whole", func(e *env, c sdk) {
			b := e.bucket()
			bodies := [][]byte{data(1, minPart), data(2, minPart+12345), data(3, 777)}
			id, err := c.CreateUpload(e.ctx, b, "big key+", describe())
			e.ok(err)
			parts := e.uploadParts(c, b, "big key+", id, bodies)
			_, err = c.Head(e.ctx, b, "big key+", getOpts{})
			e.fails(err, 404, "") // nothing is seen before completion
			tag, err := c.Complete(e.ctx, b, "big key+", id, parts)
			e.ok(err)
			equal(e, "ETag", tag, multipartETag(bodies))
			whole := bytes.Join(bodies, nil)
			g, err := c.Get(e.ctx, b, "big key+", getOpts{})
			e.ok(err)
			e.same(g.Body, whole)
			equal(e, "ETag of GET", unquote(g.Header.Get("ETag")), tag)
			equal(e, "Content-Type", g.Header.Get("Content-Type"), "application/x-kv")
			equal(e, "model", g.Header.Get("X-Amz-Meta-Model"), "llama-3.1-8b")
			// A range across the seam of two parts.
			g, err = c.Get(e.ctx, b, "big key+", getOpts{Range: fmt.Sprintf("bytes=%d-%d", minPart-10, minPart+9)})
			e.ok(err)
			e.same(g.Body, whole[minPart-10:minPart+10])
			ups, err := c.ListUploads(e.ctx, b, "")
			e.ok(err)
			equal(e, "uploads left", len(ups), 0)
		}),
		both("multipart/GetObject/part-number", func(e *env, c sdk) {
			b := e.bucket()
			bodies := [][]byte{data(1, minPart), data(2, 100)}
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			_, err = c.Complete(e.ctx, b, "k", id, e.uploadParts(c, b, "k", id, bodies))
			e.ok(err)
			// Parts are numbered anew by completion: 1..n.
			g, err := c.Get(e.ctx, b, "k", getOpts{Part: 2})
			if failureOf(err).Code == "NotImplemented" {
				e.Skip("the endpoint says that it does not serve single parts")
			}
			e.ok(err)
			e.same(g.Body, bodies[1])
			equal(e, "Content-Range", g.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", minPart, minPart+99, minPart+100))
			equal(e, "x-amz-mp-parts-count", g.Header.Get("X-Amz-Mp-Parts-Count"), "2")
			h, err := c.Head(e.ctx, b, "k", getOpts{Part: 1})
			e.ok(err)
			equal(e, "Content-Length", h.Get("Content-Length"), strconv.Itoa(minPart))
			equal(e, "x-amz-mp-parts-count of HEAD", h.Get("X-Amz-Mp-Parts-Count"), "2")
			_, err = c.Get(e.ctx, b, "k", getOpts{Part: 3})
			e.fails(err, 416, "InvalidPartNumber")
		}),
		both("multipart/HeadObject/part-number-of-a-plain-object", func(e *env, c sdk) {
			b := e.bucket()
			e.put(b, "k", data(1, 500))
			h, err := c.Head(e.ctx, b, "k", getOpts{Part: 1})
			e.ok(err)
			equal(e, "Content-Length", h.Get("Content-Length"), "500")
		}),
		both("multipart/UploadPart/replace", func(e *env, c sdk) {
			b := e.bucket()
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			_, err = c.PutPart(e.ctx, b, "k", id, 1, data(1, 100))
			e.ok(err)
			p, err := c.PutPart(e.ctx, b, "k", id, 1, data(2, 200_000))
			e.ok(err)
			_, err = c.Complete(e.ctx, b, "k", id, []part{{1, md5Hex(data(1, 100)), 100}})
			e.fails(err, 400, "InvalidPart")
			_, err = c.Complete(e.ctx, b, "k", id, []part{p})
			e.ok(err)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, data(2, 200_000))
		}),
		both("multipart/UploadPart/no-such-upload", func(e *env, c sdk) {
			b := e.bucket()
			_, err := c.PutPart(e.ctx, b, "k", "nonsense", 1, []byte("x"))
			e.fails(err, 404, "NoSuchUpload")
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			_, err = c.PutPart(e.ctx, b, "another-key", id, 1, []byte("x"))
			e.fails(err, 404, "NoSuchUpload")
		}),
		one("multipart/UploadPart/bad-number", func(e *env) {
			b := e.bucket()
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			for _, n := range []string{"0", "-1", "10001", "one", ""} {
				a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Query: "partNumber=" + n + "&uploadId=" + url.QueryEscape(id), Body: []byte("x")})
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("part number %q: %d %s, want 400 InvalidArgument", n, a.Status, a.Code)
				}
			}
			_, err = e.aws.PutPart(e.ctx, b, "k", id, 10000, []byte("x"))
			e.ok(err)
		}),
		both("multipart/UploadPartCopy/ranges", func(e *env, c sdk) {
			b := e.bucket()
			src := data(9, minPart+5000)
			e.put(b, "src", src)
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			p1, err := c.CopyPart(e.ctx, b, "k", id, 1, b, "src", 1000, minPart)
			e.ok(err)
			equal(e, "ETag", p1.ETag, md5Hex(src[1000:1000+minPart]))
			p2, err := c.CopyPart(e.ctx, b, "k", id, 2, b, "src", 0, 10)
			e.ok(err)
			p1.N, p2.N = 1, 2
			_, err = c.Complete(e.ctx, b, "k", id, []part{p1, p2})
			e.ok(err)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, append(slices.Clone(src[1000:1000+minPart]), src[:10]...))
		}),
		one("multipart/UploadPartCopy/bad-range", func(e *env) {
			b := e.bucket()
			e.put(b, "src", data(1, 100))
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			for _, r := range []string{"bytes=0-100", "bytes=200-300", "bytes=5-", "bytes=-5", "0-5"} {
				a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Query: "partNumber=1&uploadId=" + url.QueryEscape(id),
					Header: map[string]string{"X-Amz-Copy-Source": b + "/src", "X-Amz-Copy-Source-Range": r}})
				if a.Code != "InvalidArgument" && a.Code != "InvalidRange" || a.Status != 400 && a.Status != 416 {
					e.Errorf("range %q: %d %s, want InvalidArgument or InvalidRange", r, a.Status, a.Code)
				}
			}
		}),
		both("multipart/CompleteMultipartUpload/errors", func(e *env, c sdk) {
			b := e.bucket()
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			parts := e.uploadParts(c, b, "k", id, [][]byte{data(1, 1000), data(2, 1000)})
			_, err = c.Complete(e.ctx, b, "k", id, parts)
			e.fails(err, 400, "EntityTooSmall")
			_, err = c.Complete(e.ctx, b, "k", id, []part{parts[1], parts[0]})
			e.fails(err, 400, "InvalidPartOrder")
			_, err = c.Complete(e.ctx, b, "k", id, []part{parts[0], {N: 77, ETag: md5Hex(nil)}})
			e.fails(err, 400, "InvalidPart")
			_, err = c.Complete(e.ctx, b, "k", id, []part{{N: 1, ETag: md5Hex(nil)}})
			e.fails(err, 400, "InvalidPart")
			// After all that the upload is still whole and can be completed.
			_, err = c.Complete(e.ctx, b, "k", id, parts[:1])
			e.ok(err)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, data(1, 1000))
			_, err = c.Complete(e.ctx, b, "k", "nonsense", parts[:1])
			e.fails(err, 404, "NoSuchUpload")
		}),
		one("multipart/CompleteMultipartUpload/malformed", func(e *env) {
			b := e.bucket()
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			for _, doc := range []string{"", "<Complete", "<CompleteMultipartUpload></CompleteMultipartUpload>", "<CompleteMultipartUpload><Part><PartNumber>x</PartNumber></Part></CompleteMultipartUpload>"} {
				a := e.do(req{Method: "POST", Path: "/" + b + "/k", Query: "uploadId=" + url.QueryEscape(id), Body: []byte(doc)})
				if a.Status != 400 || a.Code != "MalformedXML" {
					e.Errorf("%q: %d %s, want 400 MalformedXML", doc, a.Status, a.Code)
				}
			}
		}),
		one("multipart/CompleteMultipartUpload/if-none-match", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("first"))
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			p, err := e.aws.PutPart(e.ctx, b, "k", id, 1, []byte("second"))
			e.ok(err)
			doc := `<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;` + p.ETag + `&quot;</ETag></Part></CompleteMultipartUpload>`
			a := e.do(req{Method: "POST", Path: "/" + b + "/k", Query: "uploadId=" + url.QueryEscape(id), Body: []byte(doc), Header: map[string]string{"If-None-Match": "*"}})
			e.denied(a, 412, "PreconditionFailed")
			g, err := e.aws.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("first"))
			e.accepted(e.do(req{Method: "POST", Path: "/" + b + "/k", Query: "uploadId=" + url.QueryEscape(id), Body: []byte(doc)}), 200)
		}),
		both("multipart/AbortMultipartUpload/then-gone", func(e *env, c sdk) {
			b := e.bucket()
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			_, err = c.PutPart(e.ctx, b, "k", id, 1, data(1, 100_000))
			e.ok(err)
			e.fails(c.RemoveBucket(e.ctx, b), 409, "BucketNotEmpty")
			e.ok(c.Abort(e.ctx, b, "k", id))
			_, err = c.PutPart(e.ctx, b, "k", id, 2, []byte("x"))
			e.fails(err, 404, "NoSuchUpload")
			e.fails(c.Abort(e.ctx, b, "k", id), 404, "NoSuchUpload")
			e.ok(c.RemoveBucket(e.ctx, b))
		}),
		both("multipart/ListParts/all", func(e *env, c sdk) {
			b := e.bucket()
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			want := e.uploadParts(c, b, "k", id, [][]byte{data(1, 10), data(2, 70_000), data(3, 0)})
			got, err := c.ListParts(e.ctx, b, "k", id)
			e.ok(err)
			equal(e, "parts", fmt.Sprint(got), fmt.Sprint(want))
			_, err = c.ListParts(e.ctx, b, "k", "nonsense")
			e.fails(err, 404, "NoSuchUpload")
		}),
		one("multipart/ListParts/paging", func(e *env) {
			b := e.bucket()
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			e.uploadParts(e.aws, b, "k", id, [][]byte{{1}, {2}, {3}}) // 1, 3, 5
			q := "uploadId=" + url.QueryEscape(id)
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Query: q + "&max-parts=2"})
			e.accepted(a, 200)
			for _, s := range []string{"<IsTruncated>true</IsTruncated>", "<NextPartNumberMarker>3</NextPartNumberMarker>", "<MaxParts>2</MaxParts>"} {
				if !strings.Contains(string(a.Body), s) {
					e.Errorf("first page lacks %s: %s", s, a.Body)
				}
			}
			a = e.do(req{Method: "GET", Path: "/" + b + "/k", Query: q + "&part-number-marker=3"})
			if strings.Count(string(a.Body), "<Part>") != 1 || !strings.Contains(string(a.Body), "<PartNumber>5</PartNumber>") {
				e.Errorf("second page is %s, want part 5", a.Body)
			}
		}),
		both("multipart/ListMultipartUploads/prefix", func(e *env, c sdk) {
			b := e.bucket()
			want := map[string]string{}
			for _, k := range []string{"x/1", "x/2", "y"} {
				id, err := c.CreateUpload(e.ctx, b, k, putOpts{})
				e.ok(err)
				want[k] = id
			}
			ups, err := c.ListUploads(e.ctx, b, "x/")
			e.ok(err)
			equal(e, "uploads under x/", len(ups), 2)
			for _, u := range ups {
				equal(e, "id of "+u.Key, u.ID, want[u.Key])
			}
		}),
		one("multipart/ListMultipartUploads/paging", func(e *env) {
			b := e.bucket()
			for _, k := range []string{"a", "a", "b/1", "b/2", "c"} {
				_, err := e.aws.CreateUpload(e.ctx, b, k, putOpts{})
				e.ok(err)
			}
			key, id, seen := "", "", 0
			for range 10 {
				a := e.do(req{Method: "GET", Path: "/" + b, Query: "uploads&max-uploads=1&key-marker=" + url.QueryEscape(key) + "&upload-id-marker=" + url.QueryEscape(id)})
				e.accepted(a, 200)
				seen += strings.Count(string(a.Body), "<Upload>")
				f := elements(a.Body)
				if f["IsTruncated"] != "true" {
					break
				}
				key, id = f["NextKeyMarker"], f["NextUploadIdMarker"]
			}
			equal(e, "uploads over all pages", seen, 5)
			a := e.do(req{Method: "GET", Path: "/" + b, Query: "uploads=&delimiter=%2F"})
			e.accepted(a, 200)
			if strings.Count(string(a.Body), "<Upload>") != 3 || !strings.Contains(string(a.Body), "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>") {
				e.Errorf("with a delimiter: %s", a.Body)
			}
		}),
		both("multipart/CreateMultipartUpload/two-at-once", func(e *env, c sdk) {
			b := e.bucket()
			id1, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			id2, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			p1, err := c.PutPart(e.ctx, b, "k", id1, 1, []byte("one"))
			e.ok(err)
			p2, err := c.PutPart(e.ctx, b, "k", id2, 1, []byte("two"))
			e.ok(err)
			_, err = c.Complete(e.ctx, b, "k", id2, []part{p2})
			e.ok(err)
			_, err = c.Complete(e.ctx, b, "k", id1, []part{p1})
			e.ok(err)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("one"))
		}),
		both("multipart/CreateMultipartUpload/no-bucket", func(e *env, c sdk) {
			_, err := c.CreateUpload(e.ctx, e.newName(), "k", putOpts{})
			e.fails(err, 404, "NoSuchBucket")
		}),
		one("multipart/CopyObject/of-a-multipart-object", func(e *env) {
			b := e.bucket()
			bodies := [][]byte{data(1, minPart), data(2, 33)}
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			_, err = e.aws.Complete(e.ctx, b, "k", id, e.uploadParts(e.aws, b, "k", id, bodies))
			e.ok(err)
			tag, err := e.aws.Copy(e.ctx, b, "copy", b, "k", copyOpts{})
			e.ok(err)
			whole := bytes.Join(bodies, nil)
			equal(e, "ETag of the copy", tag, md5Hex(whole))
			e.ok(e.aws.Delete(e.ctx, b, "k"))
			g, err := e.aws.Get(e.ctx, b, "copy", getOpts{})
			e.ok(err)
			e.same(g.Body, whole)
		}),
	)
}
