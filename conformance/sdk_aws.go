package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// awsSDK is aws-sdk-go-v2 as it comes: checksums on every request that may
// carry one. Over HTTP it signs the payload, over TLS it sends an unsigned
// payload with the checksum in a trailer.
type awsSDK struct{ c *s3.Client }

var _ sdk = (*awsSDK)(nil)

func newAWS(s *shared, access, secret string, hc *http.Client, endpoint string, virtual bool) *awsSDK {
	return &awsSDK{s3.New(s3.Options{
		BaseEndpoint:     aws.String(endpoint),
		Region:           s.Region,
		Credentials:      credentials.NewStaticCredentialsProvider(access, secret, ""),
		HTTPClient:       hc,
		UsePathStyle:     !virtual,
		RetryMaxAttempts: 1,
	})}
}

// str is aws.String that leaves out what is empty.
func str(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// etagOf quotes an ETag for a condition.
func etagOf(s string) *string {
	if s == "" || s == "*" {
		return str(s)
	}
	return aws.String(`"` + s + `"`)
}

// headerOf returns the headers behind an answer.
func headerOf(m middleware.Metadata) http.Header {
	if r, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response); ok {
		return r.Header
	}
	return http.Header{}
}

func (a *awsSDK) MakeBucket(ctx context.Context, bucket string) error {
	_, err := a.c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket})
	return err
}

func (a *awsSDK) HeadBucket(ctx context.Context, bucket string) error {
	_, err := a.c.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &bucket})
	return err
}

func (a *awsSDK) RemoveBucket(ctx context.Context, bucket string) error {
	_, err := a.c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket})
	return err
}

func (a *awsSDK) ListBuckets(ctx context.Context) ([]string, error) {
	r, err := a.c.ListBuckets(ctx, &s3.ListBucketsInput{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range r.Buckets {
		names = append(names, aws.ToString(b.Name))
	}
	return names, nil
}

func (a *awsSDK) Location(ctx context.Context, bucket string) (string, error) {
	r, err := a.c.GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: &bucket})
	if err != nil {
		return "", err
	}
	if r.LocationConstraint == "" {
		return "us-east-1", nil // how S3 spells its first region
	}
	return string(r.LocationConstraint), nil
}

func (a *awsSDK) Put(ctx context.Context, bucket, key string, body []byte, o putOpts) (http.Header, error) {
	r, err := a.c.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(body),
		ContentType: str(o.ContentType), CacheControl: str(o.CacheControl), ContentDisposition: str(o.ContentDisposition),
		ContentEncoding: str(o.ContentEncoding), ContentLanguage: str(o.ContentLanguage), Expires: when(o.Expires),
		Metadata: o.Meta, IfMatch: etagOf(o.IfMatch), IfNoneMatch: etagOf(o.IfNoneMatch),
		ChecksumAlgorithm: types.ChecksumAlgorithm(o.Algorithm),
	})
	if err != nil {
		return nil, err
	}
	return headerOf(r.ResultMetadata), nil
}

func (a *awsSDK) Get(ctx context.Context, bucket, key string, o getOpts) (got, error) {
	in := &s3.GetObjectInput{
		Bucket: &bucket, Key: &key, Range: str(o.Range), IfMatch: etagOf(o.IfMatch), IfNoneMatch: etagOf(o.IfNoneMatch),
		IfModifiedSince: when(o.IfModifiedSince), IfUnmodifiedSince: when(o.IfUnmodifiedSince),
	}
	if o.Checksum {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	if o.Part > 0 {
		in.PartNumber = aws.Int32(int32(o.Part))
	}
	r, err := a.c.GetObject(ctx, in)
	if err != nil {
		return got{}, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return got{headerOf(r.ResultMetadata), b}, err
}

func (a *awsSDK) Head(ctx context.Context, bucket, key string, o getOpts) (http.Header, error) {
	in := &s3.HeadObjectInput{
		Bucket: &bucket, Key: &key, Range: str(o.Range), IfMatch: etagOf(o.IfMatch), IfNoneMatch: etagOf(o.IfNoneMatch),
		IfModifiedSince: when(o.IfModifiedSince), IfUnmodifiedSince: when(o.IfUnmodifiedSince),
	}
	if o.Checksum {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	if o.Part > 0 {
		in.PartNumber = aws.Int32(int32(o.Part))
	}
	r, err := a.c.HeadObject(ctx, in)
	if err != nil {
		return nil, err
	}
	return headerOf(r.ResultMetadata), nil
}

func (a *awsSDK) Delete(ctx context.Context, bucket, key string) error {
	_, err := a.c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	return err
}

func (a *awsSDK) DeleteMany(ctx context.Context, bucket string, keys []string) (map[string]string, error) {
	var ids []types.ObjectIdentifier
	for _, k := range keys {
		ids = append(ids, types.ObjectIdentifier{Key: aws.String(k)})
	}
	r, err := a.c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{Objects: ids}})
	if err != nil {
		return nil, err
	}
	failed := map[string]string{}
	for _, e := range r.Errors {
		failed[aws.ToString(e.Key)] = aws.ToString(e.Code)
	}
	return failed, nil
}

func (a *awsSDK) Copy(ctx context.Context, bucket, key, srcBucket, srcKey string, o copyOpts) (string, error) {
	in := &s3.CopyObjectInput{
		Bucket: &bucket, Key: &key, CopySource: aws.String(encodePath(srcBucket + "/" + srcKey)),
		CopySourceIfMatch: etagOf(o.IfMatch), CopySourceIfNoneMatch: etagOf(o.IfNoneMatch),
		Metadata: o.Meta, ContentType: str(o.ContentType),
	}
	if o.Replace {
		in.MetadataDirective = types.MetadataDirectiveReplace
	}
	r, err := a.c.CopyObject(ctx, in)
	if err != nil {
		return "", err
	}
	return unquote(aws.ToString(r.CopyObjectResult.ETag)), nil
}

func (a *awsSDK) List(ctx context.Context, bucket string, o listOpts) (page, error) {
	var p page
	var objects []types.Object
	var prefixes []types.CommonPrefix
	var limit *int32
	if o.Max > 0 {
		limit = aws.Int32(int32(o.Max))
	}
	if o.V1 {
		r, err := a.c.ListObjects(ctx, &s3.ListObjectsInput{Bucket: &bucket, Prefix: str(o.Prefix), Delimiter: str(o.Delimiter), Marker: str(o.After), MaxKeys: limit})
		if err != nil {
			return p, err
		}
		objects, prefixes, p.Truncated, p.Next = r.Contents, r.CommonPrefixes, aws.ToBool(r.IsTruncated), aws.ToString(r.NextMarker)
	} else {
		r, err := a.c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: str(o.Prefix), Delimiter: str(o.Delimiter), StartAfter: str(o.After), ContinuationToken: str(o.Token), MaxKeys: limit})
		if err != nil {
			return p, err
		}
		objects, prefixes, p.Truncated, p.Next = r.Contents, r.CommonPrefixes, aws.ToBool(r.IsTruncated), aws.ToString(r.NextContinuationToken)
		if n := int(aws.ToInt32(r.KeyCount)); n != len(objects)+len(prefixes) {
			return p, fmt.Errorf("KeyCount is %d, the page has %d entries", n, len(objects)+len(prefixes))
		}
	}
	for _, x := range objects {
		p.Objects = append(p.Objects, entry{aws.ToString(x.Key), aws.ToInt64(x.Size), unquote(aws.ToString(x.ETag)), aws.ToTime(x.LastModified)})
	}
	for _, x := range prefixes {
		p.Prefixes = append(p.Prefixes, aws.ToString(x.Prefix))
	}
	return p, nil
}

