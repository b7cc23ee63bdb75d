package conformance

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// plain sends a request as a browser would: no header but what is given.
func (e *env) plain(method string, u *url.URL, body []byte) reply {
	e.Helper()
	r, err := http.NewRequestWithContext(e.ctx, method, u.String(), bytes.NewReader(body))
	e.ok(err)
	r.URL = u
	if len(body) == 0 {
		r.Body = http.NoBody
	}
	return e.send(r)
}

func presignCases() []kase {
	// presigned returns a URL signed by hand at a time of our choice.
	presigned := func(e *env, method, path string, at time.Time, expires time.Duration) *url.URL {
		r := e.build(req{Method: method, Path: path})
		e.signer(nil, at).presign(r, expires)
		return r.URL
	}
	return slices.Concat(
		both("presign/GetObject/odd-keys", func(e *env, c sdk) {
			b := e.bucket()
			for _, k := range []string{"plain", "with space+plus/%25", "ünï", "a//b", "~"} {
				e.put(b, k, []byte(k))
				u, err := c.Presign(e.ctx, "GET", b, k, time.Hour)
				e.ok(err)
				a := e.plain("GET", u, nil)
				e.accepted(a, 200)
				e.same(a.Body, []byte(k))
			}
		}),
		both("presign/HeadObject/size", func(e *env, c sdk) {
			b := e.bucket()
			e.put(b, "k", data(1, 1234))
			u, err := c.Presign(e.ctx, "HEAD", b, "k", time.Hour)
			e.ok(err)
			a := e.plain("HEAD", u, nil)
			e.accepted(a, 200)
			equal(e, "Content-Length", a.Header.Get("Content-Length"), "1234")
		}),
		both("presign/PutObject/stores", func(e *env, c sdk) {
			b := e.bucket()
			u, err := c.Presign(e.ctx, "PUT", b, "k", time.Hour)
			e.ok(err)
			body := data(2, 100_000)
			e.accepted(e.plain("PUT", u, body), 200)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, body)
		}),
		both("presign/GetObject/other-method-or-key", func(e *env, c sdk) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			u, err := c.Presign(e.ctx, "GET", b, "k", time.Hour)
			e.ok(err)
			e.denied(e.plain("PUT", u, []byte("y")), 403, "SignatureDoesNotMatch")
			u.Path, u.RawPath = "/"+b+"/other", ""
			e.denied(e.plain("GET", u, nil), 403, "SignatureDoesNotMatch")
		}),
		one("presign/GetObject/range-and-x-id", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("0123456789"))
			u, err := e.aws.Presign(e.ctx, "GET", b, "k", time.Hour)
			e.ok(err)
			if !strings.Contains(u.RawQuery, "x-id=GetObject") {
				e.Skip("this SDK no longer adds x-id")
			}
			r, err := http.NewRequestWithContext(e.ctx, "GET", u.String(), nil)
			e.ok(err)
			r.Header.Set("Range", "bytes=2-4")
			a := e.send(r)
			equal(e, "status", a.Status, 206)
			e.same(a.Body, []byte("234"))
		}),
		one("presign/GetObject/expired", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			a := e.plain("GET", presigned(e, "GET", "/"+b+"/k", time.Now().Add(-2*time.Hour), time.Hour), nil)
			e.denied(a, 403, "AccessDenied")
			e.accepted(e.plain("GET", presigned(e, "GET", "/"+b+"/k", time.Now().Add(-2*time.Hour), 3*time.Hour), nil), 200)
		}),
		one("presign/GetObject/not-yet-valid", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			a := e.plain("GET", presigned(e, "GET", "/"+b+"/k", time.Now().Add(2*time.Hour), time.Hour), nil)
			equal(e, "status", a.Status, 403)
		}),
		one("presign/GetObject/bad-parameters", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			for name, change := range map[string]func(url.Values){
				"expires-too-long":   func(q url.Values) { q.Set("X-Amz-Expires", "604801") },
				"expires-negative":   func(q url.Values) { q.Set("X-Amz-Expires", "-1") },
				"expires-nonsense":   func(q url.Values) { q.Set("X-Amz-Expires", "soon") },
				"no-expires":         func(q url.Values) { q.Del("X-Amz-Expires") },
				"no-date":            func(q url.Values) { q.Del("X-Amz-Date") },
				"no-credential":      func(q url.Values) { q.Del("X-Amz-Credential") },
				"credential-short":   func(q url.Values) { q.Set("X-Amz-Credential", "a/b") },
				"another-algorithm":  func(q url.Values) { q.Set("X-Amz-Algorithm", "AWS4-HMAC-MD5") },
				"no-signed-headers":  func(q url.Values) { q.Del("X-Amz-SignedHeaders") },
				"host-is-not-signed": func(q url.Values) { q.Set("X-Amz-SignedHeaders", "range") },
			} {
				u := presigned(e, "GET", "/"+b+"/k", time.Now(), time.Hour)
				q := u.Query()
				change(q)
				u.RawQuery = q.Encode()
				a := e.plain("GET", u, nil)
				if a.Status != 400 && a.Status != 403 || a.Code == "" {
					e.Errorf("%s: answered %d %q, want 400 or 403 with a code", name, a.Status, a.Code)
				}
			}
		}),
		one("presign/GetObject/signature-v2-is-refused-clearly", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Query: "AWSAccessKeyId=" + e.AccessKey + "&Expires=4102444800&Signature=abcd", Anon: true})
			if a.Status != 400 && a.Status != 403 || !strings.Contains(strings.ToLower(a.Fields["Message"]), "aws4-hmac-sha256") && !strings.Contains(strings.ToLower(a.Fields["Message"]), "version 4") {
				e.Errorf("answered %d %s %q, want an error that names Signature Version 4", a.Status, a.Code, a.Fields["Message"])
			}
		}),
	)
}

