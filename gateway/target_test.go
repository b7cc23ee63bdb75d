package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestTarget(t *testing.T) {
	suffixes := hostSuffixes([]string{"s3.test", "KV.s3.test.", "10.0.0.1", "localhost"})
	for _, c := range []struct{ host, target, bucket, key string }{
		{"h", "/", "", ""},
		{"h", "/b", "b", ""},
		{"h", "/b/", "b", ""},
		{"h", "/b/k", "b", "k"},
		{"h", "/b/k/", "b", "k/"},
		{"h", "/b//k", "b", "/k"},
		{"h", "/b/a//b", "b", "a//b"},
		{"h", "/b/../x", "b", "../x"},
		{"h", "/b/./x/..", "b", "./x/.."},
		{"h", "/b/a%2Fb", "b", "a/b"},
		{"h", "/b/a%2fb", "b", "a/b"},
		{"h", "/b/%2F", "b", "/"},
		{"h", "/b/a+b%20c%2B", "b", "a+b c+"},
		{"h", "/b/%E2%82%AC", "b", "€"},
		{"h", "/b/%25", "b", "%"},
		{"h", "/b/a%3Fb", "b", "a?b"},
		{"h", "/b/a;b=c", "b", "a;b=c"},
		{"127.0.0.1:9000", "/b/k", "b", "k"},
		{"[::1]:9000", "/b/k", "b", "k"},
		{"[::1]", "/b/k", "b", "k"},
		{"10.0.0.1", "/b/k", "b", "k"},
		{"b.10.0.0.1", "/c/k", "c", "k"}, // no virtual host below an address
		{"localhost", "/b/k", "b", "k"},
		{"b.localhost", "/k", "b", "k"},
		{"b.localhost:9000", "/", "b", ""},
		{"b.localhost", "/a/b", "b", "a/b"},
		{"b.localhost", "//", "b", "/"},
		{"B.LocalHost", "/K", "b", "K"},
		{"s3.test", "/b/k", "b", "k"},
		{"b.s3.test", "/k", "b", "k"},
		{"x.y.s3.test", "/k", "x.y", "k"},
		{"kv.s3.test", "/b/k", "b", "k"}, // a domain of its own, not bucket kv
		{"b.kv.s3.test", "/k", "b", "k"},
		{"other.test", "/b/k", "b", "k"},
		{"s3.test.evil", "/b/k", "b", "k"},
		{"", "/b/k", "b", "k"},
	} {
		hr := httptest.NewRequest("GET", "http://x"+c.target, nil)
		hr.Host = c.host
		r := &request{Request: hr}
		if err := r.parseTarget(suffixes); err != nil {
			t.Errorf("%s %s: %v", c.host, c.target, err)
			continue
		}
		if r.Bucket != c.bucket || r.Key != c.key {
			t.Errorf("%s %s: bucket %q key %q, want %q %q", c.host, c.target, r.Bucket, r.Key, c.bucket, c.key)
		}
	}
}

func TestTargetErrors(t *testing.T) {
	for _, c := range []struct{ target, code string }{
		{"/b/k?a=%zz", "InvalidURI"},
		{"/b/k?a;b", "InvalidURI"},
		{"//k", "InvalidBucketName"},
	} {
		hr := httptest.NewRequest(http.MethodGet, "/", nil)
		u, err := hr.URL.Parse("http://h" + c.target)
		if err != nil {
			t.Fatal(err)
		}
		hr.URL = u
		r := &request{Request: hr}
		err = r.parseTarget(hostSuffixes(nil))
		if e := toAPIError(r, err); err == nil || e.Code != c.code {
			t.Errorf("%s: %v, want %s", c.target, err, c.code)
		}
	}
}

// FuzzTarget looks for targets that are taken apart other than they were put
// together: whatever the bytes of a key, its escaped path names it.
func FuzzTarget(f *testing.F) {
	for _, k := range []string{"k", "a/b", "//", "..", "a%2Fb", "a b+c", "\x00\xff", "?x", "#", "é"} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, key string) {
		for _, target := range []string{"http://h/b/" + uriEncode(key, true), "http://h/b/" + uriEncode(key, false)} {
			u, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			r := &request{Request: &http.Request{URL: u, Host: "h"}}
			if err := r.parseTarget(nil); err != nil {
				t.Fatalf("%q: %v", target, err)
			}
			if r.Bucket != "b" || r.Key != key {
				t.Fatalf("%q: bucket %q key %q, want key %q", target, r.Bucket, r.Key, key)
			}
		}
	})
}
