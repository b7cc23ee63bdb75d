package gateway

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// content is n bytes that no other seed gives.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(n)})
	_, _ = r.Read(b)
	return b
}

func TestObjectRoundTrip(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	for i, n := range []int{0, 1, 4096, 4097, 65535, 65536, 65537, pieceSize - 1, pieceSize, pieceSize + 1, 3*pieceSize + 12345} {
		body := content(uint64(i), n)
		target := fmt.Sprintf("/box/dir/k%d", n)
		sum := md5.Sum(body)
		etag := `"` + hex.EncodeToString(sum[:]) + `"`
		if got := h.put(t, target, body, "Content-Type", "a/b", "x-amz-meta-Color", "blue", "Cache-Control", "no-cache",
			"Content-Encoding", "aws-chunked,gzip", "Expires", "never", "x-kv-parent", "p", "x-kv-index", "3"); got != etag {
			t.Fatalf("%d bytes: ETag %s, want %s", n, got, etag)
		}
		for _, method := range []string{"GET", "HEAD"} {
			a := h.want(t, 200, wireRequest{method: method, target: target})
			if method == "GET" && !bytes.Equal(a.body, body) {
				t.Fatalf("%d bytes: other bytes came back", n)
			}
			if a.ContentLength != int64(n) {
				t.Fatalf("%s: Content-Length %d, want %d", method, a.ContentLength, n)
			}
			for name, want := range map[string]string{
				"Content-Type": "a/b", "X-Amz-Meta-Color": "blue", "Cache-Control": "no-cache", "Content-Encoding": "gzip",
				"Expires": "never", "ETag": etag, "Accept-Ranges": "bytes", "X-Kv-Parent": "p", "X-Kv-Index": "3",
			} {
				if got := a.Header.Get(name); got != want {
					t.Errorf("%s: %s %q, want %q", method, name, got, want)
				}
			}
			if _, err := http.ParseTime(a.Header.Get("Last-Modified")); err != nil {
				t.Errorf("Last-Modified: %v", err)
			}
		}
	}
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box/dir/k0"})
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box/dir/k0"})
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/box/dir/k0"})
	if a := h.want(t, 404, wireRequest{method: "HEAD", target: "/box/dir/k0"}); len(a.body) != 0 {
		t.Errorf("HEAD of a missing key has a body")
	}
}

// TestRangedReads compares ranges around every boundary with the bytes.
func TestRangedReads(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	size := 2*pieceSize + 70001
	body := content(1, size)
	h.put(t, "/box/k", body)
	edges := []int{0, 1, 65535, 65536, 65537, pieceSize - 1, pieceSize, pieceSize + 1, 2 * pieceSize, size - 1}
	for _, a := range edges {
		for _, b := range edges {
			if b < a {
				continue
			}
			got := h.want(t, 206, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", a, b)}})
			if !bytes.Equal(got.body, body[a:b+1]) {
				t.Fatalf("bytes %d-%d differ", a, b)
			}
			if want := fmt.Sprintf("bytes %d-%d/%d", a, b, size); got.Header.Get("Content-Range") != want {
				t.Fatalf("Content-Range %q, want %q", got.Header.Get("Content-Range"), want)
			}
		}
		got := h.want(t, 206, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"Range": fmt.Sprintf("bytes=-%d", a+1)}})
		if !bytes.Equal(got.body, body[size-a-1:]) {
			t.Fatalf("the last %d bytes differ", a+1)
		}
	}
	a := h.wantCode(t, "InvalidRange", wireRequest{method: "GET", target: "/box/k", header: map[string]string{"Range": fmt.Sprintf("bytes=%d-", size)}})
	if got, want := a.Header.Get("Content-Range"), fmt.Sprintf("bytes */%d", size); got != want {
		t.Errorf("Content-Range %q, want %q", got, want)
	}
	whole := h.want(t, 200, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"Range": "bytes=0-1,5-6"}})
	if !bytes.Equal(whole.body, body) {
		t.Error("several ranges do not give the whole object")
	}
	head := h.want(t, 206, wireRequest{method: "HEAD", target: "/box/k", header: map[string]string{"Range": "bytes=10-19"}})
	if head.ContentLength != 10 {
		t.Errorf("HEAD of a range: Content-Length %d, want 10", head.ContentLength)
	}
}

