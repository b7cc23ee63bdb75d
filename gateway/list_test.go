package gateway

import (
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"
)

type listedPage struct {
	Name, Prefix, Marker, NextMarker, StartAfter, Delimiter, EncodingType string
	NextContinuationToken, ContinuationToken                              string
	KeyCount                                                              *int
	MaxKeys                                                               int
	IsTruncated                                                           bool
	Contents                                                              []struct {
		Key, ETag, LastModified, StorageClass string
		Size                                  int64
		Owner                                 *struct{ ID, DisplayName string }
	}
	CommonPrefixes []struct{ Prefix string }
}

func (h *harness) listPage(t testing.TB, bucket string, q url.Values) listedPage {
	t.Helper()
	a := h.want(t, 200, wireRequest{method: "GET", target: "/" + bucket + "?" + q.Encode()})
	var p listedPage
	if err := xml.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return p
}

// listAll lists a bucket by version 2 with URL encoding and decodes the keys.
func (h *harness) listAll(t testing.TB, bucket, prefix string) []string {
	t.Helper()
	var keys []string
	q := url.Values{"list-type": {"2"}, "prefix": {prefix}, "encoding-type": {"url"}}
	for {
		p := h.listPage(t, bucket, q)
		for _, c := range p.Contents {
			k, err := url.PathUnescape(c.Key)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k)
		}
		if !p.IsTruncated {
			return keys
		}
		q.Set("continuation-token", p.NextContinuationToken)
	}
}

// modelList is a listing worked out the slow way, as one list of entries.
func modelList(keys []string, prefix, delimiter, after string) []string {
	set := map[string]bool{}
	for _, k := range keys {
		if !strings.HasPrefix(k, prefix) || k <= after {
			continue
		}
		if delimiter != "" {
			if i := strings.Index(k[len(prefix):], delimiter); i >= 0 {
				cp := k[:len(prefix)+i+len(delimiter)]
				if cp > after {
					set["P "+cp] = true
				}
				continue
			}
		}
		set["K "+k] = true
	}
	var out []string
	for e := range set {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i][2:] < out[j][2:] })
	return out
}

func TestListAgainstModel(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "/", "//", "-", " ", "+", "é", "%", "z"}
	seen := map[string]bool{}
	for len(seen) < 60 {
		k := ""
		for range 1 + r.IntN(5) {
			k += alphabet[r.IntN(len(alphabet))]
		}
		if !seen[k] {
			seen[k] = true
			h.put(t, "/box/"+uriEncode(k, true), []byte(k))
		}
	}
	var keys []string
	for k := range seen {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a/", "/", "é", "nothing"} {
		for _, delimiter := range []string{"", "/", "//", "b"} {
			for _, page := range []int{1, 7, 1000} {
				if page == 1 && prefix != "" && delimiter != "/" {
					continue // a request per key: once per delimiter is enough
				}
				for _, version := range []int{1, 2} {
					want := modelList(keys, prefix, delimiter, "")
					got := h.walk(t, prefix, delimiter, page, version)
					if !slices.Equal(got, want) {
						t.Fatalf("v%d prefix %q delimiter %q pages of %d:\n got %q\nwant %q", version, prefix, delimiter, page, got, want)
					}
				}
			}
			for _, after := range []string{keys[0], keys[20], "a/", "zzzz"} {
				want := modelList(keys, prefix, delimiter, after)
				for name, q := range map[string]url.Values{"marker": {}, "start-after": {"list-type": {"2"}}} {
					q.Set(name, after)
					q.Set("prefix", prefix)
					q.Set("delimiter", delimiter)
					if got := entries(h.listPage(t, "box", q)); !slices.Equal(got, want) {
						t.Fatalf("%s %q prefix %q delimiter %q:\n got %q\nwant %q", name, after, prefix, delimiter, got, want)
					}
				}
			}
		}
	}
}

