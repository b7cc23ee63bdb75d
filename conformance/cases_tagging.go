package conformance

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/tags"
)

func awsTags(kv ...string) *types.Tagging {
	t := &types.Tagging{TagSet: []types.Tag{}}
	for i := 0; i < len(kv); i += 2 {
		t.TagSet = append(t.TagSet, types.Tag{Key: &kv[i], Value: &kv[i+1]})
	}
	return t
}

// shown writes tags as k=v,k=v in key order.
func shown(set []types.Tag) string {
	var out []string
	for _, t := range set {
		out = append(out, aws.ToString(t.Key)+"="+aws.ToString(t.Value))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func taggingCases() []kase {
	return slices.Concat(
		one("tagging/PutObjectTagging/aws-sdk", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("hello"))
			_, err := e.aws.c.PutObjectTagging(e.ctx, &s3.PutObjectTaggingInput{Bucket: &b, Key: aws.String("k"), Tagging: awsTags("team", "kv", "stage", "", "a b", "c/d+e")})
			e.ok(err)
			get := func() string {
				r, err := e.aws.c.GetObjectTagging(e.ctx, &s3.GetObjectTaggingInput{Bucket: &b, Key: aws.String("k")})
				e.ok(err)
				return shown(r.TagSet)
			}
			equal(e, "tags", get(), "a b=c/d+e,stage=,team=kv")
			h, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.ok(err)
			equal(e, "x-amz-tagging-count", h.Get("X-Amz-Tagging-Count"), "3")
			_, err = e.aws.c.DeleteObjectTagging(e.ctx, &s3.DeleteObjectTaggingInput{Bucket: &b, Key: aws.String("k")})
			e.ok(err)
			equal(e, "tags after all are deleted", get(), "")
			g, err := e.aws.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("hello"))
			equal(e, "x-amz-tagging-count", g.Header.Get("X-Amz-Tagging-Count"), "")
		}),
		one("tagging/PutObjectTagging/minio-go", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("hello"))
			want := map[string]string{"team": "kv", "stage": "prod"}
			set, err := tags.NewTags(want, true)
			e.ok(err)
			e.ok(e.minio.core.PutObjectTagging(e.ctx, b, "k", set, minio.PutObjectTaggingOptions{}))
			got, err := e.minio.core.GetObjectTagging(e.ctx, b, "k", minio.GetObjectTaggingOptions{})
			e.ok(err)
			equal(e, "tags", got.String(), set.String())
			e.ok(e.minio.core.RemoveObjectTagging(e.ctx, b, "k", minio.RemoveObjectTaggingOptions{}))
			got, err = e.minio.core.GetObjectTagging(e.ctx, b, "k", minio.GetObjectTaggingOptions{})
			e.ok(err)
			equal(e, "tags after all are removed", got.Count(), 0)
		}),
		one("tagging/GetObjectTagging/no-such-key", func(e *env) {
			b := e.bucket()
			_, err := e.aws.c.GetObjectTagging(e.ctx, &s3.GetObjectTaggingInput{Bucket: &b, Key: aws.String("k")})
			e.fails(err, 404, "NoSuchKey")
		}),
		one("tagging/DeleteObjectTagging/no-such-key", func(e *env) {
			b := e.bucket()
			_, err := e.aws.c.DeleteObjectTagging(e.ctx, &s3.DeleteObjectTaggingInput{Bucket: &b, Key: aws.String("k")})
			e.fails(err, 404, "NoSuchKey")
		}),
		one("tagging/PutObject/header", func(e *env) {
			b := e.bucket()
			get := func(key string) string {
				r, err := e.aws.c.GetObjectTagging(e.ctx, &s3.GetObjectTaggingInput{Bucket: &b, Key: &key})
				e.ok(err)
				return shown(r.TagSet)
			}
			_, err := e.aws.c.PutObject(e.ctx, &s3.PutObjectInput{Bucket: &b, Key: aws.String("k"), Body: strings.NewReader("x"), Tagging: aws.String("a=1&b=x%20y")})
			e.ok(err)
			equal(e, "tags", get("k"), "a=1,b=x y")
			for directive, want := range map[types.TaggingDirective]string{"": "a=1,b=x y", types.TaggingDirectiveCopy: "a=1,b=x y", types.TaggingDirectiveReplace: "c=2"} {
				in := &s3.CopyObjectInput{Bucket: &b, Key: aws.String("copy"), CopySource: aws.String(b + "/k"), TaggingDirective: directive}
				if directive == types.TaggingDirectiveReplace {
					in.Tagging = aws.String("c=2")
				}
				_, err := e.aws.c.CopyObject(e.ctx, in)
				e.ok(err)
				equal(e, "tags of a copy with directive "+string(directive), get("copy"), want)
			}
			id, err := e.aws.c.CreateMultipartUpload(e.ctx, &s3.CreateMultipartUploadInput{Bucket: &b, Key: aws.String("mp"), Tagging: aws.String("d=3")})
			e.ok(err)
			p, err := e.aws.PutPart(e.ctx, b, "mp", aws.ToString(id.UploadId), 1, []byte("x"))
			e.ok(err)
			_, err = e.aws.Complete(e.ctx, b, "mp", aws.ToString(id.UploadId), []part{p})
			e.ok(err)
			equal(e, "tags of an upload", get("mp"), "d=3")
		}),
		one("tagging/PutObjectTagging/limits", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("hello"))
			many := func(n int) (kv []string) {
				for i := range n {
					kv = append(kv, "k"+strconv.Itoa(i), "v")
				}
				return kv
			}
			put := func(kv ...string) error {
				_, err := e.aws.c.PutObjectTagging(e.ctx, &s3.PutObjectTaggingInput{Bucket: &b, Key: aws.String("k"), Tagging: awsTags(kv...)})
				return err
			}
			e.ok(put(many(10)...))
			e.ok(put(strings.Repeat("k", 128), strings.Repeat("v", 256)))
			e.fails(put(many(11)...), 400, "InvalidTag")
			e.fails(put(strings.Repeat("k", 129), "v"), 400, "InvalidTag")
			e.fails(put("k", strings.Repeat("v", 257)), 400, "InvalidTag")
			e.fails(put("a", "1", "a", "2"), 400, "InvalidTag")
		}),
		one("tagging/PutBucketTagging/aws-sdk", func(e *env) {
			b := e.bucket()
			_, err := e.aws.c.GetBucketTagging(e.ctx, &s3.GetBucketTaggingInput{Bucket: &b})
			e.fails(err, 404, "NoSuchTagSet")
			_, err = e.aws.c.PutBucketTagging(e.ctx, &s3.PutBucketTaggingInput{Bucket: &b, Tagging: awsTags("team", "kv")})
			e.ok(err)
			r, err := e.aws.c.GetBucketTagging(e.ctx, &s3.GetBucketTaggingInput{Bucket: &b})
			e.ok(err)
			equal(e, "tags", shown(r.TagSet), "team=kv")
			_, err = e.aws.c.DeleteBucketTagging(e.ctx, &s3.DeleteBucketTaggingInput{Bucket: &b})
			e.ok(err)
			_, err = e.aws.c.GetBucketTagging(e.ctx, &s3.GetBucketTaggingInput{Bucket: &b})
			e.fails(err, 404, "NoSuchTagSet")
		}),
		one("tagging/GetBucketTagging/minio-go", func(e *env) {
			b := e.bucket()
			set, err := tags.NewTags(map[string]string{"a": "1", "b": "2"}, false)
			e.ok(err)
			e.ok(e.minio.core.SetBucketTagging(e.ctx, b, set))
			got, err := e.minio.core.GetBucketTagging(e.ctx, b)
			e.ok(err)
			equal(e, "tags", got.String(), set.String())
			e.ok(e.minio.core.RemoveBucketTagging(e.ctx, b))
			_, err = e.minio.core.GetBucketTagging(e.ctx, b)
			e.fails(err, 404, "NoSuchTagSet")
		}),
		one("tagging/DeleteBucketTagging/none", func(e *env) {
			b := e.bucket()
			_, err := e.aws.c.DeleteBucketTagging(e.ctx, &s3.DeleteBucketTaggingInput{Bucket: &b})
			e.ok(err)
		}),
	)
}
