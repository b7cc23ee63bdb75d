package conformance

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// tree is what the listing cases list; byte order is not the order of words.
var tree = []string{
	"a", "a/", "a/1", "a/2", "a/b/1", "a/b/2", "a-b", "a.b", "aa", "b/c/d/e", "b/c/f", "B", "empty/", "ü/1", "ü/2", "z z/+", "日本/語",
}

// model lists keys as S3 defines it; the cases compare servers with it.
func model(keys []string, o listOpts, after string) (objects, prefixes []string, truncated bool) {
	sorted := slices.Clone(keys)
	sort.Strings(sorted)
	n, last := 0, ""
	limit := o.Max
	if limit == 0 {
		limit = 1000
	}
	for _, k := range sorted {
		if !strings.HasPrefix(k, o.Prefix) {
			continue
		}
		item, common := k, false
		if o.Delimiter != "" {
			if i := strings.Index(k[len(o.Prefix):], o.Delimiter); i >= 0 {
				item, common = k[:len(o.Prefix)+i+len(o.Delimiter)], true
			}
		}
		// A prefix is shown if a key under it comes after the marker, unless the
		// marker is the prefix itself: then an earlier page has shown it.
		if k <= after || common && (item == last || item == after) {
			continue
		}
		if n == limit {
			return objects, prefixes, true
		}
		n++
		if common {
			last = item
			prefixes = append(prefixes, item)
		} else {
			objects = append(objects, item)
		}
	}
	return objects, prefixes, false
}

var listings = []listOpts{
	{},
	{Prefix: "a"}, {Prefix: "a/"}, {Prefix: "nothing"}, {Prefix: "ü/"},
	{Delimiter: "/"}, {Prefix: "a/", Delimiter: "/"}, {Prefix: "a", Delimiter: "/"}, {Prefix: "b/", Delimiter: "/"},
	{Delimiter: "b"}, {Delimiter: "/1"}, {Prefix: "z z/", Delimiter: "+"},
	{After: "a/1"}, {After: "a/b"}, {After: "zzz"}, {After: "a0", Delimiter: "/"}, {After: "a/1", Delimiter: "/"}, {After: "a/", Delimiter: "/"},
	{After: "日本/語"},
}

func (o listOpts) String() string {
	return fmt.Sprintf("prefix=%q,delimiter=%q,after=%q", o.Prefix, o.Delimiter, o.After)
}

func (e *env) tree() string {
	b := e.bucket()
	for i, k := range tree {
		e.put(b, k, data(uint64(i), i))
	}
	return b
}

// listAll pages through a listing and checks every page's limits.
func (e *env) listAll(c sdk, bucket string, o listOpts) (objects, prefixes []string) {
	e.Helper()
	for range 100 {
		p, err := c.List(e.ctx, bucket, o)
		e.ok(err)
		n := len(p.Objects) + len(p.Prefixes)
		if o.Max > 0 && n > o.Max {
			e.Errorf("page has %d entries, asked for %d", n, o.Max)
		}
		last := ""
		for _, x := range p.Objects {
			objects = append(objects, x.Key)
			last = max(last, x.Key)
		}
		for _, x := range p.Prefixes {
			prefixes = append(prefixes, x)
			last = max(last, x)
		}
		if !p.Truncated {
			return objects, prefixes
		}
		if n == 0 {
			e.Fatal("a truncated page is empty")
		}
		if o.V1 {
			if o.After = last; o.Delimiter != "" {
				equal(e, "NextMarker", p.Next, last)
			}
		} else {
			if p.Next == "" {
				e.Fatal("a truncated page has no continuation token")
			}
			o.Token = p.Next
		}
	}
	e.Fatal("a listing of a few keys does not end")
	return nil, nil
}

