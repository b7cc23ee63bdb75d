package conformance

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// fresh is what a bucket without any configuration answers.
var fresh = []struct {
	op, method, query string
	status            int
	code, part        string // of an error, or what the document must hold
}{
	{"GetBucketVersioning", "GET", "versioning", 200, "", "<VersioningConfiguration"},
	{"GetBucketAcl", "GET", "acl", 200, "", "<Permission>FULL_CONTROL</Permission>"},
	{"GetBucketOwnershipControls", "GET", "ownershipControls", 200, "", "<ObjectOwnership>BucketOwnerEnforced</ObjectOwnership>"},
	{"GetPublicAccessBlock", "GET", "publicAccessBlock", 200, "", "<BlockPublicPolicy>true</BlockPublicPolicy>"},
	{"GetBucketPolicy", "GET", "policy", 404, "NoSuchBucketPolicy", ""},
	{"GetBucketPolicyStatus", "GET", "policyStatus", 404, "NoSuchBucketPolicy", ""},
	{"DeleteBucketPolicy", "DELETE", "policy", 204, "", ""},
	{"GetBucketCors", "GET", "cors", 404, "NoSuchCORSConfiguration", ""},
	{"DeleteBucketCors", "DELETE", "cors", 204, "", ""},
	{"GetBucketLifecycleConfiguration", "GET", "lifecycle", 404, "NoSuchLifecycleConfiguration", ""},
	{"DeleteBucketLifecycle", "DELETE", "lifecycle", 204, "", ""},
	{"GetBucketWebsite", "GET", "website", 404, "NoSuchWebsiteConfiguration", ""},
	{"DeleteBucketWebsite", "DELETE", "website", 204, "", ""},
	{"GetBucketReplication", "GET", "replication", 404, "ReplicationConfigurationNotFoundError", ""},
	{"DeleteBucketReplication", "DELETE", "replication", 204, "", ""},
	{"GetObjectLockConfiguration", "GET", "object-lock", 404, "ObjectLockConfigurationNotFoundError", ""},
	{"GetBucketLogging", "GET", "logging", 200, "", "<BucketLoggingStatus"},
	{"GetBucketNotificationConfiguration", "GET", "notification", 200, "", "<NotificationConfiguration"},
	{"GetBucketAccelerateConfiguration", "GET", "accelerate", 200, "", "<AccelerateConfiguration"},
	{"GetBucketRequestPayment", "GET", "requestPayment", 200, "", "<Payer>BucketOwner</Payer>"},
}

