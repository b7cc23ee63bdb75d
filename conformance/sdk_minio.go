package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// minioSDK is minio-go. Over HTTP it sends object bodies as signed chunks,
// over TLS as one unsigned payload.
type minioSDK struct{ core *minio.Core }

var _ sdk = (*minioSDK)(nil)

func newMinio(t *testing.T, s *shared, access, secret string, tr http.RoundTripper, host string, virtual bool) *minioSDK {
	t.Helper()
	lookup := minio.BucketLookupPath
	if virtual {
		lookup = minio.BucketLookupDNS
	}
	c, err := minio.NewCore(host, &minio.Options{
		Creds:           credentials.NewStaticV4(access, secret, ""),
		Secure:          s.scheme == "https",
		Transport:       tr,
		Region:          s.Region,
		BucketLookup:    lookup,
		TrailingHeaders: true,
		MaxRetries:      1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &minioSDK{c}
}

func (m *minioSDK) MakeBucket(ctx context.Context, bucket string) error {
	return m.core.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
}

func (m *minioSDK) HeadBucket(ctx context.Context, bucket string) error {
	ok, err := m.core.BucketExists(ctx, bucket)
	if err == nil && !ok {
		err = minio.ErrorResponse{StatusCode: 404, Code: "NoSuchBucket"} // as minio-go itself reads a 404
	}
	return err
}

func (m *minioSDK) RemoveBucket(ctx context.Context, bucket string) error {
	return m.core.RemoveBucket(ctx, bucket)
}

func (m *minioSDK) ListBuckets(ctx context.Context) ([]string, error) {
	bs, err := m.core.ListBuckets(ctx)
	var names []string
	for _, b := range bs {
		names = append(names, b.Name)
	}
	return names, err
}

func (m *minioSDK) Location(ctx context.Context, bucket string) (string, error) {
	return m.core.GetBucketLocation(ctx, bucket)
}

// minioChecksums are minio-go's names for the algorithms.
var minioChecksums = map[string]minio.ChecksumType{
	"CRC32": minio.ChecksumCRC32, "CRC32C": minio.ChecksumCRC32C, "CRC64NVME": minio.ChecksumCRC64NVME,
	"SHA1": minio.ChecksumSHA1, "SHA256": minio.ChecksumSHA256,
}

func (o putOpts) minio() minio.PutObjectOptions {
	p := minio.PutObjectOptions{
		UserMetadata: o.Meta, ContentType: o.ContentType, CacheControl: o.CacheControl,
		ContentDisposition: o.ContentDisposition, ContentEncoding: o.ContentEncoding,
		ContentLanguage: o.ContentLanguage, Expires: o.Expires,
		Checksum: minioChecksums[o.Algorithm],
	}
	if o.IfMatch != "" {
		p.SetMatchETag(o.IfMatch)
	}
	if o.IfNoneMatch != "" {
		p.SetMatchETagExcept(o.IfNoneMatch)
	}
	return p
}

func (m *minioSDK) Put(ctx context.Context, bucket, key string, body []byte, o putOpts) (http.Header, error) {
	u, err := m.core.PutObject(ctx, bucket, key, bytes.NewReader(body), int64(len(body)), "", "", o.minio())
	h := http.Header{}
	for name, v := range map[string]string{
		"ETag": u.ETag, "X-Amz-Checksum-Crc32": u.ChecksumCRC32, "X-Amz-Checksum-Crc32c": u.ChecksumCRC32C,
		"X-Amz-Checksum-Crc64nvme": u.ChecksumCRC64NVME, "X-Amz-Checksum-Sha1": u.ChecksumSHA1, "X-Amz-Checksum-Sha256": u.ChecksumSHA256,
	} {
		if v != "" {
			h.Set(name, v)
		}
	}
	return h, err
}

func (o getOpts) minio() (minio.GetObjectOptions, error) {
	g := minio.GetObjectOptions{Checksum: o.Checksum, PartNumber: o.Part}
	if o.Range != "" {
		g.Set("Range", o.Range)
	}
	var errs []error
	if o.IfMatch != "" {
		errs = append(errs, g.SetMatchETag(o.IfMatch))
	}
	if o.IfNoneMatch != "" {
		errs = append(errs, g.SetMatchETagExcept(o.IfNoneMatch))
	}
	if !o.IfModifiedSince.IsZero() {
		errs = append(errs, g.SetModified(o.IfModifiedSince))
	}
	if !o.IfUnmodifiedSince.IsZero() {
		errs = append(errs, g.SetUnmodified(o.IfUnmodifiedSince))
	}
	return g, errors.Join(errs...)
}

func (m *minioSDK) Get(ctx context.Context, bucket, key string, o getOpts) (got, error) {
	g, err := o.minio()
	if err != nil {
		return got{}, err
	}
	rc, _, h, err := m.core.GetObject(ctx, bucket, key, g)
	if err != nil {
		return got{}, err
	}
	defer rc.Close()
	b, err := io.ReadAll(rc)
	return got{h, b}, err
}

func (m *minioSDK) Head(ctx context.Context, bucket, key string, o getOpts) (http.Header, error) {
	g, err := o.minio()
	if err != nil {
		return nil, err
	}
	info, err := m.core.StatObject(ctx, bucket, key, g)
	return info.Headers, err
}

func (m *minioSDK) Delete(ctx context.Context, bucket, key string) error {
	return m.core.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
}

func (m *minioSDK) DeleteMany(ctx context.Context, bucket string, keys []string) (map[string]string, error) {
	ch := make(chan minio.ObjectInfo, len(keys))
	for _, k := range keys {
		ch <- minio.ObjectInfo{Key: k}
	}
	close(ch)
	failed := map[string]string{}
	var err error
	for e := range m.core.RemoveObjects(ctx, bucket, ch, minio.RemoveObjectsOptions{}) {
		if e.ObjectName == "" {
			err = e.Err
			continue
		}
		failed[e.ObjectName] = failureOf(e.Err).Code
	}
	return failed, err
}

func (m *minioSDK) Copy(ctx context.Context, bucket, key, srcBucket, srcKey string, o copyOpts) (string, error) {
	u, err := m.core.Client.CopyObject(ctx,
		minio.CopyDestOptions{Bucket: bucket, Object: key, ReplaceMetadata: o.Replace, UserMetadata: o.Meta, ContentType: o.ContentType},
		minio.CopySrcOptions{Bucket: srcBucket, Object: srcKey, MatchETag: o.IfMatch, NoMatchETag: o.IfNoneMatch})
	return unquote(u.ETag), err
}

func (m *minioSDK) List(_ context.Context, bucket string, o listOpts) (page, error) {
	var p page
	var objects []minio.ObjectInfo
	var prefixes []minio.CommonPrefix
	if o.V1 {
		r, err := m.core.ListObjects(bucket, o.Prefix, o.After, o.Delimiter, o.Max)
		if err != nil {
			return p, err
		}
		objects, prefixes, p.Truncated, p.Next = r.Contents, r.CommonPrefixes, r.IsTruncated, r.NextMarker
	} else {
		r, err := m.core.ListObjectsV2(bucket, o.Prefix, o.After, o.Token, o.Delimiter, o.Max)
		if err != nil {
			return p, err
		}
		objects, prefixes, p.Truncated, p.Next = r.Contents, r.CommonPrefixes, r.IsTruncated, r.NextContinuationToken
	}
	for _, x := range objects {
		p.Objects = append(p.Objects, entry{x.Key, x.Size, unquote(x.ETag), x.LastModified})
	}
	for _, x := range prefixes {
		p.Prefixes = append(p.Prefixes, x.Prefix)
	}
	return p, nil
}

func (m *minioSDK) CreateUpload(ctx context.Context, bucket, key string, o putOpts) (string, error) {
	p := o.minio()
	if o.Algorithm != "" {
		p.Checksum = 0 // Core sends what the caller sets
		meta := map[string]string{"x-amz-checksum-algorithm": o.Algorithm}
		for k, v := range o.Meta {
			meta[k] = v
		}
		p.UserMetadata = meta
	}
	return m.core.NewMultipartUpload(ctx, bucket, key, p)
}

func (m *minioSDK) PutPart(ctx context.Context, bucket, key, id string, n int, body []byte) (part, error) {
	p, err := m.core.PutObjectPart(ctx, bucket, key, id, n, bytes.NewReader(body), int64(len(body)), minio.PutObjectPartOptions{})
	return part{p.PartNumber, unquote(p.ETag), p.Size}, err
}

func (m *minioSDK) CopyPart(ctx context.Context, bucket, key, id string, n int, srcBucket, srcKey string, off, length int64) (part, error) {
	p, err := m.core.CopyObjectPart(ctx, srcBucket, srcKey, bucket, key, id, n, off, length, nil)
	return part{p.PartNumber, unquote(p.ETag), length}, err
}

func (m *minioSDK) Complete(ctx context.Context, bucket, key, id string, parts []part) (string, error) {
	var ps []minio.CompletePart
	for _, p := range parts {
		ps = append(ps, minio.CompletePart{PartNumber: p.N, ETag: p.ETag})
	}
	u, err := m.core.CompleteMultipartUpload(ctx, bucket, key, id, ps, minio.PutObjectOptions{})
	return unquote(u.ETag), err
}

func (m *minioSDK) Abort(ctx context.Context, bucket, key, id string) error {
	return m.core.AbortMultipartUpload(ctx, bucket, key, id)
}

func (m *minioSDK) ListParts(ctx context.Context, bucket, key, id string) ([]part, error) {
	r, err := m.core.ListObjectParts(ctx, bucket, key, id, 0, 1000)
	var ps []part
	for _, p := range r.ObjectParts {
		ps = append(ps, part{p.PartNumber, unquote(p.ETag), p.Size})
	}
	return ps, err
}

func (m *minioSDK) ListUploads(ctx context.Context, bucket, prefix string) ([]upload, error) {
	r, err := m.core.ListMultipartUploads(ctx, bucket, prefix, "", "", "", 1000)
	var us []upload
	for _, u := range r.Uploads {
		us = append(us, upload{u.Key, u.UploadID})
	}
	return us, err
}

func (m *minioSDK) Presign(ctx context.Context, method, bucket, key string, expires time.Duration) (*url.URL, error) {
	return m.core.Presign(ctx, strings.ToUpper(method), bucket, key, expires, nil)
}