func listCases() []kase {
	var out []kase
	for _, v1 := range []bool{true, false} {
		op := "ListObjectsV2"
		if v1 {
			op = "ListObjects"
		}
		out = append(out, both("list/"+op+"/table", func(e *env, c sdk) {
			b := e.tree()
			for _, o := range listings {
				o.V1 = v1
				for _, size := range []int{0, 1, 2, 3, 5} {
					o.Max = size
					whole := o
					whole.Max = 0
					wantObjects, wantPrefixes, _ := model(tree, whole, o.After)
					objects, prefixes := e.listAll(c, b, o)
					if !slices.Equal(objects, wantObjects) || !slices.Equal(prefixes, wantPrefixes) {
						e.Errorf("%v in pages of %d:\n got %q, %q\nwant %q, %q", o, size, objects, prefixes, wantObjects, wantPrefixes)
					}
				}
			}
		})...)
		out = append(out, both("list/"+op+"/entries", func(e *env, c sdk) {
			b := e.tree()
			p, err := c.List(e.ctx, b, listOpts{V1: v1})
			e.ok(err)
			for _, x := range p.Objects {
				i := slices.Index(tree, x.Key)
				equal(e, x.Key+" size", x.Size, int64(i))
				equal(e, x.Key+" ETag", x.ETag, md5Hex(data(uint64(i), i)))
				if x.Modified.IsZero() {
					e.Errorf("%s has no LastModified", x.Key)
				}
			}
		})...)
		out = append(out, both("list/"+op+"/missing-bucket", func(e *env, c sdk) {
			_, err := c.List(e.ctx, e.newName(), listOpts{V1: v1})
			e.fails(err, 404, "NoSuchBucket")
		})...)
	}
	return slices.Concat(out, rawListCases(),
		one("list/ListObjectsV2/1001-keys", func(e *env) {
			b := e.bucket()
			var want []string
			for i := range 1001 {
				k := fmt.Sprintf("k%04d", i)
				want = append(want, k)
				e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/" + k, Body: []byte("x")}), 200)
			}
			p, err := e.aws.List(e.ctx, b, listOpts{})
			e.ok(err)
			equal(e, "entries of the first page", len(p.Objects), 1000)
			equal(e, "truncated", p.Truncated, true)
			objects, _ := e.listAll(e.minio, b, listOpts{})
			equal(e, "all keys", slices.Equal(objects, want), true)
			failed, err := e.minio.DeleteMany(e.ctx, b, want)
			e.ok(err)
			equal(e, "keys not deleted", len(failed), 0)
		}),
	)
}

