package gateway

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// multipart stores an object of parts as root and returns their checksums as
// the parts' answers had them.
func (h *harness) multipart(t testing.TB, target string, parts [][]byte, begin map[string]string, each func(body []byte) (name, value string)) {
	t.Helper()
	id := element(h.want(t, 200, wireRequest{method: "POST", target: target + "?uploads", header: begin}).body, "UploadId")
	doc := "<CompleteMultipartUpload>"
	for i, p := range parts {
		q := wireRequest{method: "PUT", target: fmt.Sprintf("%s?partNumber=%d&uploadId=%s", target, 2*i+1, id), body: p, header: map[string]string{}}
		if each != nil {
			name, value := each(p)
			q.header[name] = value
		}
		doc += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", 2*i+1, h.want(t, 200, q).Header.Get("ETag"))
	}
	h.want(t, 200, wireRequest{method: "POST", target: target + "?uploadId=" + id, body: []byte(doc + "</CompleteMultipartUpload>")})
}

// TestParts reads a multipart object part by part, with each kind of checksum.
func TestParts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	parts := [][]byte{content(1, 5<<20+1), content(2, 5<<20), content(3, 777)}
	whole := slices.Concat(parts...)
	crc := func(b []byte) (string, string) { return "x-amz-checksum-crc32", crcOf(b) }
	for _, c := range []struct {
		name, alg, typ string
		header, sum    string
		each           func([]byte) (string, string)
		of             func([]byte) string
		whole          string
	}{
		{"none", "", "FULL_OBJECT", "x-amz-checksum-crc64nvme", "", nil, nvmeOf, nvmeOf(whole)},
		{"full", "CRC32", "FULL_OBJECT", "x-amz-checksum-crc32", "", crc, crcOf, crcOf(whole)},
		{"composite", "CRC32", "COMPOSITE", "x-amz-checksum-crc32", "", crc, crcOf, ""},
	} {
		begin := map[string]string{}
		if c.alg != "" {
			begin = map[string]string{"x-amz-checksum-algorithm": c.alg, "x-amz-checksum-type": c.typ}
		}
		target := "/box/" + c.name
		h.multipart(t, target, parts, begin, c.each)
		mode := map[string]string{"x-amz-checksum-mode": "ENABLED"}
		a := h.want(t, 200, wireRequest{method: "HEAD", target: target, header: mode})
		sum := a.Header.Get(c.header)
		if c.whole != "" && sum != c.whole || c.whole == "" && !strings.HasSuffix(sum, "-3") || a.Header.Get("x-amz-checksum-type") != c.typ {
			t.Errorf("%s: %v, want %s", c.name, a.Header, c.whole)
		}
		at := 0
		for i, p := range parts {
			for _, method := range []string{"GET", "HEAD"} {
				a := h.want(t, 206, wireRequest{method: method, target: fmt.Sprintf("%s?partNumber=%d", target, i+1), header: mode})
				if method == "GET" && !bytes.Equal(a.body, p) {
					t.Fatalf("%s: part %d has other bytes", c.name, i+1)
				}
				for name, want := range map[string]string{
					"Content-Length": strconv.Itoa(len(p)), "Content-Range": fmt.Sprintf("bytes %d-%d/%d", at, at+len(p)-1, len(whole)),
					"x-amz-mp-parts-count": "3", c.header: c.of(p), "x-amz-checksum-type": c.typ,
				} {
					if got := a.Header.Get(name); got != want {
						t.Errorf("%s: part %d: %s %q, want %q", c.name, i+1, name, got, want)
					}
				}
			}
			at += len(p)
		}
		h.wantCode(t, "InvalidPartNumber", wireRequest{method: "GET", target: target + "?partNumber=4"})
		h.want(t, 416, wireRequest{method: "HEAD", target: target + "?partNumber=4"})
	}
	// One part alone, and none of its bytes.
	h.multipart(t, "/box/empty", [][]byte{nil}, nil, nil)
	if a := h.want(t, 206, wireRequest{method: "GET", target: "/box/empty?partNumber=1"}); len(a.body) != 0 || a.Header.Get("x-amz-mp-parts-count") != "1" {
		t.Errorf("an empty part: %v", a.Header)
	}
}

