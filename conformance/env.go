package conformance

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// caseTimeout bounds a case, so that a server that hangs fails the case and
// not the run.
const caseTimeout = 2 * time.Minute

// shared is what the cases of one run have in common.
type shared struct {
	Target
	host   string // host:port of the endpoint
	scheme string
	client *http.Client
	minio  *minioSDK
	aws    *awsSDK
	names  atomic.Int64
	stamp  string // makes bucket names of this run its own
}

func newShared(t *testing.T, target Target) *shared {
	t.Helper()
	if target.Region == "" {
		target.Region = "us-east-1"
	}
	u, err := url.Parse(target.Endpoint)
	if err != nil || u.Host == "" {
		t.Fatalf("endpoint %q is not scheme://host:port: %v", target.Endpoint, err)
	}
	s := &shared{Target: target, host: u.Host, scheme: u.Scheme, stamp: strconv.FormatInt(time.Now().UnixNano()%1e9, 36)}
	tr := s.transport()
	s.client = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(tr.CloseIdleConnections)
	s.minio = newMinio(t, s, target.AccessKey, target.SecretKey, tr, s.host, false)
	s.aws = newAWS(s, target.AccessKey, target.SecretKey, s.client, target.Endpoint, false)
	return s
}

// transport dials the endpoint for every name under Domain: a resolver need
// not know bucket names.
func (s *shared) transport() *http.Transport {
	d := &net.Dialer{}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			name, _, _ := net.SplitHostPort(addr)
			if s.Domain != "" && (name == s.Domain || strings.HasSuffix(name, "."+s.Domain)) {
				addr = s.host
			}
			return d.DialContext(ctx, network, addr)
		},
		TLSClientConfig:       &tls.Config{RootCAs: s.RootCAs},
		ExpectContinueTimeout: time.Minute,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   8,
	}
}

// env is what one case works with.
type env struct {
	*testing.T
	*shared
	ctx context.Context
}

func newEnv(t *testing.T, s *shared) *env {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	t.Cleanup(cancel)
	return &env{T: t, shared: s, ctx: ctx}
}

// newName returns a bucket name that no other case uses.
func (e *env) newName() string {
	return fmt.Sprintf("conf-%s-%d", e.stamp, e.names.Add(1))
}

// bucket makes a bucket that is emptied and deleted when the case ends.
func (e *env) bucket() string {
	e.Helper()
	name := e.newName()
	e.ok(e.aws.MakeBucket(e.ctx, name))
	e.Cleanup(func() { e.drop(e.aws, name) })
	return name
}

// drop empties and deletes a bucket as well as it can.
func (e *env) drop(c sdk, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	if ups, err := c.ListUploads(ctx, name, ""); err == nil {
		for _, u := range ups {
			_ = c.Abort(ctx, name, u.Key, u.ID)
		}
	}
	for {
		p, err := c.List(ctx, name, listOpts{})
		if err != nil {
			return
		}
		for _, o := range p.Objects {
			_ = c.Delete(ctx, name, o.Key)
		}
		if len(p.Objects) == 0 || !p.Truncated {
			break
		}
	}
	if err := c.RemoveBucket(ctx, name); err != nil && failureOf(err).Code != "NoSuchBucket" {
		e.Logf("bucket %s stays behind: %v", name, err)
	}
}

// put stores an object without looking further.
func (e *env) put(bucket, key string, body []byte) string {
	e.Helper()
	h, err := e.aws.Put(e.ctx, bucket, key, body, putOpts{})
	e.ok(err)
	return unquote(h.Get("ETag"))
}

// data returns n bytes that depend on the seed only.
func data(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), 1})
	_, _ = r.Read(b) // never fails
	return b
}

func md5Hex(b []byte) string {
	s := md5.Sum(b)
	return hex.EncodeToString(s[:])
}

func unquote(etag string) string { return strings.Trim(etag, `"`) }

// ok fails the case on an error.
func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

// same fails unless the bytes are equal, and says where they part.
func (e *env) same(got, want []byte) {
	e.Helper()
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	e.Errorf("body has %d bytes, want %d; they differ from byte %d on", len(got), len(want), i)
}

// equal fails unless got is want.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s is %v, want %v", what, got, want)
	}
}

// failure is an error as the wire told it.
type failure struct {
	Status int
	Code   string
}