func (a *awsSDK) CreateUpload(ctx context.Context, bucket, key string, o putOpts) (string, error) {
	r, err := a.c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &bucket, Key: &key, ContentType: str(o.ContentType), Metadata: o.Meta, ChecksumAlgorithm: types.ChecksumAlgorithm(o.Algorithm),
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(r.UploadId), nil
}

func (a *awsSDK) PutPart(ctx context.Context, bucket, key, id string, n int, body []byte) (part, error) {
	r, err := a.c.UploadPart(ctx, &s3.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: &id, PartNumber: aws.Int32(int32(n)), Body: bytes.NewReader(body)})
	if err != nil {
		return part{}, err
	}
	return part{n, unquote(aws.ToString(r.ETag)), int64(len(body))}, nil
}

func (a *awsSDK) CopyPart(ctx context.Context, bucket, key, id string, n int, srcBucket, srcKey string, off, length int64) (part, error) {
	r, err := a.c.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &bucket, Key: &key, UploadId: &id, PartNumber: aws.Int32(int32(n)), CopySource: aws.String(encodePath(srcBucket + "/" + srcKey)),
		CopySourceRange: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+length-1)),
	})
	if err != nil {
		return part{}, err
	}
	return part{n, unquote(aws.ToString(r.CopyPartResult.ETag)), length}, nil
}

func (a *awsSDK) Complete(ctx context.Context, bucket, key, id string, parts []part) (string, error) {
	var ps []types.CompletedPart
	for _, p := range parts {
		ps = append(ps, types.CompletedPart{PartNumber: aws.Int32(int32(p.N)), ETag: aws.String(p.ETag)})
	}
	r, err := a.c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &bucket, Key: &key, UploadId: &id, MultipartUpload: &types.CompletedMultipartUpload{Parts: ps},
	})
	if err != nil {
		return "", err
	}
	return unquote(aws.ToString(r.ETag)), nil
}

func (a *awsSDK) Abort(ctx context.Context, bucket, key, id string) error {
	_, err := a.c.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: &id})
	return err
}

func (a *awsSDK) ListParts(ctx context.Context, bucket, key, id string) ([]part, error) {
	r, err := a.c.ListParts(ctx, &s3.ListPartsInput{Bucket: &bucket, Key: &key, UploadId: &id})
	if err != nil {
		return nil, err
	}
	var ps []part
	for _, p := range r.Parts {
		ps = append(ps, part{int(aws.ToInt32(p.PartNumber)), unquote(aws.ToString(p.ETag)), aws.ToInt64(p.Size)})
	}
	return ps, nil
}

func (a *awsSDK) ListUploads(ctx context.Context, bucket, prefix string) ([]upload, error) {
	r, err := a.c.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &bucket, Prefix: str(prefix)})
	if err != nil {
		return nil, err
	}
	var us []upload
	for _, u := range r.Uploads {
		us = append(us, upload{aws.ToString(u.Key), aws.ToString(u.UploadId)})
	}
	return us, nil
}

func (a *awsSDK) Presign(ctx context.Context, method, bucket, key string, expires time.Duration) (*url.URL, error) {
	pc := s3.NewPresignClient(a.c, s3.WithPresignExpires(expires))
	var raw string
	switch method {
	case http.MethodGet:
		r, err := pc.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return nil, err
		}
		raw = r.URL
	case http.MethodHead:
		r, err := pc.PresignHeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return nil, err
		}
		raw = r.URL
	case http.MethodPut:
		r, err := pc.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return nil, err
		}
		raw = r.URL
	default:
		return nil, fmt.Errorf("no presigned %s", method)
	}
	return url.Parse(raw)
}