// TestPartCopies copies ranges of pinned sources into parts, under conditions.
func TestPartCopies(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	src := content(7, 200_003)
	etag := h.put(t, "/box/src", src)
	h.put(t, "/box/none", nil)
	id := element(h.want(t, 200, wireRequest{method: "POST", target: "/box/k?uploads"}).body, "UploadId")
	past, future := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		code  string // empty: copied
		spans [2]int // what must have been copied
		extra []string
	}{
		{"", [2]int{0, len(src)}, nil},
		{"", [2]int{0, 1}, []string{"x-amz-copy-source-range", "bytes=0-0"}},
		{"", [2]int{65535, 65538}, []string{"x-amz-copy-source-range", "bytes=65535-65537"}},
		{"", [2]int{200_002, 200_003}, []string{"x-amz-copy-source-range", "bytes=200002-200002"}},
		{"InvalidRange", [2]int{}, []string{"x-amz-copy-source-range", "bytes=0-200003"}},
		{"InvalidArgument", [2]int{}, []string{"x-amz-copy-source-range", "bytes=-5"}},
		{"InvalidArgument", [2]int{}, []string{"x-amz-copy-source-range", "bytes=0-1,3-4"}},
		{"", [2]int{5, 10}, []string{"x-amz-copy-source-range", "bytes=5-9", "x-amz-copy-source-if-match", etag}},
		{"PreconditionFailed", [2]int{}, []string{"x-amz-copy-source-if-match", `"other"`}},
		{"PreconditionFailed", [2]int{}, []string{"x-amz-copy-source-if-none-match", etag}},
		{"", [2]int{0, len(src)}, []string{"x-amz-copy-source-if-none-match", `"other"`}},
		{"PreconditionFailed", [2]int{}, []string{"x-amz-copy-source-if-modified-since", future}},
		{"PreconditionFailed", [2]int{}, []string{"x-amz-copy-source-if-unmodified-since", past}},
		{"", [2]int{0, len(src)}, []string{"x-amz-copy-source-if-match", etag, "x-amz-copy-source-if-unmodified-since", past}},
	} {
		q := wireRequest{method: "PUT", target: "/box/k?partNumber=3&uploadId=" + id, header: map[string]string{"x-amz-copy-source": "box/src"}}
		for i := 0; i < len(c.extra); i += 2 {
			q.header[c.extra[i]] = c.extra[i+1]
		}
		if c.code != "" {
			h.wantCode(t, c.code, q)
			continue
		}
		want := src[c.spans[0]:c.spans[1]]
		sum := md5.Sum(want)
		a := h.want(t, 200, q)
		if element(a.body, "ETag") != "&#34;"+hex.EncodeToString(sum[:])+"&#34;" || element(a.body, "ChecksumCRC64NVME") != nvmeOf(want) {
			t.Errorf("%v: %s", c.extra, a.body)
		}
	}
	none := wireRequest{method: "PUT", target: "/box/k?partNumber=4&uploadId=" + id, header: map[string]string{"x-amz-copy-source": "box/none"}}
	h.want(t, 200, none)
	none.header["x-amz-copy-source-range"] = "bytes=0-0"
	h.wantCode(t, "InvalidRange", none)
	none.header["x-amz-copy-source"] = "box/gone"
	h.wantCode(t, "NoSuchKey", none)
	// The last that went well is what the part holds.
	a := h.want(t, 200, wireRequest{method: "GET", target: "/box/k?max-parts=1&uploadId=" + id})
	sum := md5.Sum(src)
	if element(a.body, "Size") != "200003" || element(a.body, "ETag") != "&#34;"+hex.EncodeToString(sum[:])+"&#34;" || element(a.body, "IsTruncated") != "true" {
		t.Errorf("%s", a.body)
	}
}
