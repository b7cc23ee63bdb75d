package sigv4

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"testing"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// FuzzVerify feeds whole requests in wire form. Nothing may panic, and whatever
// verifies must do so by a signature that a plain reading of the
// specification gives too.
func FuzzVerify(f *testing.F) {
	for _, p := range published {
		f.Add([]byte(p.text))
	}
	f.Add([]byte(lines("GET /k?AWSAccessKeyId=a&Expires=1&Signature=b HTTP/1.1", "Host: h")))
	f.Add([]byte(lines("GET /%2f/..//a%20b?+=%2B&&a;b&=x&a=1&a-b=2 HTTP/1.1", "Host: h",
		"Authorization: AWS4-HMAC-SHA256 Credential=a/b/20130524/r/s3/aws4_request , SignedHeaders=host ,Signature=00")))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		res, err := verifierAt(exampleTime).Verify(r)
		if err != nil {
			e, ok := err.(*Error)
			if !ok || e.Code == "" || e.Message == "" || e.Status/100 != 4 {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if res.Anonymous {
			if len(r.Header["Authorization"]) > 0 || r.URL.Query().Has(querySignature) {
				t.Fatalf("credentials taken for none: %q", text)
			}
			return
		}
		if want := plainSignature(r, res); want != res.signature {
			t.Fatalf("verified %s, the plain reading is %s: %q", res.signature, want, text)
		}
	})
}

// plainSignature is the specification, written down without regard to cost.
func plainSignature(r *http.Request, res *Result) string {
	enc := func(s string) string {
		var b strings.Builder
		for i := range len(s) {
			b.WriteString(string(appendEncoded(nil, s[i])))
		}
		return b.String()
	}
	var params []string
	var keys []string
	for _, p := range strings.Split(r.URL.RawQuery, "&") {
		k, v, _ := strings.Cut(p, "=")
		k, _ = url.QueryUnescape(k)
		v, _ = url.QueryUnescape(v)
		if p == "" || res.Presigned && k == querySignature {
			continue
		}
		keys = append(keys, enc(k)+"\x00"+enc(v))
	}
	sort.Strings(keys)
	for _, k := range keys {
		params = append(params, strings.Replace(k, "\x00", "=", 1))
	}
	var heads string
	for _, name := range res.SignedHeaders {
		var v string
		switch name {
		case "host":
			v = r.Host
		case "content-length":
			v = r.Header.Get("Content-Length")
			if v == "" {
				v = "0"
			}
		default:
			all := r.Header.Values(name)
			for i := range all {
				all[i] = strings.Join(strings.FieldsFunc(all[i], func(c rune) bool { return c == ' ' || '\t' <= c && c <= '\r' }), " ")
			}
			v = strings.Join(all, ",")
		}
		heads += name + ":" + v + "\n"
	}
	hash := r.URL.Query().Get(queryContentSHA256)
	if hash == "" || !res.Presigned {
		hash = r.Header.Get("X-Amz-Content-Sha256")
	}
	if hash == "" {
		hash = unsignedPayload
	}
	path := strings.ReplaceAll(enc(r.URL.Path), "%2F", "/")
	if path == "" {
		path = "/"
	}
	cr := strings.Join([]string{r.Method, path, strings.Join(params, "&"), heads, strings.Join(res.SignedHeaders, ";"), hash}, "\n")
	sum := sha256.Sum256([]byte(cr))
	scope := strings.Split(res.scope, "/")
	k := mac([]byte("AWS4"+exampleSecret), scope[0])
	for _, part := range scope[1:] {
		k = mac(k, part)
	}
	return hex.EncodeToString(mac(k, "AWS4-HMAC-SHA256\n"+res.date+"\n"+res.scope+"\n"+hex.EncodeToString(sum[:])))
}

// FuzzSigned has the AWS SDK's signer sign any key, query and header, and
// expects the verifier to agree with it.
func FuzzSigned(f *testing.F) {
	for _, k := range oddKeys {
		f.Add(k, "prefix", k, "v")
	}
	f.Add("k", "a", "b", "  two  spaces ")
	aw := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	f.Fuzz(func(t *testing.T, key, param, value, head string) {
		// What SDKs cannot send: bytes that a header cannot carry, white space
		// that they treat differently from each other, keys that are no text.
		for _, c := range []byte(head) {
			if c < ' ' || c == 0x7f {
				return
			}
		}
		if strings.ToValidUTF8(key, "") != key {
			return
		}
		u := &url.URL{Scheme: "http", Host: "h:1", Path: "/b/" + key}
		u.RawPath = s3utils.EncodePath(u.Path)
		u.RawQuery = url.QueryEscape(param) + "=" + url.QueryEscape(value)
		r, err := http.NewRequest("GET", "http://h", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL, r.Host = u, u.Host
		r.Header.Set("X-Amz-Meta-Fuzz", head)
		r.Header.Set("X-Amz-Content-Sha256", EmptySHA256)
		if err := aw.SignHTTP(context.Background(), exampleCreds, r, EmptySHA256, "s3", "r", exampleTime); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			return
		}
		got := received(t, b.String())
		_, err = verifierAt(exampleTime).Verify(got)
		switch param {
		case queryAlgorithm, queryCredential, querySignature, queryToken: // not a plain parameter
			return
		}
		if err != nil {
			t.Fatalf("%v\n%s\n%q", err, err.(*Error).CanonicalRequest, b.String())
		}
	})
}
