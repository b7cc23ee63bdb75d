package sigv4

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// Keys that trip servers which clean, decode twice or encode too little.
var oddKeys = []string{
	"", "plain", "with space", " lead", "trail ", "a+b", "a%b", "a%2Fb", "a%20b", "//", "a//b", "/a", "a/", "..", "../a", "a/../b", "a/./b", ".",
	"~", "*", "a*b?c=d&e#f", "!$'()*,;:@=&+", "[]{}<>|\\^`\"", "schön", "日本/語", "😀", "\x01\x7f", "a;b", "a=b", "%", "%%", "%zz", "?", "#",
	"kv/0123456789abcdef", strings.Repeat("x/", 500),
}

var oddQueries = []url.Values{
	nil,
	{"uploads": {""}},
	{"list-type": {"2"}, "prefix": {"a b+c/~*"}, "delimiter": {"/"}, "encoding-type": {"url"}, "start-after": {"ü%&="}},
	{"partNumber": {"1"}, "uploadId": {"a-b_c.d~e"}, "x-id": {"UploadPart"}},
	{"a": {"1"}, "a-b": {"2"}, "a.b": {"3"}, "ab": {"4"}, "A": {"5"}},
	{"tagging": {""}, "versionId": {"null"}, "response-content-disposition": {`attachment; filename="a b.txt"`}},
}

var exampleCreds = aws.Credentials{AccessKeyID: exampleKey, SecretAccessKey: exampleSecret}