func rawListCases() []kase {
	list := func(e *env, bucket, query string) reply {
		return e.do(req{Method: "GET", Path: "/" + bucket, Query: query})
	}
	has := func(e *env, a reply, parts ...string) {
		e.Helper()
		e.accepted(a, 200)
		for _, p := range parts {
			if !strings.Contains(string(a.Body), p) {
				e.Errorf("document lacks %s: %.800s", p, a.Body)
			}
		}
	}
	return slices.Concat(
		one("list/ListObjectsV2/encoding-type", func(e *env) {
			b := e.bucket()
			for _, k := range []string{"a b+c/1", "a b+c/2", "bell\x07", "ü%"} {
				e.put(b, k, nil)
			}
			has(e, list(e, b, "list-type=2&encoding-type=url"), "<EncodingType>url</EncodingType>", "<Key>a%20b%2Bc/1</Key>", "<Key>bell%07</Key>", "<Key>%C3%BC%25</Key>")
			has(e, list(e, b, "list-type=2&encoding-type=url&delimiter=%2F&prefix=a%20b%2B"), "<Prefix>a%20b%2Bc/</Prefix>", "<Prefix>a%20b%2B</Prefix>", "<Delimiter>/</Delimiter>")
			has(e, list(e, b, "list-type=2&encoding-type=url&start-after=a%20b%2Bc%2F1"), "<StartAfter>a%20b%2Bc/1</StartAfter>")
		}),
		one("list/ListObjects/encoding-type", func(e *env) {
			b := e.bucket()
			for _, k := range []string{"a b+c/1", "a b+c/2", "d"} {
				e.put(b, k, nil)
			}
			has(e, list(e, b, "encoding-type=url&max-keys=1&delimiter=%2F"), "<Prefix>a%20b%2Bc/</Prefix>", "<NextMarker>a%20b%2Bc/</NextMarker>", "<IsTruncated>true</IsTruncated>")
			has(e, list(e, b, "encoding-type=url&marker=a%20b%2Bc%2F1"), "<Marker>a%20b%2Bc/1</Marker>", "<Key>a%20b%2Bc/2</Key>")
		}),
		one("list/ListObjectsV2/max-keys-0", func(e *env) {
			b := e.tree()
			a := list(e, b, "list-type=2&max-keys=0")
			has(e, a, "<MaxKeys>0</MaxKeys>", "<KeyCount>0</KeyCount>", "<IsTruncated>false</IsTruncated>")
			if strings.Contains(string(a.Body), "<Contents>") {
				e.Error("a page of no keys has contents")
			}
		}),
		one("list/ListObjectsV2/max-keys-above-1000", func(e *env) {
			b := e.tree()
			has(e, list(e, b, "list-type=2&max-keys=5000"), "<IsTruncated>false</IsTruncated>")
		}),
		one("list/ListObjectsV2/bad-arguments", func(e *env) {
			b := e.bucket()
			for _, q := range []string{"list-type=2&max-keys=-1", "list-type=2&max-keys=many", "list-type=2&encoding-type=base64", "list-type=2&continuation-token=%00nonsense", "list-type=3", "max-keys=-1", "encoding-type=x"} {
				a := list(e, b, q)
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("%s: %d %s, want 400 InvalidArgument", q, a.Status, a.Code)
				}
			}
		}),
		one("list/ListObjectsV2/owner", func(e *env) {
			b := e.tree()
			a := list(e, b, "list-type=2")
			if strings.Contains(string(a.Body), "<Owner>") {
				e.Error("owner shown without fetch-owner")
			}
			has(e, list(e, b, "list-type=2&fetch-owner=true"), "<Owner>")
		}),
		one("list/ListObjectsV2/token-keeps-prefix", func(e *env) {
			b := e.tree()
			p, err := e.aws.List(e.ctx, b, listOpts{Prefix: "a/", Max: 2})
			e.ok(err)
			q, err := e.minio.List(e.ctx, b, listOpts{Prefix: "a/", Max: 10, Token: p.Next})
			e.ok(err)
			equal(e, "entries", len(p.Objects)+len(q.Objects), 5)
		}),
		one("list/ListObjectsV2/document", func(e *env) {
			b := e.tree()
			a := list(e, b, "list-type=2&prefix=a%2F&delimiter=%2F&max-keys=7")
			has(e, a, "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", "<Name>"+b+"</Name>", "<Prefix>a/</Prefix>", "<MaxKeys>7</MaxKeys>", "<KeyCount>4</KeyCount>", "<StorageClass>STANDARD</StorageClass>")
			equal(e, "Content-Type", a.Header.Get("Content-Type"), "application/xml")
		}),
	)
}

