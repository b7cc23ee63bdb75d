package gateway

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// tagDoc writes keys and values as the document of a PUT ?tagging.
func tagDoc(kv ...string) []byte {
	var b strings.Builder
	b.WriteString(`<Tagging xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><TagSet>`)
	for i := 0; i < len(kv); i += 2 {
		fmt.Fprintf(&b, "<Tag><Key>%s</Key><Value>%s</Value></Tag>", kv[i], kv[i+1])
	}
	return []byte(b.String() + "</TagSet></Tagging>")
}

// tags returns the tags of a target as "k=v,k=v".
func (h *harness) tags(t *testing.T, target string) string {
	t.Helper()
	var doc struct {
		XMLName xml.Name                      `xml:"http://s3.amazonaws.com/doc/2006-03-01/ Tagging"`
		Tag     []struct{ Key, Value string } `xml:"TagSet>Tag"`
	}
	a := h.want(t, 200, wireRequest{method: "GET", target: target + "?tagging"})
	if err := xml.Unmarshal(a.body, &doc); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	var out []string
	for _, x := range doc.Tag {
		out = append(out, x.Key+"="+x.Value)
	}
	return strings.Join(out, ",")
}

func TestObjectTagging(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	put := func(code int, body []byte) {
		t.Helper()
		h.want(t, code, wireRequest{method: "PUT", target: "/box/k?tagging", body: body})
	}
	want := func(target, tags, count string) {
		t.Helper()
		if got := h.tags(t, target); got != tags {
			t.Errorf("%s has the tags %q, want %q", target, got, tags)
		}
		for _, m := range []string{"GET", "HEAD"} {
			if got := h.want(t, 200, wireRequest{method: m, target: target}).Header.Get("x-amz-tagging-count"); got != count {
				t.Errorf("%s %s: x-amz-tagging-count %q, want %q", m, target, got, count)
			}
		}
	}
	etag := h.put(t, "/box/k", []byte("hello"))
	modified := h.want(t, 200, wireRequest{method: "HEAD", target: "/box/k"}).Header.Get("Last-Modified")
	want("/box/k", "", "")
	put(200, tagDoc("b", "2", "a", "", "ü ö", "x/y:z@+-=._"))
	want("/box/k", "b=2,a=,ü ö=x/y:z@+-=._", "3")
	put(200, tagDoc("only", "one"))
	want("/box/k", "only=one", "1")
	if a := h.want(t, 200, wireRequest{method: "HEAD", target: "/box/k"}); a.Header.Get("ETag") != etag || a.Header.Get("Last-Modified") != modified {
		t.Errorf("tags changed the object: %v", a.Header)
	}
	// By the header, and through copies.
	h.put(t, "/box/h", nil, "x-amz-tagging", "a=1&b%2B=x%20y+z&c")
	want("/box/h", "a=1,b+=x y z,c=", "3")
	for directive, tags := range map[string]string{"": "a=1,b+=x y z,c=", "COPY": "a=1,b+=x y z,c=", "REPLACE": "new=tag"} {
		hd := map[string]string{"x-amz-copy-source": "box/h", "x-amz-tagging": "new=tag"}
		if directive != "" {
			hd["x-amz-tagging-directive"] = directive
		}
		h.want(t, 200, wireRequest{method: "PUT", target: "/box/copy" + directive, header: hd})
		if got := h.tags(t, "/box/copy"+directive); got != tags {
			t.Errorf("directive %q: %q, want %q", directive, got, tags)
		}
	}
	h.wantCode(t, "InvalidArgument", wireRequest{method: "PUT", target: "/box/x", header: map[string]string{"x-amz-copy-source": "box/h", "x-amz-tagging-directive": "MERGE"}})
	h.multipart(t, "/box/mp", [][]byte{[]byte("x")}, map[string]string{"x-amz-tagging": "up=load"}, nil)
	want("/box/mp", "up=load", "1")
	// An overwrite has none, and neither has one whose tags are deleted.
	h.put(t, "/box/h", nil)
	want("/box/h", "", "")
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box/k?tagging"})
	want("/box/k", "", "")
	put(200, tagDoc())
	want("/box/k", "", "")
	for _, m := range []string{"GET", "DELETE"} {
		h.wantCode(t, "NoSuchKey", wireRequest{method: m, target: "/box/none?tagging"})
		h.wantCode(t, "NoSuchBucket", wireRequest{method: m, target: "/nobox/none?tagging"})
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "PUT", target: "/box/none?tagging", body: tagDoc()})
}

// many is n tags, their keys counted from 0.
func many(n int) (kv []string) {
	for i := range n {
		kv = append(kv, fmt.Sprintf("k%d", i), "v")
	}
	return kv
}