func configCases() []kase {
	var out []kase
	for _, f := range fresh {
		out = append(out, one("config/"+f.op+"/of-a-fresh-bucket", func(e *env) {
			b := e.bucket()
			a := e.do(req{Method: f.method, Path: "/" + b, Query: f.query})
			if f.code != "" {
				e.denied(a, f.status, f.code)
				return
			}
			e.accepted(a, f.status)
			if !strings.Contains(string(a.Body), f.part) {
				e.Errorf("%s lacks %s", a.Body, f.part)
			}
		})...)
	}
	return slices.Concat(out,
		// S3 encrypts by default and says so; a store that does not must not.
		oursOne("config/GetBucketEncryption/of-a-fresh-bucket", func(e *env) {
			e.denied(e.do(req{Method: "GET", Path: "/" + e.bucket(), Query: "encryption"}), 404, "ServerSideEncryptionConfigurationNotFoundError")
		}),
		one("config/DeleteBucketEncryption/of-a-fresh-bucket", func(e *env) {
			e.accepted(e.do(req{Method: "DELETE", Path: "/" + e.bucket(), Query: "encryption"}), 204)
		}),
		one("config/GetObjectAcl/aws-sdk", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			r, err := e.aws.c.GetObjectAcl(e.ctx, &s3.GetObjectAclInput{Bucket: &b, Key: aws.String("k")})
			e.ok(err)
			equal(e, "grants", len(r.Grants), 1)
			equal(e, "permission", r.Grants[0].Permission, types.PermissionFullControl)
			equal(e, "grantee", aws.ToString(r.Grants[0].Grantee.ID), aws.ToString(r.Owner.ID))
			equal(e, "kind of grantee", r.Grants[0].Grantee.Type, types.TypeCanonicalUser)
			_, err = e.aws.c.GetObjectAcl(e.ctx, &s3.GetObjectAclInput{Bucket: &b, Key: aws.String("none")})
			e.fails(err, 404, "NoSuchKey")
		}),
		one("config/PutObjectAcl/aws-sdk", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			_, err := e.aws.c.PutObjectAcl(e.ctx, &s3.PutObjectAclInput{Bucket: &b, Key: aws.String("k"), ACL: types.ObjectCannedACLPrivate})
			e.ok(err)
		}),
		oursOne("config/PutObjectAcl/public-is-501", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			_, err := e.aws.c.PutObjectAcl(e.ctx, &s3.PutObjectAclInput{Bucket: &b, Key: aws.String("k"), ACL: types.ObjectCannedACLPublicRead})
			e.fails(err, 501, "NotImplemented")
		}),
		one("config/PutBucketAcl/aws-sdk", func(e *env) {
			b := e.bucket()
			_, err := e.aws.c.PutBucketAcl(e.ctx, &s3.PutBucketAclInput{Bucket: &b, ACL: types.BucketCannedACLPrivate})
			e.ok(err)
			r, err := e.aws.c.GetBucketAcl(e.ctx, &s3.GetBucketAclInput{Bucket: &b})
			e.ok(err)
			_, err = e.aws.c.PutBucketAcl(e.ctx, &s3.PutBucketAclInput{Bucket: &b, AccessControlPolicy: &types.AccessControlPolicy{Grants: r.Grants, Owner: r.Owner}})
			e.ok(err)
		}),
		one("config/PutBucketOwnershipControls/enforced", func(e *env) {
			b := e.bucket()
			_, err := e.aws.c.PutBucketOwnershipControls(e.ctx, &s3.PutBucketOwnershipControlsInput{Bucket: &b, OwnershipControls: &types.OwnershipControls{
				Rules: []types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnershipBucketOwnerEnforced}}}})
			e.ok(err)
		}),
		one("config/PutPublicAccessBlock/all-on", func(e *env) {
			b := e.bucket()
			on := aws.Bool(true)
			_, err := e.aws.c.PutPublicAccessBlock(e.ctx, &s3.PutPublicAccessBlockInput{Bucket: &b, PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{
				BlockPublicAcls: on, IgnorePublicAcls: on, BlockPublicPolicy: on, RestrictPublicBuckets: on}})
			e.ok(err)
			r, err := e.aws.c.GetPublicAccessBlock(e.ctx, &s3.GetPublicAccessBlockInput{Bucket: &b})
			e.ok(err)
			equal(e, "RestrictPublicBuckets", aws.ToBool(r.PublicAccessBlockConfiguration.RestrictPublicBuckets), true)
		}),
		one("bucket/ListBuckets/paging", func(e *env) {
			prefix := e.newName()
			want := []string{}
			for _, c := range []string{"a", "b", "c"} {
				name := prefix + "-" + c
				e.ok(e.aws.MakeBucket(e.ctx, name))
				e.Cleanup(func() { e.drop(e.aws, name) })
				want = append(want, name)
			}
			var got []string
			p := s3.NewListBucketsPaginator(e.aws.c, &s3.ListBucketsInput{Prefix: &prefix, MaxBuckets: aws.Int32(2)})
			for pages := 0; p.HasMorePages() && pages < 5; pages++ {
				r, err := p.NextPage(e.ctx)
				e.ok(err)
				if len(r.Buckets) > 2 {
					e.Errorf("a page of 2 holds %d", len(r.Buckets))
				}
				for _, b := range r.Buckets {
					got = append(got, aws.ToString(b.Name))
				}
			}
			equal(e, "buckets", strings.Join(got, " "), strings.Join(want, " "))
		}),
		one("error/MethodNotAllowed/names-the-methods", func(e *env) {
			a := e.do(req{Method: "PATCH", Path: "/" + e.bucket()})
			e.denied(a, 405, "MethodNotAllowed")
			if allow := a.Header.Get("Allow"); !strings.Contains(allow, "GET") || strings.Contains(allow, "PATCH") {
				e.Errorf("Allow is %q", allow)
			}
		}),
		one("config/GetBucketVersioning/minio-go", func(e *env) {
			b := e.bucket()
			v, err := e.minio.core.GetBucketVersioning(e.ctx, b)
			e.ok(err)
			equal(e, "status", v.Status, "")
			_, err = e.minio.core.GetBucketPolicy(e.ctx, b)
			e.fails(err, 404, "NoSuchBucketPolicy")
			_, err = e.minio.core.GetBucketLifecycle(e.ctx, b)
			e.fails(err, 404, "NoSuchLifecycleConfiguration")
			_, err = e.minio.core.GetBucketEncryption(e.ctx, b)
			if err != nil {
				e.fails(err, 404, "ServerSideEncryptionConfigurationNotFoundError")
			}
		}),
	)
}