// request makes a client's request for a key.
func request(t testing.TB, method, key string, q url.Values, rawPath bool, body []byte) *http.Request {
	t.Helper()
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:9000", Path: "/bucket/" + key}
	if rawPath {
		u.RawPath = s3utils.EncodePath(u.Path)
	}
	if q != nil {
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	}
	var rd io.Reader = http.NoBody
	if len(body) > 0 {
		rd = bytes.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://placeholder", rd)
	if err != nil {
		t.Fatal(err)
	}
	r.URL, r.Host = u, u.Host
	return r
}

// Both signers, headers and presigned, over all odd keys and queries.
func TestIndependentSigners(t *testing.T) {
	now := time.Now().UTC() // minio-go signs with its own clock
	v := verifierAt(now)
	sum := sha256.Sum256([]byte("payload"))
	hash := hex.EncodeToString(sum[:])
	aw := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	for i, key := range oddKeys {
		for j, q := range oddQueries {
			if i > 3 && j > 2 {
				continue
			}
			forms := map[string]func() *http.Request{
				"minio header": func() *http.Request {
					r := request(t, "PUT", key, q, true, []byte("payload"))
					r.Header.Set("X-Amz-Content-Sha256", hash)
					r.Header.Set("X-Amz-Meta-Spaces", "  a   b  c ")
					r.Header.Add("X-Amz-Meta-Two", "one")
					r.Header.Add("X-Amz-Meta-Two", "two, three")
					return signer.SignV4(*r, exampleKey, exampleSecret, "", "eu-central-1")
				},
				"minio header, path escaped by net/url": func() *http.Request {
					r := request(t, "GET", key, q, false, nil)
					r.Header.Set("X-Amz-Content-Sha256", EmptySHA256)
					return signer.SignV4(*r, exampleKey, exampleSecret, "", "us-east-1")
				},
				"minio presigned": func() *http.Request {
					r := request(t, "GET", key, q, true, nil)
					return signer.PreSignV4(*r, exampleKey, exampleSecret, "", "us-east-1", 600)
				},
				"minio streaming": func() *http.Request {
					r := request(t, "PUT", key, q, true, []byte("payload"))
					return signer.StreamingSignV4(r, exampleKey, exampleSecret, "", "us-east-1", 7, now, noSHA{sha256.New()})
				},
				"aws header": func() *http.Request {
					r := request(t, "PUT", key, q, true, []byte("payload"))
					r.Header.Set("X-Amz-Content-Sha256", hash)
					r.Header.Set("Content-Type", "text/plain")
					r.Header.Set("X-Amz-Meta-Spaces", "  a   b  c ")
					r.Header.Add("X-Amz-Meta-Two", "one")
					r.Header.Add("X-Amz-Meta-Two", "two, three")
					r.Header.Set("X-Kv-Descriptor", "eyJ9")
					if err := aw.SignHTTP(context.Background(), exampleCreds, r, hash, "s3", "us-west-2", now); err != nil {
						t.Fatal(err)
					}
					return r
				},
				"aws presigned": func() *http.Request {
					r := request(t, "GET", key, q, true, nil)
					r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&X-Amz-Expires=3600", "&")
					r.Header.Set("X-Amz-Checksum-Mode", "ENABLED") // hoisted into the query
					signed, h, err := aw.PresignHTTP(context.Background(), exampleCreds, r, unsignedPayload, "s3", "us-west-2", now)
					if err != nil {
						t.Fatal(err)
					}
					got := request(t, "GET", key, nil, true, nil)
					u, err := url.Parse(signed)
					if err != nil {
						t.Fatal(err)
					}
					got.URL, got.Header = u, h
					return got
				},
			}
			for name, sign := range forms {
				label := fmt.Sprintf("%s, key %q, query %v", name, key, q)
				r := wire(t, sign())
				res, err := v.Verify(r)
				if err != nil {
					t.Fatalf("%s: %v\n%s", label, err, err.(*Error).CanonicalRequest)
				}
				if res.AccessKey != exampleKey || res.Presigned != strings.Contains(name, "presigned") {
					t.Fatalf("%s: %+v", label, res)
				}
				if res.Payload == PayloadSigned && r.Method == "PUT" && res.PayloadSHA256 != sum {
					t.Fatalf("%s: payload hash %x", label, res.PayloadSHA256)
				}
				if got := strings.TrimPrefix(r.URL.Path, "/bucket/"); got != key {
					t.Fatalf("%s: the handler would see %q", label, got)
				}
				if key != "plain" {
					continue
				}
				for what, bad := range tamper(r) {
					if res, err := v.Verify(bad); err == nil {
						t.Errorf("%s: %s still verifies: %+v", label, what, res)
					}
				}
			}
		}
	}
}

// noSHA satisfies minio-go's hasher interface.
type noSHA struct {
	h interface {
		io.Writer
		Sum([]byte) []byte
		Reset()
		Size() int
		BlockSize() int
	}
}

func (n noSHA) Write(p []byte) (int, error) { return n.h.Write(p) }
func (n noSHA) Sum(b []byte) []byte         { return n.h.Sum(b) }
func (n noSHA) Reset()                      { n.h.Reset() }
func (n noSHA) Size() int                   { return n.h.Size() }
func (n noSHA) BlockSize() int              { return n.h.BlockSize() }
func (n noSHA) Close()                      {}

// tamper gives every version of r with one thing changed that is signed.
func tamper(r *http.Request) map[string]*http.Request {
	out := map[string]*http.Request{}
	add := func(what string, change func(*http.Request)) {
		c := r.Clone(context.Background())
		change(c)
		out[what] = c
	}
	add("another method", func(r *http.Request) { r.Method = "DELETE" })
	add("another path", func(r *http.Request) { r.URL.Path += "x" })
	add("one more slash", func(r *http.Request) { r.URL.Path = "/" + r.URL.Path })
	add("another host", func(r *http.Request) { r.Host = "127.0.0.1:9001" })
	add("one more parameter", func(r *http.Request) { r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&acl", "&") })
	add("an unsigned x-amz header", func(r *http.Request) { r.Header.Set("X-Amz-Acl", "public-read") })
	add("an unsigned x-kv header", func(r *http.Request) { r.Header.Set("X-Kv-Parent", "p") })
	if r.URL.RawQuery != "" && r.Header.Get("Authorization") != "" {
		add("no query", func(r *http.Request) { r.URL.RawQuery = "delete" })
	}
	for k := range r.Header {
		if k == "Authorization" || !strings.HasPrefix(k, "X-Amz-") && !strings.HasPrefix(k, "X-Kv-") {
			continue
		}
		add("another "+k, func(r *http.Request) { r.Header.Set(k, r.Header.Get(k)+"x") })
		add("a second "+k, func(r *http.Request) { r.Header.Add(k, "x") })
		add("no "+k, func(r *http.Request) { r.Header.Del(k) })
	}
	if a := r.Header.Get("Authorization"); a != "" {
		for i := range a {
			b := []byte(a)
			b[i] ^= 1
			if string(b) == a || b[i] == ' ' || b[i] == ',' || a[i] == ' ' || a[i] == ',' {
				continue
			}
			add(fmt.Sprintf("byte %d of Authorization", i), func(r *http.Request) { r.Header.Set("Authorization", string(b)) })
		}
	}
	return out
}

func TestSignedDescriptorHeader(t *testing.T) {
	r := request(t, "GET", "first", nil, true, nil)
	r.Header.Set("X-Amz-Content-Sha256", EmptySHA256)
	signed := signer.SignV4(*r, exampleKey, exampleSecret, "", "us-east-1")
	signed.Header.Set("x-kv-descriptor", "e30")
	_, err := verifierAt(time.Now()).Verify(wire(t, signed))
	e, ok := err.(*Error)
	if !ok || e.Code != "AccessDenied" || e.Status != 403 || e.Header != "x-kv-descriptor" || !strings.Contains(e.Message, "x-kv-descriptor") {
		t.Errorf("unsigned descriptor: %v", err)
	}
}