// walk pages through a listing as a client does.
func (h *harness) walk(t testing.TB, prefix, delimiter string, page, version int) []string {
	t.Helper()
	q := url.Values{"prefix": {prefix}, "delimiter": {delimiter}, "max-keys": {fmt.Sprint(page)}}
	if version == 2 {
		q.Set("list-type", "2")
	}
	var all []string
	for {
		p := h.listPage(t, "box", q)
		e := entries(p)
		if len(e) > page || p.IsTruncated && len(e) == 0 {
			t.Fatalf("a page of %d entries (truncated %v), at most %d asked for", len(e), p.IsTruncated, page)
		}
		if version == 2 && (p.KeyCount == nil || *p.KeyCount != len(e)) {
			t.Fatalf("KeyCount %v with %d entries", p.KeyCount, len(e))
		}
		all = append(all, e...)
		if !p.IsTruncated {
			return all
		}
		switch {
		case version == 2:
			q.Set("continuation-token", p.NextContinuationToken)
		case delimiter != "":
			q.Set("marker", p.NextMarker)
		default:
			if p.NextMarker != "" {
				t.Fatal("NextMarker without a delimiter")
			}
			q.Set("marker", p.Contents[len(p.Contents)-1].Key)
		}
	}
}

// entries merges keys and prefixes of a page in order.
func entries(p listedPage) []string {
	var out []string
	for _, c := range p.Contents {
		out = append(out, "K "+c.Key)
	}
	for _, c := range p.CommonPrefixes {
		out = append(out, "P "+c.Prefix)
	}
	sort.Slice(out, func(i, j int) bool { return out[i][2:] < out[j][2:] })
	return out
}

func TestListDetails(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	for _, k := range []string{"a b+c", "d/e", "\x01"} {
		h.put(t, "/box/"+uriEncode(k, true), []byte("x"))
	}
	p := h.listPage(t, "box", url.Values{"encoding-type": {"url"}, "prefix": {"a "}, "marker": {"a "}})
	if len(p.Contents) != 1 || p.Contents[0].Key != "a%20b%2Bc" || p.Prefix != "a%20" || p.Marker != "a%20" || p.EncodingType != "url" {
		t.Errorf("url encoding: %+v", p)
	}
	p = h.listPage(t, "box", url.Values{"encoding-type": {"url"}})
	if p.Contents[0].Key != "%01" || p.Contents[2].Key != "d/e" {
		t.Errorf("url encoding: %+v", p)
	}
	p = h.listPage(t, "box", url.Values{"list-type": {"2"}})
	if p.Contents[0].Owner != nil || p.Contents[1].ETag != `"9dd4e461268c8034f5c8564e155c67a6"` || p.Contents[1].Size != 1 || p.Contents[1].StorageClass != "STANDARD" {
		t.Errorf("contents: %+v", p.Contents)
	}
	p = h.listPage(t, "box", url.Values{"list-type": {"2"}, "fetch-owner": {"true"}})
	if p.Contents[0].Owner == nil || p.Contents[0].Owner.DisplayName != "root" {
		t.Errorf("owner: %+v", p.Contents[0])
	}
	for _, version := range []string{"", "list-type=2&"} {
		for query, want := range map[string]int{"max-keys=0": 0, "max-keys=5000": 1000, "max-keys=": 1000, "": 1000, "max-keys=2": 2} {
			q, err := url.ParseQuery(version + query)
			if err != nil {
				t.Fatal(err)
			}
			p := h.listPage(t, "box", q)
			if p.MaxKeys != want || p.IsTruncated != (want == 2) {
				t.Errorf("%s%s: MaxKeys %d truncated %v, want %d", version, query, p.MaxKeys, p.IsTruncated, want)
			}
		}
		for _, query := range []string{"max-keys=-1", "max-keys=x", "max-keys=99999999999", "encoding-type=base64"} {
			h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/box?" + version + query})
		}
	}
	for _, query := range []string{"list-type=3", "list-type=2&continuation-token=", "list-type=2&continuation-token=garbage",
		"list-type=2&continuation-token=" + encodeToken("a")[1:], "list-type=2&fetch-owner=perhaps"} {
		h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/box?" + query})
	}
	h.wantCode(t, "NoSuchBucket", wireRequest{method: "GET", target: "/nobox?list-type=2"})
}

func FuzzToken(f *testing.F) {
	f.Add("key", "AQAA")
	f.Fuzz(func(t *testing.T, key, token string) {
		if key != "" {
			if got, err := decodeToken(encodeToken(key)); err != nil || got != key {
				t.Fatalf("%q comes back as %q %v", key, got, err)
			}
		}
		if k, err := decodeToken(token); err == nil && encodeToken(k) != token {
			t.Fatalf("%q and %q both mean %q", token, encodeToken(k), k)
		}
	})
}
