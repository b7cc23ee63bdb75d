package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// tenantCases hold two tenants apart. What is out of reach answers 403 in the
// same words whether or not it exists.
func tenantCases() []kase {
	two := func(e *env) (a, b TenantKey, ca, cb sdk) {
		e.Helper()
		if len(e.Tenants) != 2 {
			e.Skip("the target has no two tenants")
		}
		a, b = e.Tenants[0], e.Tenants[1]
		return a, b, newAWS(e.shared, a.AccessKey, a.SecretKey, e.client, e.Endpoint, false), newMinio(e.T, e.shared, b.AccessKey, b.SecretKey, e.client.Transport, e.host, false)
	}
	// mine makes a bucket of a tenant.
	mine := func(e *env, k TenantKey, c sdk) string {
		e.Helper()
		name := k.Prefix + e.newName()
		e.ok(c.MakeBucket(e.ctx, name))
		e.Cleanup(func() { e.drop(c, name) })
		return name
	}
	return slices.Concat(
		one("tenant/PutObject/own-bucket", func(e *env) {
			a, _, ca, _ := two(e)
			b := mine(e, a, ca)
			_, err := ca.Put(e.ctx, b, "k", []byte("x"), putOpts{})
			e.ok(err)
			g, err := ca.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("x"))
		}),
		one("tenant/ListBuckets/own-only", func(e *env) {
			a, b, ca, cb := two(e)
			ba, bb := mine(e, a, ca), mine(e, b, cb)
			la, err := ca.ListBuckets(e.ctx)
			e.ok(err)
			lb, err := cb.ListBuckets(e.ctx)
			e.ok(err)
			equal(e, "the first sees its own", slices.Contains(la, ba), true)
			equal(e, "the first sees the other's", slices.Contains(la, bb), false)
			equal(e, "the second sees its own", slices.Contains(lb, bb), true)
			equal(e, "the second sees the other's", slices.Contains(lb, ba), false)
			all, err := e.aws.ListBuckets(e.ctx)
			e.ok(err)
			equal(e, "root sees both", slices.Contains(all, ba) && slices.Contains(all, bb), true)
		}),
		one("tenant/GetObject/every-operation-across", func(e *env) {
			a, b, ca, cb := two(e)
			ba, bb := mine(e, a, ca), mine(e, b, cb)
			g := newGeometry(90, 2, 2, 50, false)
			for j, k := range g.keys {
				_, err := ca.Put(e.ctx, ba, k, g.chunks[j], putOpts{})
				e.ok(err)
			}
			key := encodePath(g.keys[0])
			doc := []byte(`<Delete><Object><Key>` + g.keys[0] + `</Key></Object></Delete>`)
			json := map[string]string{"Content-Type": "application/json"}
			var texts []string
			for _, bucket := range []string{ba, a.Prefix + "never-was"} {
				for _, q := range []req{
					{Method: "GET", Path: "/" + bucket + "/" + key},
					{Method: "GET", Path: "/" + bucket + "/nothing"},
					{Method: "HEAD", Path: "/" + bucket + "/" + key},
					{Method: "PUT", Path: "/" + bucket + "/" + key, Body: []byte("stolen")},
					{Method: "DELETE", Path: "/" + bucket + "/" + key},
					{Method: "GET", Path: "/" + bucket},
					{Method: "GET", Path: "/" + bucket, Query: "list-type=2"},
					{Method: "GET", Path: "/" + bucket, Query: "location"},
					{Method: "GET", Path: "/" + bucket, Query: "uploads"},
					{Method: "HEAD", Path: "/" + bucket},
					{Method: "PUT", Path: "/" + bucket},
					{Method: "DELETE", Path: "/" + bucket},
					{Method: "POST", Path: "/" + bucket, Query: "delete", Body: doc},
					{Method: "POST", Path: "/" + bucket + "/" + key, Query: "uploads"},
					{Method: "PUT", Path: "/" + bb + "/copy", Header: map[string]string{"X-Amz-Copy-Source": bucket + "/" + key}},
					{Method: "POST", Path: "/" + bucket, Query: "kv-get", Body: g.descriptor().json(), Header: json},
					{Method: "GET", Path: "/" + bucket + "/" + key, Header: map[string]string{"X-Kv-Descriptor": g.descriptor().header()}},
					{Method: "POST", Path: "/" + bucket, Query: "kv-match", Body: fields{{"chunk_keys", g.keys}}.json(), Header: json},
				} {
					if !e.IsObjcached && (strings.HasPrefix(q.Query, "kv-") || q.Header["X-Kv-Descriptor"] != "") {
						continue
					}
					q.Key = &b
					r := e.do(q)
					if r.Status != 403 || q.Method != "HEAD" && r.Code != "AccessDenied" {
						e.Errorf("%s %s?%s: %d %s, want 403 AccessDenied", q.Method, q.Path, q.Query, r.Status, r.Code)
					}
					texts = append(texts, fmt.Sprintf("%s?%s %s %s %s", q.Method, q.Query, r.Fields["Message"], r.Fields["BucketName"], r.Fields["Key"]))
				}
			}
			for i := range len(texts) / 2 {
				equal(e, "answer for what does not exist", texts[len(texts)/2+i], texts[i])
			}
			for j, k := range g.keys {
				x, err := ca.Get(e.ctx, ba, k, getOpts{})
				e.ok(err)
				e.same(x.Body, g.chunks[j])
			}
		}),
		one("tenant/GetObject/presigned-by-another", func(e *env) {
			a, _, ca, cb := two(e)
			ba := mine(e, a, ca)
			_, err := ca.Put(e.ctx, ba, "k", []byte("x"), putOpts{})
			e.ok(err)
			u, err := cb.Presign(e.ctx, "GET", ba, "k", 600e9)
			e.ok(err)
			e.denied(e.plain("GET", u, nil), 403, "AccessDenied")
			u, err = ca.Presign(e.ctx, "GET", ba, "k", 600e9)
			e.ok(err)
			e.accepted(e.plain("GET", u, nil), 200)
		}),
		one("tenant/CreateBucket/out-of-pattern", func(e *env) {
			_, _, ca, _ := two(e)
			e.fails(ca.MakeBucket(e.ctx, e.newName()), 403, "AccessDenied")
		}),
	)
}