// TestRawKeys stores keys that a careless path would change.
func TestRawKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	keys := []string{
		"a//b", "//", "/", "a/", "a/../b", "..", "../../etc/passwd", "./.", "a%2Fb", "a%2fb", "100%", "%", "a b", "a+b", "a?b=c",
		"a#b", "é€😀", "a;b", "a&b=c", "\"quoted\"<x>&amp;", "~tilde*!'()", "\x01\x1f", "a\\b", "con", strings.Repeat("k", 1024),
	}
	for i, k := range keys {
		h.put(t, "/box/"+uriEncode(k, true), []byte(strconv.Itoa(i)))
	}
	for i, k := range keys {
		for _, keep := range []bool{true, false} {
			a := h.want(t, 200, wireRequest{method: "GET", target: "/box/" + uriEncode(k, keep)})
			if string(a.body) != strconv.Itoa(i) {
				t.Errorf("key %q gives %q, want %d", k, a.body, i)
			}
		}
		// The same key by virtual host.
		a := h.want(t, 200, wireRequest{method: "GET", target: "/" + uriEncode(k, true), host: "box.s3.test"})
		if string(a.body) != strconv.Itoa(i) {
			t.Errorf("virtual host: key %q gives %q, want %d", k, a.body, i)
		}
	}
	if got := h.listAll(t, "box", ""); len(got) != len(keys) {
		t.Errorf("%d keys listed, want %d", len(got), len(keys))
	}
}