func TestTagRules(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", nil)
	long := func(n int) string { return strings.Repeat("ü", n) }
	good := [][]string{nil, {long(128), long(256)}, many(10)}
	bad := [][]string{many(11), {long(129), "v"}, {"k", long(257)}, {"", "v"}, {"a", "1", "a", "2"}, {"aws:x", "v"}, {"a!", "v"}, {"a", "x\ty"}, {"a", "<"}}
	for _, target := range []string{"/box/k?tagging", "/box?tagging"} {
		object := target != "/box?tagging"
		for _, kv := range good {
			h.want(t, map[bool]int{true: 200, false: 204}[object], wireRequest{method: "PUT", target: target, body: tagDoc(kv...)})
		}
		for i, kv := range bad {
			if !object && i == 0 {
				kv = many(51)
			}
			for j := range kv {
				kv[j] = strings.ReplaceAll(kv[j], "<", "&lt;")
			}
			h.wantCode(t, "InvalidTag", wireRequest{method: "PUT", target: target, body: tagDoc(kv...)})
		}
		for _, body := range []string{"", "x", "<Tagging/>", "<Tag><TagSet></TagSet></Tag>", "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
			"<Tagging><TagSet>" + strings.Repeat("<Tag/>", maxTagEntries+1) + "</TagSet></Tagging>", string(tagDoc()) + strings.Repeat(" ", maxConfigBody)} {
			h.wantCode(t, "MalformedXML", wireRequest{method: "PUT", target: target, body: []byte(body)})
		}
		h.wantCode(t, "BadDigest", wireRequest{method: "PUT", target: target, body: tagDoc(), header: map[string]string{"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}})
	}
	header := func(kv []string) string {
		var out []string
		for i := 0; i < len(kv); i += 2 {
			out = append(out, url.QueryEscape(strings.ReplaceAll(kv[i], "&lt;", "<"))+"="+url.QueryEscape(strings.ReplaceAll(kv[i+1], "&lt;", "<")))
		}
		return strings.Join(out, "&")
	}
	for _, kv := range good {
		h.put(t, "/box/h", nil, "x-amz-tagging", header(kv))
	}
	for _, kv := range bad {
		a := h.do(t, wireRequest{method: "PUT", target: "/box/h", header: map[string]string{"x-amz-tagging": header(kv)}})
		if c := a.code(); c != "InvalidTag" && c != "InvalidArgument" {
			t.Errorf("%q: %s", kv, a.body)
		}
	}
	for _, v := range []string{"a=%zz", "&", "=v", "a=%ff", "a=1&a=2"} {
		h.wantCode(t, "InvalidArgument", wireRequest{method: "PUT", target: "/box/h", header: map[string]string{"x-amz-tagging": v}})
	}
}

func TestBucketTagging(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.wantCode(t, "NoSuchTagSet", wireRequest{method: "GET", target: "/box?tagging"})
	h.want(t, 204, wireRequest{method: "PUT", target: "/box?tagging", body: tagDoc(many(50)...)})
	h.want(t, 204, wireRequest{method: "PUT", target: "/box?tagging", body: tagDoc("a", "1", "b", "ü")})
	if got := h.tags(t, "/box"); got != "a=1,b=ü" {
		t.Errorf("tags %q", got)
	}
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box?tagging"})
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box?tagging"})
	h.wantCode(t, "NoSuchTagSet", wireRequest{method: "GET", target: "/box?tagging"})
	h.want(t, 204, wireRequest{method: "PUT", target: "/box?tagging", body: tagDoc("a", "1")})
	h.want(t, 204, wireRequest{method: "DELETE", target: "/box"})
	for _, m := range []string{"GET", "PUT", "DELETE"} {
		h.wantCode(t, "NoSuchBucket", wireRequest{method: m, target: "/box?tagging", body: tagDoc()})
		h.want(t, 403, wireRequest{method: m, target: "/alice-1?tagging", user: malloryID})
	}
}

// FuzzHeaderTags: whatever the header holds, it is refused or gives tags that
// the rules allow and that, written again, are the same.
func FuzzHeaderTags(f *testing.F) {
	for _, v := range []string{"", "a=1&b=2", "a", "=", "&", "a=%2B+x", "%zz", "a=1&a=2", "\xff=1", "a=b=c", "aws:x=1"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		tags, err := headerTags(http.Header{"X-Amz-Tagging": {v}})
		if err != nil {
			return
		}
		if err := checkTags(tags, maxObjectTags); err != nil {
			t.Fatalf("%q gives %q: %v", v, tags, err)
		}
		var again []string
		for _, x := range tags {
			again = append(again, url.QueryEscape(x.Key)+"="+url.QueryEscape(x.Value))
		}
		got, err := headerTags(http.Header{"X-Amz-Tagging": {strings.Join(again, "&")}})
		if err != nil || !slices.Equal(got, tags) {
			t.Fatalf("%q gives %q, and written again %q, %v", v, tags, got, err)
		}
	})
}
