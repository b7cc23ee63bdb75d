package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway/sigv4"
	"github.com/objcached/objcached/storage"
)

// TestNotImplemented asks for every sub-resource by every method at every
// level: whatever is not in the table is 501, never another operation's success.
func TestNotImplemented(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("hello"))
	offered := func(method string, lvl level, sub string) bool {
		for _, op := range operations {
			if op.method == method && op.level == lvl {
				for _, q := range op.query {
					if q == sub {
						return true
					}
				}
			}
		}
		return false
	}
	methods := []string{"GET", "PUT", "POST", "DELETE"}
	for sub := range subresources {
		for lvl, target := range map[level]string{onService: "/", onBucket: "/box", onObject: "/box/k"} {
			for _, m := range methods {
				if offered(m, lvl, sub) {
					continue
				}
				form := sub
				if m == "PUT" {
					form += "=" // the same
				}
				h.wantCode(t, "NotImplemented", wireRequest{method: m, target: target + "?" + form})
			}
		}
	}
	for _, m := range []string{"PUT", "DELETE"} {
		h.wantCode(t, "MethodNotAllowed", wireRequest{method: m, target: "/"})
	}
	for _, target := range []string{"/", "/box", "/box/k"} {
		for _, m := range []string{"PATCH", "OPTIONS", "BREW"} {
			a := h.wantCode(t, "MethodNotAllowed", wireRequest{method: m, target: target})
			want := map[string]string{"/": "GET, POST", "/box": "DELETE, GET, HEAD, POST, PUT", "/box/k": "DELETE, GET, HEAD, POST, PUT"}[target]
			if got := a.Header.Get("Allow"); got != want {
				t.Errorf("%s %s: Allow %q, want %q", m, target, got, want)
			}
		}
	}
	h.wantCode(t, "NotImplemented", wireRequest{method: "POST", target: "/box"})
	h.wantCode(t, "NotImplemented", wireRequest{method: "POST", target: "/"})
	a := h.want(t, 501, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"x-amz-rdma-token": "t"}})
	if a.Header.Get("x-amz-rdma-reply") != "501" {
		t.Errorf("x-amz-rdma-reply %q, want 501", a.Header.Get("x-amz-rdma-reply"))
	}
	if a := h.want(t, 200, wireRequest{method: "GET", target: "/box/k?versionId=null&x-id=GetObject&unknown=1"}); string(a.body) != "hello" {
		t.Errorf("the null version is %q", a.body)
	}
	if got := h.listAll(t, "box", ""); len(got) != 1 {
		t.Errorf("refused requests left %v", got)
	}
}

// TestUploadsForms: a sub-resource is the same with and without "=".
func TestUploadsForms(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	for _, form := range []string{"uploads", "uploads="} {
		a := h.want(t, 200, wireRequest{method: "POST", target: "/box/k?" + form})
		if element(a.body, "UploadId") == "" {
			t.Errorf("%s: %s", form, a.body)
		}
		h.want(t, 200, wireRequest{method: "GET", target: "/box?" + form})
	}
}