func multiDeleteCases() []kase {
	// S3 wants a checksum or Content-MD5 with this request.
	del := func(e *env, bucket, doc string, header map[string]string) reply {
		if header == nil {
			header = map[string]string{sumHeader("SHA256"): sums["SHA256"]([]byte(doc))}
		}
		return e.do(req{Method: "POST", Path: "/" + bucket, Query: "delete", Body: []byte(doc), Header: header})
	}
	return slices.Concat(
		both("multi-delete/DeleteObjects/some-missing", func(e *env, c sdk) {
			b := e.tree()
			failed, err := c.DeleteMany(e.ctx, b, append(slices.Clone(tree[:5]), "never was"))
			e.ok(err)
			equal(e, "keys failed", len(failed), 0)
			left, _ := e.listAll(c, b, listOpts{})
			want := slices.Clone(tree[5:])
			sort.Strings(want)
			equal(e, "keys left", slices.Equal(left, want), true)
		}),
		both("multi-delete/DeleteObjects/odd-keys", func(e *env, c sdk) {
			b := e.bucket()
			keys := slices.DeleteFunc(slices.Clone(oddKeys), func(k string) bool { return strings.Contains(k, "\x07") }) // no XML can name it
			for _, k := range keys {
				e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/" + encodePath(k), Body: []byte("x")}), 200)
			}
			failed, err := c.DeleteMany(e.ctx, b, keys)
			e.ok(err)
			equal(e, "keys failed", len(failed), 0)
			left, _ := e.listAll(e.minio, b, listOpts{})
			equal(e, "keys left", fmt.Sprintf("%q", left), "[]")
		}),
		one("multi-delete/DeleteObjects/missing-bucket", func(e *env) {
			_, err := e.aws.DeleteMany(e.ctx, e.newName(), []string{"a"}) // minio-go drops this error
			e.fails(err, 404, "NoSuchBucket")
		}),
		one("multi-delete/DeleteObjects/digest-is-required", func(e *env) {
			b := e.bucket()
			e.put(b, "a", nil)
			doc := `<Delete><Object><Key>a</Key></Object></Delete>`
			e.denied(del(e, b, doc, map[string]string{}), 400, "InvalidRequest")
			_, err := e.aws.Head(e.ctx, b, "a", getOpts{})
			e.ok(err)
		}),
		one("multi-delete/DeleteObjects/quiet", func(e *env) {
			b := e.bucket()
			e.put(b, "a", nil)
			a := del(e, b, `<Delete><Quiet>true</Quiet><Object><Key>a</Key></Object></Delete>`, nil)
			e.accepted(a, 200)
			if strings.Contains(string(a.Body), "<Deleted>") {
				e.Errorf("quiet answer names what was deleted: %s", a.Body)
			}
			a = del(e, b, `<Delete><Object><Key>a &amp; b</Key></Object></Delete>`, nil)
			e.accepted(a, 200)
			if !strings.Contains(string(a.Body), "<Deleted><Key>a &amp; b</Key></Deleted>") {
				e.Errorf("answer does not name what was deleted: %s", a.Body)
			}
		}),
		one("multi-delete/DeleteObjects/malformed", func(e *env) {
			b := e.bucket()
			e.put(b, "a", nil)
			for _, doc := range []string{"", "<Delete>", "<Delete></Delete>", "no xml", "<Other><Object><Key>a</Key></Object></Other>"} {
				a := del(e, b, doc, nil)
				if a.Status != 400 || a.Code != "MalformedXML" {
					e.Errorf("%q: %d %s, want 400 MalformedXML", doc, a.Status, a.Code)
				}
			}
			var many strings.Builder
			many.WriteString("<Delete>")
			for i := range 1001 {
				fmt.Fprintf(&many, "<Object><Key>%d</Key></Object>", i)
			}
			many.WriteString("</Delete>")
			e.denied(del(e, b, many.String(), nil), 400, "MalformedXML")
			_, err := e.aws.Head(e.ctx, b, "a", getOpts{})
			e.ok(err)
		}),
		one("multi-delete/DeleteObjects/digest-is-checked", func(e *env) {
			b := e.bucket()
			e.put(b, "a", nil)
			doc := `<Delete><Object><Key>a</Key></Object></Delete>`
			e.denied(del(e, b, doc, map[string]string{"X-Amz-Checksum-Crc32": "AAAAAA=="}), 400, "BadDigest")
			_, err := e.aws.Head(e.ctx, b, "a", getOpts{})
			e.ok(err)
			e.accepted(del(e, b, doc, map[string]string{"X-Amz-Checksum-Crc32": sums["CRC32"]([]byte(doc))}), 200)
			_, err = e.aws.Head(e.ctx, b, "a", getOpts{})
			e.fails(err, 404, "")
		}),
	)
}