func TestPutRefusals(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *Config) { c.MaxObject = 1 << 20 })
	h.bucket(t, "box")
	md5Of := func(b []byte) string { s := md5.Sum(b); return base64.StdEncoding.EncodeToString(s[:]) }
	body := []byte("hello")
	header := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name, code string
		q          wireRequest
	}{
		{"long key", "KeyTooLongError", wireRequest{target: "/box/" + strings.Repeat("k", 1025)}},
		{"key not UTF-8", "InvalidURI", wireRequest{target: "/box/%ff"}},
		{"no bucket", "NoSuchBucket", wireRequest{target: "/nobox/k"}},
		{"bad bucket", "InvalidBucketName", wireRequest{target: "/No_Box/k"}},
		{"too large", "EntityTooLarge", wireRequest{target: "/box/k", body: make([]byte, 1<<20+1)}},
		{"bad MD5", "BadDigest", wireRequest{target: "/box/k", header: header("Content-MD5", md5Of([]byte("other")))}},
		{"no MD5", "InvalidDigest", wireRequest{target: "/box/k", header: header("Content-MD5", "nonsense")}},
		{"bad CRC32", "BadDigest", wireRequest{target: "/box/k", header: header("x-amz-checksum-crc32", "AAAAAA==")}},
		{"no CRC32", "InvalidRequest", wireRequest{target: "/box/k", header: header("x-amz-checksum-crc32", "AAAA")}},
		{"two checksums", "InvalidRequest", wireRequest{target: "/box/k", header: header("x-amz-checksum-crc32", crcOf(body), "x-amz-checksum-crc32c", "AAAAAA==")}},
		{"other payload hash", "XAmzContentSHA256Mismatch", wireRequest{target: "/box/k", hash: hexSHA256([]byte("other"))}},
		{"metadata", "MetadataTooLarge", wireRequest{target: "/box/k", header: header("x-amz-meta-a", strings.Repeat("v", 2048))}},
		{"chain", "InvalidArgument", wireRequest{target: "/box/k", header: header("x-kv-parent", "p")}},
		{"chain index", "InvalidArgument", wireRequest{target: "/box/k", header: header("x-kv-index", "-1")}},
		{"tagging", "InvalidArgument", wireRequest{target: "/box/k", header: header("x-amz-tagging", "a=b&a=c")}},
		{"acl", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-acl", "public-read")}},
		{"grant", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-grant-read", "id=x")}},
		{"SSE", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-server-side-encryption", "AES256")}},
		{"SSE-C", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-server-side-encryption-customer-algorithm", "AES256")}},
		{"lock", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-object-lock-mode", "GOVERNANCE")}},
		{"website", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-website-redirect-location", "/x")}},
		{"class", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-storage-class", "GLACIER")}},
		{"append", "NotImplemented", wireRequest{target: "/box/k", header: header("x-amz-write-offset-bytes", "0")}},
		{"owner", "AccessDenied", wireRequest{target: "/box/k", header: header("x-amz-expected-bucket-owner", "someone")}},
		{"If-None-Match", "NotImplemented", wireRequest{target: "/box/k", header: header("If-None-Match", `"x"`)}},
		{"If-Match on nothing", "NoSuchKey", wireRequest{target: "/box/k", header: header("If-Match", `"x"`)}},
		{"part without upload", "NotImplemented", wireRequest{target: "/box/k?partNumber=1"}},
	} {
		c.q.method = "PUT"
		if c.q.body == nil {
			c.q.body = body
		}
		a := h.do(t, c.q)
		if a.code() != c.code {
			t.Errorf("%s: %d %s, want %s", c.name, a.StatusCode, a.body, c.code)
		}
	}
	// None of it left a trace.
	if got := h.listAll(t, "box", ""); len(got) != 0 {
		t.Errorf("refused puts left %v", got)
	}
	// The harmless forms pass.
	h.put(t, "/box/k", body, "x-amz-acl", "private", "x-amz-storage-class", "STANDARD", "Content-MD5", md5Of(body), "x-amz-checksum-crc32", crcOf(body))
	h.put(t, "/box/k", body, "x-amz-acl", "bucket-owner-full-control", "x-amz-meta-a", strings.Repeat("v", 2047))
}

// nvmeOf is CRC64NVME by its definition, bit by bit.
func nvmeOf(b []byte) string {
	c := ^uint64(0)
	for _, x := range b {
		c ^= uint64(x)
		for range 8 {
			c = c>>1 ^ 0x9a6c9329ac4bc9b5&-(c&1)
		}
	}
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, ^c))
}

func crcOf(b []byte) string {
	c := crc32.ChecksumIEEE(b)
	return base64.StdEncoding.EncodeToString([]byte{byte(c >> 24), byte(c >> 16), byte(c >> 8), byte(c)})
}

func TestConditionalWrites(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	put := func(want int, body string, kv ...string) string {
		t.Helper()
		hd := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			hd[kv[i]] = kv[i+1]
		}
		return h.want(t, want, wireRequest{method: "PUT", target: "/box/k", body: []byte(body), header: hd}).Header.Get("ETag")
	}
	one := put(200, "one", "If-None-Match", "*")
	put(412, "two", "If-None-Match", "*")
	put(412, "two", "If-Match", `"0123456789abcdef0123456789abcdef"`)
	two := put(200, "two", "If-Match", one)
	put(412, "three", "If-Match", one)
	h.want(t, 412, wireRequest{method: "DELETE", target: "/box/k", header: map[string]string{"If-Match": one}})
	if a := h.want(t, 200, wireRequest{method: "GET", target: "/box/k"}); string(a.body) != "two" {
		t.Errorf("the object is %q, want two", a.body)
	}
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box/k", header: map[string]string{"If-Match": two}})
	h.wantCode(t, "NoSuchKey", wireRequest{method: "DELETE", target: "/box/k", header: map[string]string{"If-Match": two}})
}

func TestConditionalReads(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	etag := h.put(t, "/box/k", []byte("hello"), "Cache-Control", "max-age=1")
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	future := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"If-Match", etag, 200}, {"If-Match", `"x"`, 412}, {"If-None-Match", etag, 304}, {"If-None-Match", `"x"`, 200},
		{"If-Modified-Since", past, 200}, {"If-Modified-Since", future, 304},
		{"If-Unmodified-Since", past, 412}, {"If-Unmodified-Since", future, 200},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			a := h.want(t, c.status, wireRequest{method: method, target: "/box/k", header: map[string]string{c.name: c.value}})
			if c.status == 304 && (a.Header.Get("ETag") != etag || a.Header.Get("Cache-Control") != "max-age=1" || len(a.body) != 0) {
				t.Errorf("304 of %s: %v %q", method, a.Header, a.body)
			}
			if c.status == 412 && method == "GET" && element(a.body, "Condition") != c.name {
				t.Errorf("412 does not name %s: %s", c.name, a.body)
			}
		}
	}
	// A condition that fails goes before a range that cannot be met.
	h.want(t, 412, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"If-Match": `"x"`, "Range": "bytes=99-"}})
}