// TestReach checks who may do what to whose buckets.
func TestReach(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.want(t, 200, wireRequest{method: "PUT", target: "/alice-1", user: aliceKey})
	h.want(t, 200, wireRequest{method: "PUT", target: "/mallory-1", user: malloryID})
	h.bucket(t, "roots-own")
	h.want(t, 200, wireRequest{method: "PUT", target: "/alice-1/k", body: []byte("hello"), user: aliceKey})
	for _, q := range []wireRequest{
		{method: "GET", target: "/alice-1/k"}, {method: "HEAD", target: "/alice-1/k"}, {method: "PUT", target: "/alice-1/k"},
		{method: "DELETE", target: "/alice-1/k"}, {method: "GET", target: "/alice-1"}, {method: "HEAD", target: "/alice-1"},
		{method: "DELETE", target: "/alice-1"}, {method: "PUT", target: "/alice-1"}, {method: "GET", target: "/alice-1?location"},
		{method: "POST", target: "/alice-1?delete"}, {method: "POST", target: "/alice-1/k?uploads"}, {method: "GET", target: "/alice-1?uploads"},
		{method: "GET", target: "/alice-2"}, {method: "PUT", target: "/alice-2"}, // it does not exist
		{method: "POST", target: "/alice-1?kv-get"}, {method: "POST", target: "/alice-1?kv-match"},
		{method: "GET", target: "/roots-own"}, {method: "PUT", target: "/other"},
	} {
		for _, user := range []string{malloryID, "-"} {
			q.user = user
			a := h.want(t, 403, q)
			if q.method != "HEAD" && a.code() != "AccessDenied" {
				t.Errorf("%s %s as %s: %s", q.method, q.target, user, a.body)
			}
		}
	}
	// What is said of a bucket out of reach does not depend on whether it exists.
	strip := regexp.MustCompile(`<(RequestId|Resource)>[^<]*</`)
	there := h.want(t, 403, wireRequest{method: "GET", target: "/alice-1", user: malloryID})
	gone := h.want(t, 403, wireRequest{method: "GET", target: "/alice-9", user: malloryID})
	if a, b := strip.ReplaceAllString(string(there.body), ""), strip.ReplaceAllString(string(gone.body), ""); a != b {
		t.Errorf("an existing bucket is told from a missing one:\n%s\n%s", a, b)
	}
	h.wantCode(t, "NoSuchBucket", wireRequest{method: "GET", target: "/mallory-9", user: malloryID})
	// Copying reads the source: that needs a right of its own.
	copyFrom := map[string]string{"x-amz-copy-source": "/alice-1/k"}
	h.wantCode(t, "AccessDenied", wireRequest{method: "PUT", target: "/mallory-1/k", user: malloryID, header: copyFrom})
	for user, want := range map[string]string{aliceKey: "alice-1", malloryID: "mallory-1", "": "alice-1,mallory-1,roots-own"} {
		a := h.want(t, 200, wireRequest{method: "GET", target: "/", user: user})
		var names []string
		for _, m := range regexp.MustCompile(`<Name>([^<]*)</Name>`).FindAllSubmatch(a.body, -1) {
			names = append(names, string(m[1]))
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%q sees the buckets %s, want %s", user, got, want)
		}
	}
	h.want(t, 200, wireRequest{method: "GET", target: "/alice-1/k"}) // root may
}

