package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCopy(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.bucket(t, "other")
	body := content(3, 3*pieceSize+17)
	const key = "dir/a b+c%2F€"
	etag := h.put(t, "/box/"+uriEncode(key, true), body, "Content-Type", "a/b", "x-amz-meta-color", "blue",
		"x-amz-checksum-crc32", crcOf(body), "x-kv-parent", "p", "x-kv-index", "4")
	forms := []string{
		"box/" + uriEncode(key, true), "/box/" + uriEncode(key, true), uriEncode("box/"+key, false),
		uriEncode("/box/"+key, false), "/box/" + uriEncode(key, true) + "?versionId=null",
	}
	for i, from := range forms {
		target := fmt.Sprintf("/other/copy%d", i)
		a := h.want(t, 200, wireRequest{method: "PUT", target: target, header: map[string]string{"x-amz-copy-source": from}})
		if element(a.body, "ETag") != "&#34;"+strings.Trim(etag, `"`)+"&#34;" || element(a.body, "ChecksumCRC32") != crcOf(body) {
			t.Errorf("%s: %s", from, a.body)
		}
		got := h.want(t, 200, wireRequest{method: "GET", target: target, header: map[string]string{"x-amz-checksum-mode": "ENABLED"}})
		if !bytes.Equal(got.body, body) {
			t.Fatalf("%s: other bytes", from)
		}
		for name, want := range map[string]string{"Content-Type": "a/b", "x-amz-meta-color": "blue", "x-kv-parent": "p",
			"x-kv-index": "4", "x-amz-checksum-crc32": crcOf(body), "ETag": etag} {
			if got.Header.Get(name) != want {
				t.Errorf("%s: %s %q, want %q", from, name, got.Header.Get(name), want)
			}
		}
	}
	source := forms[0]
	replace := map[string]string{"x-amz-copy-source": source, "x-amz-metadata-directive": "REPLACE", "x-amz-meta-shape": "round", "Content-Type": "c/d",
		"x-amz-checksum-algorithm": "SHA256"}
	h.want(t, 200, wireRequest{method: "PUT", target: "/other/replaced", header: replace})
	a := h.want(t, 200, wireRequest{method: "GET", target: "/other/replaced", header: map[string]string{"x-amz-checksum-mode": "ENABLED"}})
	if a.Header.Get("Content-Type") != "c/d" || a.Header.Get("x-amz-meta-shape") != "round" || a.Header.Get("x-amz-meta-color") != "" ||
		a.Header.Get("x-amz-checksum-sha256") == "" || !bytes.Equal(a.body, body) {
		t.Errorf("REPLACE: %v", a.Header)
	}
	// Onto itself only with REPLACE.
	self := "/box/" + uriEncode(key, true)
	h.wantCode(t, "InvalidRequest", wireRequest{method: "PUT", target: self, header: map[string]string{"x-amz-copy-source": source}})
	h.want(t, 200, wireRequest{method: "PUT", target: self, header: replace})
	if a := h.want(t, 200, wireRequest{method: "GET", target: self}); !bytes.Equal(a.body, body) || a.Header.Get("Content-Type") != "c/d" {
		t.Errorf("copy onto itself: %v", a.Header)
	}
	for _, c := range []struct {
		code string
		hdr  map[string]string
	}{
		{"InvalidArgument", map[string]string{"x-amz-copy-source": "nothing"}},
		{"InvalidArgument", map[string]string{"x-amz-copy-source": "/box/"}},
		{"InvalidArgument", map[string]string{"x-amz-copy-source": "box/%zz"}},
		{"NotImplemented", map[string]string{"x-amz-copy-source": "box/k?versionId=abc"}},
		{"NotImplemented", map[string]string{"x-amz-copy-source": "arn:aws:s3:region:1:accesspoint/x/object/k"}},
		{"NoSuchKey", map[string]string{"x-amz-copy-source": "box/none"}},
		{"NoSuchBucket", map[string]string{"x-amz-copy-source": "nobox/none"}},
		{"InvalidArgument", map[string]string{"x-amz-copy-source": source, "x-amz-metadata-directive": "KEEP"}},
		{"InvalidArgument", map[string]string{"x-amz-copy-source": source, "x-amz-tagging-directive": "MERGE"}},
		{"AccessDenied", map[string]string{"x-amz-copy-source": source, "x-amz-source-expected-bucket-owner": "x"}},
		{"PreconditionFailed", map[string]string{"x-amz-copy-source": source, "x-amz-copy-source-if-match": `"x"`}},
		{"PreconditionFailed", map[string]string{"x-amz-copy-source": source, "x-amz-copy-source-if-none-match": etag}},
		{"PreconditionFailed", map[string]string{"x-amz-copy-source": source, "x-amz-copy-source-if-modified-since": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}},
		{"PreconditionFailed", map[string]string{"x-amz-copy-source": source, "x-amz-copy-source-if-unmodified-since": time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}},
		{"InvalidRequest", map[string]string{"x-amz-copy-source": source, "x-amz-checksum-algorithm": "MD4"}},
	} {
		h.wantCode(t, c.code, wireRequest{method: "PUT", target: "/other/refused", header: c.hdr})
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/other/refused"})
	h.wantCode(t, "PreconditionFailed", wireRequest{method: "PUT", target: "/other/copy0", header: map[string]string{"x-amz-copy-source": source, "If-None-Match": "*"}})
}

// TestMultipartOnTheWire walks through what the SDKs do not do by themselves.
func TestMultipartOnTheWire(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	src := content(5, 6<<20)
	h.put(t, "/box/src", src)
	begin := func(kv ...string) string {
		t.Helper()
		hd := map[string]string{"x-amz-meta-color": "blue", "x-kv-index": "0"}
		for i := 0; i < len(kv); i += 2 {
			hd[kv[i]] = kv[i+1]
		}
		return element(h.want(t, 200, wireRequest{method: "POST", target: "/box/mp?uploads", header: hd}).body, "UploadId")
	}
	id := begin()
	part := func(n int) string { return fmt.Sprintf("/box/mp?partNumber=%d&uploadId=%s", n, id) }
	// A part out of a range, and one out of a body.
	a := h.want(t, 200, wireRequest{method: "PUT", target: part(1), header: map[string]string{
		"x-amz-copy-source": "box/src", "x-amz-copy-source-range": fmt.Sprintf("bytes=%d-%d", 1000, 1000+5<<20)}})
	tag1 := strings.ReplaceAll(element(a.body, "ETag"), "&#34;", `"`)
	tail := content(6, 70000)
	tag2 := h.want(t, 200, wireRequest{method: "PUT", target: part(10000), body: tail}).Header.Get("ETag")
	for _, c := range []struct {
		code string
		q    wireRequest
	}{
		{"InvalidArgument", wireRequest{target: part(0)}}, {"InvalidArgument", wireRequest{target: part(10001)}},
		{"InvalidArgument", wireRequest{target: strings.Replace(part(1), "partNumber=1", "partNumber=x", 1)}},
		{"NoSuchUpload", wireRequest{target: "/box/mp?partNumber=1&uploadId=none"}},
		{"NoSuchUpload", wireRequest{target: "/box/otherkey?partNumber=1&uploadId=" + id}},
		{"InvalidArgument", wireRequest{target: part(2), header: map[string]string{"x-amz-copy-source": "box/src", "x-amz-copy-source-range": "bytes=5-"}}},
		{"InvalidArgument", wireRequest{target: part(2), header: map[string]string{"x-amz-copy-source": "box/src", "x-amz-copy-source-range": "0-5"}}},
		{"InvalidArgument", wireRequest{target: part(2), header: map[string]string{"x-amz-copy-source": "box/src", "x-amz-copy-source-range": "bytes=5-2"}}},
		{"InvalidRange", wireRequest{target: part(2), header: map[string]string{"x-amz-copy-source": "box/src", "x-amz-copy-source-range": "bytes=0-99999999999"}}},
		{"BadDigest", wireRequest{target: part(2), body: []byte("x"), header: map[string]string{"x-amz-checksum-crc32": "AAAAAA=="}}},
	} {
		c.q.method = "PUT"
		h.wantCode(t, c.code, c.q)
	}
	a = h.want(t, 200, wireRequest{method: "GET", target: "/box/mp?max-parts=1&uploadId=" + id})
	if element(a.body, "PartNumber") != "1" || element(a.body, "IsTruncated") != "true" || element(a.body, "NextPartNumberMarker") != "1" {
		t.Errorf("first page of parts: %s", a.body)
	}
	a = h.want(t, 200, wireRequest{method: "GET", target: "/box/mp?part-number-marker=1&uploadId=" + id})
	if element(a.body, "PartNumber") != "10000" || element(a.body, "IsTruncated") != "false" {
		t.Errorf("second page of parts: %s", a.body)
	}
	h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/box/mp?part-number-marker=x&uploadId=" + id})
	a = h.want(t, 200, wireRequest{method: "GET", target: "/box?uploads&prefix=m"})
	if element(a.body, "UploadId") != id || element(a.body, "Key") != "mp" {
		t.Errorf("uploads: %s", a.body)
	}
	h.wantCode(t, "BucketNotEmpty", wireRequest{method: "DELETE", target: "/box"})

	list := func(parts ...string) []byte {
		var b strings.Builder
		b.WriteString("<CompleteMultipartUpload>")
		for i := 0; i < len(parts); i += 2 {
			fmt.Fprintf(&b, "<Part><PartNumber>%s</PartNumber><ETag>%s</ETag></Part>", parts[i], parts[i+1])
		}
		return []byte(b.String() + "</CompleteMultipartUpload>")
	}
	complete := "/box/mp?uploadId=" + id
	for _, c := range []struct {
		code string
		q    wireRequest
	}{
		{"MalformedXML", wireRequest{body: []byte("<x/>")}}, {"MalformedXML", wireRequest{body: list()}}, {"MalformedXML", wireRequest{body: nil}},
		{"InvalidPart", wireRequest{body: list("1", `"0123456789abcdef0123456789abcdef"`)}},
		{"InvalidPart", wireRequest{body: list("1", tag1, "2", tag2)}},
		{"InvalidPartOrder", wireRequest{body: list("10000", tag2, "1", tag1)}},
		{"InvalidArgument", wireRequest{body: list("0", tag1)}},
		{"InvalidRequest", wireRequest{body: list("1", tag1), header: map[string]string{"x-amz-mp-object-size": "7"}}},
		{"InvalidArgument", wireRequest{body: list("1", tag1), header: map[string]string{"x-amz-mp-object-size": "-7"}}},
		{"InvalidRequest", wireRequest{body: list("1", tag1), header: map[string]string{"x-amz-checksum-crc32": "AAAAAA=="}}},
		{"NoSuchUpload", wireRequest{target: "/box/mp?uploadId=none", body: list("1", tag1)}},
	} {
		c.q.method = "POST"
		if c.q.target == "" {
			c.q.target = complete
		}
		h.wantCode(t, c.code, c.q)
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/box/mp"})
	a = h.want(t, 200, wireRequest{method: "POST", target: complete, body: list("1", tag1, "10000", strings.Trim(tag2, `"`)),
		header: map[string]string{"If-None-Match": "*"}})
	if element(a.body, "Location") != h.url+"/box/mp" {
		t.Errorf("Location: %s", a.body)
	}
	got := h.want(t, 200, wireRequest{method: "GET", target: "/box/mp"})
	if want := append(bytes.Clone(src[1000:1000+5<<20+1]), tail...); !bytes.Equal(got.body, want) {
		t.Errorf("%d bytes came back, want %d: or they differ", len(got.body), len(want))
	}
	if got.Header.Get("x-amz-meta-color") != "blue" || got.Header.Get("x-kv-index") != "0" || !strings.HasSuffix(got.Header.Get("ETag"), `-2"`) {
		t.Errorf("headers: %v", got.Header)
	}
	// Once more, as by a client that lost the answer; with other parts it is no repetition.
	again := wireRequest{method: "POST", target: complete, body: list("1", tag1, "10000", tag2)}
	if a := h.want(t, 200, again); quote(strings.Trim(got.Header.Get("ETag"), `"`)) != strings.ReplaceAll(element(a.body, "ETag"), "&#34;", `"`) {
		t.Errorf("completed again: %s", a.body)
	}
	again.body = list("1", tag1)
	h.wantCode(t, "NoSuchUpload", again)
	id = begin()
	h.want(t, 200, wireRequest{method: "PUT", target: part(1), body: tail})
	h.wantCode(t, "PreconditionFailed", wireRequest{method: "POST", target: "/box/mp?uploadId=" + id, body: list("1", tag2), header: map[string]string{"If-None-Match": "*"}})
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box/mp?uploadId=" + id})
	h.wantCode(t, "NoSuchUpload", wireRequest{method: "DELETE", target: "/box/mp?uploadId=" + id})
	for _, hd := range []map[string]string{
		{"x-amz-checksum-algorithm": "MD4"}, {"x-amz-checksum-algorithm": "SHA1", "x-amz-checksum-type": "FULL_OBJECT"}, {"x-amz-checksum-type": "COMPOSITE"},
	} {
		h.wantCode(t, "InvalidRequest", wireRequest{method: "POST", target: "/box/mp?uploads", header: hd})
	}
	// A full-object checksum over parts, expected and found.
	id = begin("x-amz-checksum-algorithm", "CRC32", "x-amz-checksum-type", "FULL_OBJECT")
	h.wantCode(t, "InvalidRequest", wireRequest{method: "PUT", target: part(1), body: tail})
	tag := h.want(t, 200, wireRequest{method: "PUT", target: part(1), body: tail, header: map[string]string{"x-amz-checksum-crc32": crcOf(tail)}}).Header.Get("ETag")
	full := wireRequest{method: "POST", target: "/box/mp?uploadId=" + id, body: list("1", tag), header: map[string]string{"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-type": "FULL_OBJECT"}}
	h.wantCode(t, "BadDigest", full)
	full.header["x-amz-checksum-crc32"] = crcOf(tail)
	a = h.want(t, 200, full)
	if element(a.body, "ChecksumCRC32") != crcOf(tail) || element(a.body, "ChecksumType") != "FULL_OBJECT" {
		t.Errorf("complete: %s", a.body)
	}
}

func TestDeleteObjects(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	etags := map[string]string{}
	for _, k := range []string{"a", "b", "c<&>", "d"} {
		etags[k] = h.put(t, "/box/"+uriEncode(k, true), []byte(k))
	}
	del := func(doc string) wireRequest {
		return wireRequest{method: "POST", target: "/box?delete", body: []byte(doc), header: map[string]string{"x-amz-checksum-crc32": crcOf([]byte(doc))}}
	}
	a := h.want(t, 200, del(`<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a</Key></Object><Object><Key>none</Key></Object>`+
		`<Object><Key>c&lt;&amp;&gt;</Key></Object><Object><Key>d</Key><ETag>"0123456789abcdef0123456789abcdef"</ETag></Object>`+
		`<Object><Key>d</Key><VersionId>v</VersionId></Object></Delete>`))
	doc := string(a.body)
	for _, want := range []string{"<Deleted><Key>a</Key></Deleted>", "<Deleted><Key>none</Key></Deleted>", "<Deleted><Key>c&lt;&amp;&gt;</Key></Deleted>",
		"<Error><Key>d</Key><Code>PreconditionFailed</Code>", "<Error><Key>d</Key><VersionId>v</VersionId><Code>NotImplemented</Code>"} {
		if !strings.Contains(doc, want) {
			t.Errorf("no %s in %s", want, doc)
		}
	}
	a = h.want(t, 200, del(`<Delete><Quiet>true</Quiet><Object><Key>d</Key><ETag>`+etags["d"]+`</ETag></Object></Delete>`))
	if strings.Contains(string(a.body), "<Key>") {
		t.Errorf("quiet: %s", a.body)
	}
	if got := h.listAll(t, "box", ""); len(got) != 1 || got[0] != "b" {
		t.Errorf("left: %q, want b", got)
	}
	many := func(n int) string {
		return "<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", n) + "</Delete>"
	}
	h.want(t, 200, del(many(1000)))
	for _, doc := range []string{many(1001), many(0), "<x/>", "", "<Delete><Object></Object></Delete>", "<Delete><Object><Key></Key></Object></Delete>",
		many(1) + "x", "<Delete><Object><Key>b</Key></Object>", `<!DOCTYPE x [<!ENTITY e "b">]><Delete><Object><Key>&e;</Key></Object></Delete>`} {
		h.wantCode(t, "MalformedXML", del(doc))
	}
	q := del(many(1))
	q.header = nil
	h.wantCode(t, "InvalidRequest", q)
	q = del(many(1))
	q.header["x-amz-checksum-crc32"] = "AAAAAA=="
	h.wantCode(t, "BadDigest", q)
	if got := h.listAll(t, "box", ""); len(got) != 1 {
		t.Errorf("refused deletes left %q", got)
	}
}