func TestResponseOverrides(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("hello"), "Content-Type", "a/b")
	a := h.want(t, 200, wireRequest{method: "GET", target: "/box/k?response-content-type=c%2Fd&response-content-disposition=attachment%3B%20filename%3D%22x%22&x-id=GetObject"})
	if a.Header.Get("Content-Type") != "c/d" || a.Header.Get("Content-Disposition") != `attachment; filename="x"` {
		t.Errorf("overrides: %v", a.Header)
	}
	h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/box/k?response-content-type=a%0d%0aSet-Cookie:x"})
}

// TestChecksumOnRead: a checksum of the whole object goes only with the whole.
func TestChecksumOnRead(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	body := []byte("hello")
	h.put(t, "/box/k", body, "x-amz-checksum-crc32", crcOf(body))
	mode := map[string]string{"x-amz-checksum-mode": "ENABLED"}
	a := h.want(t, 200, wireRequest{method: "GET", target: "/box/k", header: mode})
	if a.Header.Get("x-amz-checksum-crc32") != crcOf(body) || a.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" {
		t.Errorf("whole object: %v", a.Header)
	}
	a = h.want(t, 200, wireRequest{method: "GET", target: "/box/k"})
	if a.Header.Get("x-amz-checksum-crc32") != "" {
		t.Error("a checksum that nobody asked for")
	}
	a = h.want(t, 206, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"x-amz-checksum-mode": "ENABLED", "Range": "bytes=0-4"}})
	if a.Header.Get("x-amz-checksum-crc32") != "" {
		t.Error("a whole object's checksum on a range")
	}
}

// TestDefaultChecksum: what comes without a checksum gets one, in every form
// of body, and what comes with one keeps that alone.
func TestDefaultChecksum(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	mode := map[string]string{"x-amz-checksum-mode": "ENABLED"}
	for _, n := range []int{0, 5, 4097, 3*pieceSize + 1} {
		body := content(3, n)
		want := nvmeOf(body)
		a := h.want(t, 200, wireRequest{method: "PUT", target: "/box/k", body: body})
		if a.Header.Get("x-amz-checksum-crc64nvme") != want || a.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" {
			t.Errorf("%d bytes: PUT answers %v, want %s", n, a.Header, want)
		}
		h.want(t, 200, wireRequest{method: "PUT", target: "/box/copy", header: map[string]string{"x-amz-copy-source": "box/k"}})
		for _, target := range []string{"/box/k", "/box/copy"} {
			if a := h.want(t, 200, wireRequest{method: "HEAD", target: target, header: mode}); a.Header.Get("x-amz-checksum-crc64nvme") != want {
				t.Errorf("%d bytes: HEAD %s answers %v, want %s", n, target, a.Header, want)
			}
		}
	}
	h.put(t, "/box/k", []byte("hello"), "x-amz-checksum-crc32", crcOf([]byte("hello")))
	if a := h.want(t, 200, wireRequest{method: "HEAD", target: "/box/k", header: mode}); a.Header.Get("x-amz-checksum-crc64nvme") != "" || a.Header.Get("x-amz-checksum-crc32") == "" {
		t.Errorf("with a CRC32: %v", a.Header)
	}
}

func TestPartNumberOfPlainObject(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("hello"))
	a := h.want(t, 206, wireRequest{method: "GET", target: "/box/k?partNumber=1"})
	if string(a.body) != "hello" || a.Header.Get("Content-Range") != "bytes 0-4/5" || a.Header.Get("x-amz-mp-parts-count") != "" {
		t.Errorf("%q %v", a.body, a.Header)
	}
	h.wantCode(t, "InvalidPartNumber", wireRequest{method: "GET", target: "/box/k?partNumber=2"})
	h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/box/k?partNumber=0"})
	h.wantCode(t, "InvalidRequest", wireRequest{method: "GET", target: "/box/k?partNumber=1", header: map[string]string{"Range": "bytes=0-1"}})
}