func TestCreateBucketRules(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, name := range []string{"ab", "A-b-c", "a_b", "-abc", "abc-", "a..b", "a.-b", "a-.b", ".abc", "abc.", "192.168.0.1", strings.Repeat("a", 64), "a%2Fb"} {
		h.wantCode(t, "InvalidBucketName", wireRequest{method: "PUT", target: "/" + name})
	}
	for _, name := range []string{"abc", "a-b.c-d", "1a2", strings.Repeat("a", 63), "a--b"} {
		h.bucket(t, name)
	}
	doc := func(inner string) []byte {
		return []byte(`<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + inner + `</CreateBucketConfiguration>`)
	}
	h.want(t, 200, wireRequest{method: "PUT", target: "/loc1", body: doc("<LocationConstraint>us-east-1</LocationConstraint>")})
	h.want(t, 200, wireRequest{method: "PUT", target: "/loc2", body: doc("")})
	for _, c := range []struct {
		body []byte
		code string
	}{
		{doc("<LocationConstraint>mars</LocationConstraint>"), "InvalidLocationConstraint"},
		{doc("<Tags/>"), "NotImplemented"},
		{[]byte("<x/>"), "MalformedXML"},
		{[]byte("no xml"), "MalformedXML"},
		{append(doc(""), "<more/>"...), "MalformedXML"},
		{[]byte("<CreateBucketConfiguration>" + strings.Repeat(" ", maxConfigBody)), "MalformedXML"},
	} {
		h.wantCode(t, c.code, wireRequest{method: "PUT", target: "/loc3", body: c.body})
	}
	h.wantCode(t, "NoSuchBucket", wireRequest{method: "GET", target: "/loc3"})
	h.wantCode(t, "NotImplemented", wireRequest{method: "PUT", target: "/loc3", header: map[string]string{"x-amz-bucket-object-lock-enabled": "true"}})
	h.wantCode(t, "BucketAlreadyOwnedByYou", wireRequest{method: "PUT", target: "/abc"})
	h.want(t, 200, wireRequest{method: "PUT", target: "/shared", user: aliceKey})
	h.wantCode(t, "BucketAlreadyExists", wireRequest{method: "PUT", target: "/shared"})
}

// TestErrorDocuments compares whole documents with golden files.
func TestErrorDocuments(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	id := map[string]string{"x-amz-request-id": "golden-1"}
	for name, q := range map[string]wireRequest{
		"NoSuchKey":        {method: "GET", target: "/box/a%3Cb%3E%26"},
		"NoSuchBucket":     {method: "GET", target: "/nobox"},
		"NoSuchUpload":     {method: "GET", target: "/box/k?uploadId=x%22"},
		"AccessDenied":     {method: "GET", target: "/box/k", user: "-"},
		"NotImplemented":   {method: "GET", target: "/box?inventory"},
		"MethodNotAllowed": {method: "PATCH", target: "/box/k"},
		"InvalidArgument":  {method: "GET", target: "/box?max-keys=many"},
		"KeyTooLong":       {method: "PUT", target: "/box/" + strings.Repeat("k", 1025)},
	} {
		q.header = id
		a := h.do(t, q)
		golden(t, name, a.body)
		if a.Header.Get("Content-Type") != "application/xml" || a.Header.Get("x-amz-request-id") != "golden-1" {
			t.Errorf("%s: headers %v", name, a.Header)
		}
	}
}

// TestErrorMapping: every error of the layers below has its S3 answer.
func TestErrorMapping(t *testing.T) {
	t.Parallel()
	r := &request{Key: "k", Bucket: "b", Query: url.Values{}, ID: "id"}
	for _, c := range []struct {
		err    error
		code   string
		status int
	}{
		{storage.ErrNoSuchBucket, "NoSuchBucket", 404}, {storage.ErrBucketExists, "BucketAlreadyExists", 409},
		{storage.ErrBucketNotEmpty, "BucketNotEmpty", 409}, {storage.ErrNoSuchKey, "NoSuchKey", 404},
		{storage.ErrNoSuchUpload, "NoSuchUpload", 404}, {storage.ErrInvalidPart, "InvalidPart", 400},
		{storage.ErrInvalidPartOrder, "InvalidPartOrder", 400}, {storage.ErrEntityTooSmall, "EntityTooSmall", 400},
		{storage.ErrPrecondition, "PreconditionFailed", 412}, {storage.ErrConflict, "ConditionalRequestConflict", 409},
		{storage.ErrIncompleteBody, "IncompleteBody", 400}, {storage.ErrInvalidRange, "InvalidRange", 416},
		{storage.ErrInvalidRequest, "InvalidRequest", 400}, {storage.ErrBadDigest, "BadDigest", 400},
		{storage.ErrTooManyBuckets, "TooManyBuckets", 400}, {storage.ErrTooManyUploads, "TooManyMultipartUploads", 400},
		{storage.ErrNoSpace, "InsufficientStorage", 507}, {storage.ErrClosed, "ServiceUnavailable", 503},
		{&storage.CorruptError{Bucket: "b", Key: "k"}, "InternalError", 500},
		{fmt.Errorf("anything"), "InternalError", 500},
		{&descriptor.FieldError{Field: "num_layers", Reason: "must be positive"}, "InvalidArgument", 400},
		{&descriptor.MissingError{Key: "c7", Matched: 7}, "NoSuchKey", 404},
		{&descriptor.ChunkSizeError{Key: "c7", Size: 1, Want: 2}, "InvalidArgument", 400},
		{&descriptor.BusyError{Limit: "deliveries"}, "SlowDown", 503},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			e := toAPIError(r, err)
			if e.Code != c.code || e.status() != c.status {
				t.Errorf("%v: %s %d, want %s %d", err, e.Code, e.status(), c.code, c.status)
			}
			if c.status == 503 && c.code == "SlowDown" && e.Header["Retry-After"] == "" {
				t.Errorf("%v: no Retry-After", err)
			}
		}
	}
	doc := string(errorDocument(r, toAPIError(r, &descriptor.FieldError{Field: "num_layers", Reason: "must be positive"})))
	if !strings.Contains(doc, "<ArgumentName>num_layers</ArgumentName>") {
		t.Error(doc)
	}
	e := toAPIError(r, &descriptor.MissingError{Key: "c7", Matched: 7})
	if e.Header["X-Kv-Matched"] != "7" || !strings.Contains(string(errorDocument(r, e)), "<Key>c7</Key>") {
		t.Errorf("%+v", e)
	}
	e = toAPIError(r, &descriptor.ChunkSizeError{Key: "c7", Size: 1, Want: 2})
	if !strings.Contains(string(errorDocument(r, e)), "<Key>c7</Key>") {
		t.Errorf("%+v", e)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for sent, kept := range map[string]bool{
		"abc-1.2_Z": true, "": false, "has space": false, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "a/b": false,
	} {
		for _, name := range []string{"x-request-id", "x-amz-request-id"} {
			a := h.want(t, 200, wireRequest{method: "GET", target: "/", header: map[string]string{name: sent}})
			got := a.Header.Get("x-amz-request-id")
			if kept != (got == sent) || got == "" {
				t.Errorf("%s %q gives %q", name, sent, got)
			}
		}
	}
}

// TestPanic: a handler that panics costs one request.
func TestPanic(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *Config) { c.Store = panicStore{c.Store} })
	h.bucket(t, "box")
	h.wantCode(t, "InternalError", wireRequest{method: "GET", target: "/box/k"})
	h.want(t, 200, wireRequest{method: "GET", target: "/"})
}

type panicStore struct{ storage.Store }

func (panicStore) Open(context.Context, string, string) (storage.Object, error) { panic("boom") }

// FuzzRequest throws targets and headers at the whole chain: it must answer
// each with a status line and never with a 500.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/box/k?partNumber=1", "Range", "bytes=0-")
	f.Add("PUT", "/box/k", "X-Amz-Copy-Source", "/box/k?versionId=x")
	f.Add("POST", "/box?delete", "Content-Md5", "x")
	f.Add("GET", "/box?list-type=2&continuation-token="+base64.RawURLEncoding.EncodeToString([]byte("\x01abcdx")), "X-Amz-Acl", "private")
	f.Add("GET", "/box?uploads&key-marker=a&upload-id-marker=b&max-uploads=0", "", "")
	h := newHarness(f)
	h.bucket(f, "box")
	h.put(f, "/box/k", []byte("hello"))
	h.g.auth = everyone{}
	f.Fuzz(func(t *testing.T, method, target, name, value string) {
		if !strings.HasPrefix(target, "/") || strings.ContainsAny(target, " \x00\r\n\t\x7f") || method == "" || strings.ContainsFunc(method, func(c rune) bool { return c < 'A' || c > 'Z' }) {
			t.Skip()
		}
		if _, err := url.ParseRequestURI(target); err != nil {
			t.Skip()
		}
		r := httptest.NewRequest(method, target, nil)
		if name != "" {
			r.Header[http.CanonicalHeaderKey(name)] = []string{value}
		}
		w := httptest.NewRecorder()
		h.g.ServeHTTP(w, r)
		if w.Code == 500 {
			t.Fatalf("%s %s: %s", method, target, w.Body)
		}
	})
}

// everyone lets everyone in as root.
type everyone struct{}

func (everyone) authenticate(r *request) error {
	r.Identity, r.Auth = testRegistry()[rootKey], &sigv4.Result{}
	return nil
}