func authCases() []kase {
	get := func(e *env, q req) reply {
		e.Helper()
		b := e.bucket()
		e.put(b, "k", []byte("x"))
		q.Method, q.Path = "GET", "/"+b+"/k"
		return e.do(q)
	}
	return slices.Concat(
		one("auth/GetObject/anonymous", func(e *env) { e.denied(get(e, req{Anon: true}), 403, "AccessDenied") }),
		one("auth/GetObject/wrong-secret", func(e *env) {
			e.denied(get(e, req{Key: &TenantKey{AccessKey: e.AccessKey, SecretKey: e.SecretKey + "x"}}), 403, "SignatureDoesNotMatch")
		}),
		one("auth/GetObject/unknown-access-key", func(e *env) {
			e.denied(get(e, req{Key: &TenantKey{AccessKey: "AKIANOBODY", SecretKey: e.SecretKey}}), 403, "InvalidAccessKeyId")
		}),
		one("auth/GetObject/changed-after-signing", func(e *env) {
			for name, change := range map[string]func(*http.Request){
				"query":         func(r *http.Request) { r.URL.RawQuery = "response-content-type=text%2Fhtml" },
				"signed-header": func(r *http.Request) { r.Header.Set("Range", "bytes=0-0") },
				"path":          func(r *http.Request) { r.URL.Path, r.URL.RawPath = r.URL.Path+"2", "" },
				"method":        func(r *http.Request) { r.Method = "DELETE" },
			} {
				a := get(e, req{Header: map[string]string{"Range": "bytes=0-99"}, Mangle: change})
				if a.Status != 403 || a.Code != "SignatureDoesNotMatch" {
					e.Errorf("%s: %d %s, want 403 SignatureDoesNotMatch", name, a.Status, a.Code)
				}
			}
		}),
		one("auth/GetObject/clock-skew", func(e *env) {
			e.denied(get(e, req{At: time.Now().Add(-20 * time.Minute)}), 403, "RequestTimeTooSkewed")
			e.denied(get(e, req{At: time.Now().Add(20 * time.Minute)}), 403, "RequestTimeTooSkewed")
			e.accepted(get(e, req{At: time.Now().Add(-10 * time.Minute)}), 200)
		}),
		one("auth/GetObject/malformed-authorization", func(e *env) {
			for _, v := range []string{"", "Basic Zm9vOmJhcg==", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=x", "AWS4-HMAC-SHA256 Credential=a/b/c/d/e,SignedHeaders=host,Signature=zz", "AWS " + e.AccessKey + ":sig"} {
				a := get(e, req{Mangle: func(r *http.Request) { r.Header.Set("Authorization", v) }})
				if a.Status != 400 && a.Status != 403 || a.Code == "" {
					e.Errorf("%q: answered %d %q, want 400 or 403 with a code", v, a.Status, a.Code)
				}
			}
		}),
		one("auth/GetObject/wrong-region", func(e *env) {
			b := e.bucket()
			r := e.build(req{Method: "GET", Path: "/" + b + "/k"})
			s := e.signer(nil, time.Now())
			s.region = "mars-north-1"
			s.sign(r, emptySHA256)
			e.denied(e.send(r), 400, "AuthorizationHeaderMalformed")
		}),
		one("auth/GetObject/no-content-sha256", func(e *env) {
			a := get(e, req{Mangle: func(r *http.Request) { r.Header.Del("X-Amz-Content-Sha256") }})
			if a.Status != 400 && a.Status != 403 {
				e.Errorf("answered %d %s, want 400 or 403", a.Status, a.Code)
			}
		}),
		one("auth/GetObject/spaces-in-headers", func(e *env) {
			a := get(e, req{Header: map[string]string{"X-Amz-Meta-Spaced": "  a   b  "}})
			e.accepted(a, 200)
		}),
		one("auth/GetObject/repeated-query", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			e.accepted(e.do(req{Method: "GET", Path: "/" + b + "/k", Query: "z=2&a=b%20c&z=1&A=&empty"}), 200)
		}),
		one("auth/PutObject/unsigned-header-is-fine-if-not-amz", func(e *env) {
			b := e.bucket()
			e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x"), Header: map[string]string{"X-Trace": "1", "Content-Type": "text/plain"}, Skip: []string{"x-trace", "content-type"}}), 200)
		}),
		one("auth/GetObject/healthy-after-all-that", func(e *env) { e.accepted(get(e, req{}), 200) }),
	)
}

