package gateway

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/objcached/objcached/gateway/sigv4"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
)

// request is one HTTP request with what the chain of middleware found out
// about it. A handler owns it for the length of the call.
type request struct {
	*http.Request
	ID         string // request id, also in the context (package reqid)
	Bucket     string // empty for the service itself
	Key        string // empty for the service or a bucket
	Query      url.Values
	Identity   *tenant.Identity
	Auth       *sigv4.Result
	BucketInfo storage.Bucket // set when the operation acts on an existing bucket

	op    *operation
	start time.Time
	body  *stallReader // the body as it comes from the wire
	in    bool         // the sender is known and within its tenant's limit
	err   error        // what was rendered, for the log
}

type requestKey struct{}

// requestOf returns the request that the first middleware made.
func requestOf(r *http.Request) *request {
	q := r.Context().Value(requestKey{}).(*request)
	q.Request = r
	return q
}

func withRequest(ctx context.Context, q *request) context.Context {
	return context.WithValue(ctx, requestKey{}, q)
}

// has reports whether a query parameter is present, with or without a value.
func (r *request) has(name string) bool {
	_, ok := r.Query[name]
	return ok
}

// opName is the operation's name for logs and metrics.
func (r *request) opName() string {
	if r.op == nil {
		return "none"
	}
	return r.op.name
}

// resource is the path that error documents name.
func (r *request) resource() string {
	if r.Bucket == "" {
		return "/"
	}
	if r.Key == "" {
		return "/" + r.Bucket
	}
	return "/" + r.Bucket + "/" + r.Key
}

// parseTarget fills in Bucket, Key and Query from the host and the escaped
// path. The path is not cleaned: "//", "..", "%2F" and a trailing "/" are
// ordinary parts of a key.
func (r *request) parseTarget(suffixes []string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fail("InvalidURI", "the query string is not valid: %v", err)
	}
	r.Query = q
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	bucket, ok := bucketOfHost(r.Host, suffixes)
	if !ok {
		var rest bool
		bucket, path, rest = strings.Cut(path, "/")
		if bucket == "" && rest {
			return fail("InvalidBucketName", "the bucket name is empty")
		}
		if bucket, err = url.PathUnescape(bucket); err != nil {
			return fail("InvalidURI", "the bucket name is not a valid path segment")
		}
	}
	r.Bucket = bucket
	if r.Key, err = url.PathUnescape(path); err != nil {
		return fail("InvalidURI", "the key is not a valid path")
	}
	return nil
}

// bucketOfHost returns the bucket named by a virtual-host style Host.
func bucketOfHost(host string, suffixes []string) (string, bool) {
	host = strings.ToLower(hostOnly(host))
	if isIP(host) {
		return "", false
	}
	best := ""
	for _, s := range suffixes {
		// The longest suffix wins: with domains a.b and b, x.a.b is bucket x.
		if host == s[1:] {
			return "", false
		}
		if len(s) > len(best) && len(host) > len(s) && strings.HasSuffix(host, s) {
			best = s
		}
	}
	if best == "" {
		return "", false
	}
	return host[:len(host)-len(best)], true
}

// hostOnly strips the port from a Host header.
func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

func isIP(host string) bool {
	return net.ParseIP(strings.Trim(host, "[]")) != nil
}
