package conformance

import (
	"slices"
	"strings"
)

func bucketCases() []kase {
	return slices.Concat(
		both("bucket/CreateBucket/then-head-and-list", func(e *env, c sdk) {
			name := e.newName()
			e.fails(c.HeadBucket(e.ctx, name), 404, "")
			e.ok(c.MakeBucket(e.ctx, name))
			e.Cleanup(func() { e.drop(c, name) })
			e.ok(c.HeadBucket(e.ctx, name))
			names, err := c.ListBuckets(e.ctx)
			e.ok(err)
			equal(e, "bucket listed", slices.Contains(names, name), true)
			equal(e, "buckets sorted", slices.IsSorted(names), true)
		}),
		both("bucket/CreateBucket/twice", func(e *env, c sdk) {
			name := e.bucket()
			err := c.MakeBucket(e.ctx, name)
			if err == nil {
				return // us-east-1 answers the owner 200
			}
			e.fails(err, 409, "BucketAlreadyOwnedByYou")
		}),
		one("bucket/CreateBucket/bad-names", func(e *env) {
			for _, name := range []string{"ab", "UPPER-case", "under_score", "-dash", "dash-", "dot..dot", "192.168.5.4", strings.Repeat("x", 64), "sp%20ace"} {
				a := e.do(req{Method: "PUT", Path: "/" + name})
				if a.Status != 400 || a.Code != "InvalidBucketName" {
					e.Errorf("bucket %q: answered %d %s, want 400 InvalidBucketName", name, a.Status, a.Code)
				}
			}
		}),
		one("bucket/CreateBucket/location-constraint", func(e *env) {
			name := e.newName()
			doc := `<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>` + e.Region + `</LocationConstraint></CreateBucketConfiguration>`
			e.accepted(e.do(req{Method: "PUT", Path: "/" + name, Body: []byte(doc)}), 200)
			e.ok(e.aws.RemoveBucket(e.ctx, name))
		}),
		one("bucket/CreateBucket/malformed", func(e *env) {
			e.denied(e.do(req{Method: "PUT", Path: "/" + e.newName(), Body: []byte("<Create")}), 400, "MalformedXML")
		}),
		both("bucket/DeleteBucket/not-empty", func(e *env, c sdk) {
			name := e.bucket()
			e.put(name, "a", []byte("x"))
			e.fails(c.RemoveBucket(e.ctx, name), 409, "BucketNotEmpty")
			e.ok(c.Delete(e.ctx, name, "a"))
			e.ok(c.RemoveBucket(e.ctx, name))
			e.fails(c.HeadBucket(e.ctx, name), 404, "")
		}),
		both("bucket/DeleteBucket/missing", func(e *env, c sdk) {
			e.fails(c.RemoveBucket(e.ctx, e.newName()), 404, "NoSuchBucket")
		}),
		both("bucket/DeleteBucket/name-is-free-again", func(e *env, c sdk) {
			name := e.bucket()
			e.put(name, "old", []byte("old"))
			e.ok(c.Delete(e.ctx, name, "old"))
			e.ok(c.RemoveBucket(e.ctx, name))
			e.ok(c.MakeBucket(e.ctx, name))
			p, err := c.List(e.ctx, name, listOpts{})
			e.ok(err)
			equal(e, "objects in the new bucket", len(p.Objects), 0)
		}),
		both("bucket/GetBucketLocation/region", func(e *env, c sdk) {
			loc, err := c.Location(e.ctx, e.bucket())
			e.ok(err)
			equal(e, "location", loc, e.Region)
		}),
		one("bucket/GetBucketLocation/missing", func(e *env) {
			e.denied(e.do(req{Method: "GET", Path: "/" + e.newName(), Query: "location"}), 404, "NoSuchBucket")
			e.denied(e.do(req{Method: "GET", Path: "/" + e.newName(), Query: "location="}), 404, "NoSuchBucket")
		}),
		one("bucket/HeadBucket/region-header", func(e *env) {
			a := e.do(req{Method: "HEAD", Path: "/" + e.bucket()})
			e.accepted(a, 200)
			equal(e, "x-amz-bucket-region", a.Header.Get("X-Amz-Bucket-Region"), e.Region)
		}),
		one("bucket/HeadBucket/trailing-slash", func(e *env) {
			e.accepted(e.do(req{Method: "HEAD", Path: "/" + e.bucket() + "/"}), 200)
		}),
		one("bucket/ListBuckets/document", func(e *env) {
			name := e.bucket()
			a := e.do(req{Method: "GET", Path: "/"})
			e.accepted(a, 200)
			equal(e, "Content-Type", a.Header.Get("Content-Type"), "application/xml")
			if !strings.Contains(string(a.Body), "<Name>"+name+"</Name>") || !strings.Contains(string(a.Body), "<ListAllMyBucketsResult") {
				e.Errorf("document lacks the bucket: %.400s", a.Body)
			}
		}),
		one("bucket/ListBuckets/x-id-is-ignored", func(e *env) {
			e.accepted(e.do(req{Method: "GET", Path: "/", Query: "x-id=ListBuckets"}), 200)
		}),
	)
}