// hostCases address buckets by host name.
func hostCases() []kase {
	// virtual returns SDKs that put the bucket into the host.
	virtual := func(e *env) []sdk {
		if e.Domain == "" {
			e.Skip("the target has no domain for virtual-host style")
		}
		_, port, _ := strings.Cut(e.host, ":")
		host := e.Domain + ":" + port
		return []sdk{
			newMinio(e.T, e.shared, e.AccessKey, e.SecretKey, e.client.Transport, host, true),
			newAWS(e.shared, e.AccessKey, e.SecretKey, e.client, e.scheme+"://"+host, true),
		}
	}
	return slices.Concat(
		one("host/PutObject/odd-keys", func(e *env) {
			for _, c := range virtual(e) {
				b := e.bucket()
				for _, k := range []string{"plain", "with space+/%2F", "a//b", "/lead", "ünï/", "../up"} {
					body := []byte(k)
					_, err := c.Put(e.ctx, b, k, body, putOpts{})
					e.ok(err)
					g, err := e.aws.Get(e.ctx, b, k, getOpts{}) // by path style
					e.ok(err)
					e.same(g.Body, body)
					g, err = c.Get(e.ctx, b, k, getOpts{Range: "bytes=1-2", IfMatch: md5Hex(body)})
					e.ok(err)
					e.same(g.Body, body[1:3])
				}
			}
		}),
		one("host/ListObjectsV2/all", func(e *env) {
			for _, c := range virtual(e) {
				b := e.tree()
				objects, _ := e.listAll(c, b, listOpts{Max: 5})
				equal(e, "keys", len(objects), len(tree))
				loc, err := c.Location(e.ctx, b)
				e.ok(err)
				equal(e, "location", loc, e.Region)
			}
		}),
		one("host/CreateBucket/and-delete", func(e *env) {
			for _, c := range virtual(e) {
				name := e.newName()
				e.ok(c.MakeBucket(e.ctx, name))
				e.ok(c.HeadBucket(e.ctx, name))
				e.ok(c.RemoveBucket(e.ctx, name))
				e.fails(c.HeadBucket(e.ctx, name), 404, "")
			}
		}),
		one("host/UploadPart/multipart", func(e *env) {
			for _, c := range virtual(e) {
				b := e.bucket()
				id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
				e.ok(err)
				parts := e.uploadParts(c, b, "k", id, [][]byte{data(1, 100_000)})
				_, err = c.Complete(e.ctx, b, "k", id, parts)
				e.ok(err)
				g, err := c.Get(e.ctx, b, "k", getOpts{})
				e.ok(err)
				e.same(g.Body, data(1, 100_000))
			}
		}),
		one("host/GetObject/presigned", func(e *env) {
			for _, c := range virtual(e) {
				b := e.bucket()
				e.put(b, "a b", []byte("x"))
				u, err := c.Presign(e.ctx, "GET", b, "a b", time.Hour)
				e.ok(err)
				if !strings.HasPrefix(u.Host, b+".") {
					e.Fatalf("presigned host is %s", u.Host)
				}
				a := e.plain("GET", u, nil)
				e.accepted(a, 200)
				e.same(a.Body, []byte("x"))
			}
		}),
	)
}