// fails checks that err is an S3 error with this status and, unless it is
// empty, this code. HEAD has no body, so its cases give no code.
func (e *env) fails(err error, status int, code string) {
	e.Helper()
	if err == nil {
		e.Errorf("succeeded, want %d %s", status, code)
		return
	}
	f := failureOf(err)
	if f.Status != status || code != "" && f.Code != code {
		e.Errorf("failed with %d %s (%v), want %d %s", f.Status, f.Code, err, status, code)
	}
}

// req is a request signed by hand. Path and Query go out as they are.
type req struct {
	Method string
	Path   string // escaped, from the slash on
	Query  string // escaped, without "?"
	Host   string // in place of the endpoint's
	Header map[string]string
	Body   []byte
	// Payload is the payload hash to sign; empty: the body's SHA-256.
	Payload string
	Key     *TenantKey          // in place of the root pair
	Anon    bool                // not signed at all
	Skip    []string            // headers to leave unsigned, lower-case
	Mangle  func(*http.Request) // changes the signed request
	At      time.Time           // time of the signature; zero: now
}

// reply is an answer, wholly read.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
	Code   string            // of an error document
	Fields map[string]string // its elements
}

func (e *env) signer(k *TenantKey, at time.Time) signer {
	s := signer{access: e.AccessKey, secret: e.SecretKey, region: e.Region, at: at.UTC()}
	if k != nil {
		s.access, s.secret = k.AccessKey, k.SecretKey
	}
	return s
}

// build makes the request of q, not signed yet.
func (e *env) build(q req) *http.Request {
	e.Helper()
	host := e.host
	if q.Host != "" {
		host = q.Host
	}
	path, err := url.PathUnescape(q.Path)
	e.ok(err)
	u := &url.URL{Scheme: e.scheme, Host: host, Path: path, RawPath: q.Path, RawQuery: q.Query}
	r, err := http.NewRequestWithContext(e.ctx, q.Method, u.String(), bytes.NewReader(q.Body))
	e.ok(err)
	r.URL = u
	if len(q.Body) == 0 {
		r.Body = http.NoBody
	}
	for k, v := range q.Header {
		r.Header.Set(k, v)
	}
	return r
}

// do signs and sends a request and reads the answer.
func (e *env) do(q req) reply {
	e.Helper()
	r := e.build(q)
	if !q.Anon {
		at := q.At
		if at.IsZero() {
			at = time.Now()
		}
		payload := q.Payload
		if payload == "" {
			payload = hexSHA256(q.Body)
		}
		e.signer(q.Key, at).sign(r, payload, q.Skip...)
	}
	if q.Mangle != nil {
		q.Mangle(r)
	}
	return e.send(r)
}

// send sends a request as it is and reads the answer.
func (e *env) send(r *http.Request) reply {
	e.Helper()
	resp, err := e.client.Do(r)
	e.ok(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	e.ok(err)
	a := reply{Status: resp.StatusCode, Header: resp.Header, Body: body}
	if a.Status >= 300 && len(body) > 0 {
		a.Fields = elements(body)
		a.Code = a.Fields["Code"]
	}
	return a
}

// elements returns the child elements of a flat XML document.
func elements(doc []byte) map[string]string {
	out := map[string]string{}
	d := xml.NewDecoder(bytes.NewReader(doc))
	name, depth := "", 0
	for {
		tok, err := d.Token()
		if err != nil {
			return out
		}
		switch x := tok.(type) {
		case xml.StartElement:
			name = x.Name.Local
			depth++
		case xml.CharData:
			if depth == 2 {
				out[name] += string(x)
			}
		case xml.EndElement:
			depth--
		}
	}
}

// denied checks a reply for an error with a well-formed document.
func (e *env) denied(a reply, status int, code string) {
	e.Helper()
	if a.Status != status || a.Code != code {
		e.Errorf("answered %d %s, want %d %s; body: %.400s", a.Status, a.Code, status, code, a.Body)
		return
	}
	for _, want := range []string{"Message", "RequestId", "Resource"} {
		if a.Fields[want] == "" {
			e.Errorf("error document of %s lacks %s: %s", code, want, a.Body)
		}
	}
	if a.Header.Get("X-Amz-Request-Id") == "" {
		e.Errorf("answer with %s lacks x-amz-request-id", code)
	}
}

// accepted checks a reply for success.
func (e *env) accepted(a reply, status int) {
	e.Helper()
	if a.Status != status {
		e.Fatalf("answered %d %s, want %d; body: %.400s", a.Status, a.Code, status, a.Body)
	}
}
