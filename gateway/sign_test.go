package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// signV4 signs a request by the published recipe, from the URL exactly as it
// goes over the wire. It shares nothing with package sigv4.
func signV4(r *http.Request, accessKey, secret, region, payloadHash string, at time.Time) {
	at = at.UTC()
	stamp, day := at.Format("20060102T150405Z"), at.Format("20060102")
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", payloadHash)
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	headers := map[string]string{"host": host}
	for name, v := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(v, ",")
	}
	var names []string
	for n := range headers {
		names = append(names, n)
	}
	slices.Sort(names)
	var c strings.Builder
	c.WriteString(r.Method + "\n" + canonicalPath(r.URL) + "\n" + canonicalQuery(r.URL.RawQuery) + "\n")
	for _, n := range names {
		c.WriteString(n + ":" + strings.TrimSpace(headers[n]) + "\n")
	}
	signed := strings.Join(names, ";")
	c.WriteString("\n" + signed + "\n" + payloadHash)
	scope := day + "/" + region + "/s3/aws4_request"
	sts := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hexSHA256([]byte(c.String()))
	key := []byte("AWS4" + secret)
	for _, s := range []string{day, region, "s3", "aws4_request"} {
		key = mac(key, s)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+accessKey+"/"+scope+
		", SignedHeaders="+signed+", Signature="+hex.EncodeToString(mac(key, sts)))
}

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

func hexSHA256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// uriEncode is S3's UriEncode.
func uriEncode(s string, keepSlash bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte("-._~", c) >= 0 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '/' && keepSlash {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

// canonicalPath decodes the path and encodes it again; slashes stay.
func canonicalPath(u *url.URL) string {
	d, err := url.PathUnescape(u.EscapedPath())
	if err != nil {
		panic(err)
	}
	if d == "" {
		return "/"
	}
	return uriEncode(d, true)
}

func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	var pairs []string
	for p := range strings.SplitSeq(raw, "&") {
		k, v, _ := strings.Cut(p, "=")
		k, err := url.QueryUnescape(k)
		if err != nil {
			panic(err)
		}
		if v, err = url.QueryUnescape(v); err != nil {
			panic(err)
		}
		pairs = append(pairs, uriEncode(k, false)+"="+uriEncode(v, false))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// wireRequest is one raw request of a test.
type wireRequest struct {
	method string
	target string // escaped path and query, as they go over the wire
	host   string // Host header; empty: the server's address
	body   []byte
	header map[string]string
	user   string // access key; empty: root; "-": anonymous
	hash   string // x-amz-content-sha256; empty: of the body
	at     time.Time
}

// answer is what came back.
type answer struct {
	*http.Response
	body []byte
}

// code is the S3 code of an error document.
func (a answer) code() string { return element(a.body, "Code") }

// element is the text of the first element of that name.
func element(doc []byte, name string) string {
	_, rest, ok := bytes.Cut(doc, []byte("<"+name+">"))
	if !ok {
		return ""
	}
	text, _, _ := bytes.Cut(rest, []byte("</"+name+">"))
	return string(text)
}

func (h *harness) request(t testing.TB, q wireRequest) *http.Request {
	t.Helper()
	u, err := url.Parse(h.url + q.target)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), q.method, u.String(), bytes.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.body == nil {
		r.Body, r.ContentLength = nil, 0
	}
	r.Host = q.host
	for k, v := range q.header {
		r.Header[http.CanonicalHeaderKey(k)] = []string{v}
	}
	if q.user == "-" {
		return r
	}
	user := q.user
	if user == "" {
		user = rootKey
	}
	hash := q.hash
	if hash == "" {
		hash = hexSHA256(q.body)
	}
	at := q.at
	if at.IsZero() {
		at = time.Now()
	}
	signV4(r, user, secretOf(user), "us-east-1", hash, at)
	return r
}

// do sends a request and reads its whole answer.
func (h *harness) do(t testing.TB, q wireRequest) answer {
	t.Helper()
	resp, err := h.client.Do(h.request(t, q))
	if err != nil {
		t.Fatalf("%s %s: %v", q.method, q.target, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the body: %v", q.method, q.target, err)
	}
	return answer{resp, b}
}

// want sends a request and insists on the status.
func (h *harness) want(t testing.TB, status int, q wireRequest) answer {
	t.Helper()
	a := h.do(t, q)
	if a.StatusCode != status {
		t.Fatalf("%s %s: status %d, want %d: %s", q.method, q.target, a.StatusCode, status, a.body)
	}
	return a
}

// wantCode sends a request and insists on the S3 error code.
func (h *harness) wantCode(t testing.TB, code string, q wireRequest) answer {
	t.Helper()
	a := h.do(t, q)
	if a.code() != code || a.StatusCode != errorStatus[code] {
		t.Fatalf("%s %s: %d %q, want %d %q: %s", q.method, q.target, a.StatusCode, a.code(), errorStatus[code], code, a.body)
	}
	return a
}
