package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscreds "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// The SDKs run against every way of reaching the server.
func overEndpoints(t *testing.T, run func(t *testing.T, h *harness, virtual bool)) {
	for _, secure := range []bool{false, true} {
		for _, virtual := range []bool{false, true} {
			t.Run(fmt.Sprintf("tls=%v,virtual=%v", secure, virtual), func(t *testing.T) {
				t.Parallel()
				run(t, startHarness(t, secure), virtual)
			})
		}
	}
}

// transport sends whatever host is named to the server.
func (h *harness) transport(t testing.TB) *http.Transport {
	tr := h.client.Transport.(*http.Transport).Clone()
	addr := h.server.Listener.Addr().String()
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	if tr.TLSClientConfig != nil {
		tr.TLSClientConfig.ServerName = "example.com" // what the test certificate is for
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func (h *harness) secure() bool { return strings.HasPrefix(h.url, "https") }

func (h *harness) minio(t testing.TB, user string, virtual bool) *minio.Client {
	t.Helper()
	host := strings.TrimPrefix(strings.TrimPrefix(h.url, "https://"), "http://")
	lookup := minio.BucketLookupPath
	if virtual {
		host, lookup = "s3.test", minio.BucketLookupDNS
	}
	c, err := minio.New(host, &minio.Options{Creds: credentials.NewStaticV4(user, secretOf(user), ""),
		Secure: h.secure(), Transport: h.transport(t), BucketLookup: lookup, Region: "us-east-1", MaxRetries: 1, TrailingHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (h *harness) aws(t testing.TB, user string, virtual bool) *s3.Client {
	endpoint := h.url
	if virtual {
		endpoint = "http://s3.test"
		if h.secure() {
			endpoint = "https://s3.test"
		}
	}
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: !virtual,
		Credentials:      awscreds.NewStaticCredentialsProvider(user, secretOf(user), ""),
		HTTPClient:       &http.Client{Transport: h.transport(t)},
		RetryMaxAttempts: 1,
	})
}

func TestMinioGo(t *testing.T) {
	overEndpoints(t, func(t *testing.T, h *harness, virtual bool) {
		ctx := t.Context()
		c := h.minio(t, aliceKey, virtual)
		if err := c.MakeBucket(ctx, "alice-1", minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		if ok, err := c.BucketExists(ctx, "alice-1"); err != nil || !ok {
			t.Fatalf("BucketExists: %v %v", ok, err)
		}
		if loc, err := c.GetBucketLocation(ctx, "alice-1"); err != nil || loc != "us-east-1" {
			t.Fatalf("location %q %v", loc, err)
		}
		bodies := map[string][]byte{"small": content(1, 10), "dir/big one+é": content(2, 700001), "multi": content(3, 11<<20)}
		for k, b := range bodies {
			o := minio.PutObjectOptions{ContentType: "a/b", UserMetadata: map[string]string{"Color": "blue"}, PartSize: 5 << 20}
			if k == "multi" {
				o.Checksum = minio.ChecksumCRC32C
			}
			if _, err := c.PutObject(ctx, "alice-1", k, bytes.NewReader(b), int64(len(b)), o); err != nil {
				t.Fatalf("put %s: %v", k, err)
			}
		}
		for k, b := range bodies {
			o, err := c.GetObject(ctx, "alice-1", k, minio.GetObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(o)
			if err != nil || !bytes.Equal(got, b) {
				t.Fatalf("get %s: %v, equal %v", k, err, bytes.Equal(got, b))
			}
			info, err := c.StatObject(ctx, "alice-1", k, minio.StatObjectOptions{})
			if err != nil || info.ContentType != "a/b" || info.UserMetadata["Color"] != "blue" || info.Size != int64(len(b)) {
				t.Fatalf("stat %s: %+v %v", k, info, err)
			}
			part := make([]byte, 5)
			if _, err := o.ReadAt(part, 3); err != nil || !bytes.Equal(part, b[3:8]) {
				t.Fatalf("ranged read of %s: %v", k, err)
			}
			_ = o.Close() // a reader has nothing to lose
		}
		var names []string
		for o := range c.ListObjects(ctx, "alice-1", minio.ListObjectsOptions{Recursive: true}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			names = append(names, o.Key)
		}
		if want := []string{"dir/big one+é", "multi", "small"}; !slices.Equal(names, want) {
			t.Fatalf("listed %q, want %q", names, want)
		}
		if _, err := c.CopyObject(ctx, minio.CopyDestOptions{Bucket: "alice-1", Object: "copy"},
			minio.CopySrcOptions{Bucket: "alice-1", Object: "dir/big one+é"}); err != nil {
			t.Fatalf("copy: %v", err)
		}
		if info, err := c.StatObject(ctx, "alice-1", "copy", minio.StatObjectOptions{}); err != nil || info.Size != 700001 || info.UserMetadata["Color"] != "blue" {
			t.Fatalf("copy: %+v %v", info, err)
		}
		u, err := c.PresignedGetObject(ctx, "alice-1", "small", time.Minute, url.Values{"response-content-type": {"x/y"}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: h.transport(t)}).Get(u.String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !bytes.Equal(got, bodies["small"]) || resp.Header.Get("Content-Type") != "x/y" {
			t.Fatalf("presigned: %d %q %v", resp.StatusCode, got, err)
		}
		_ = resp.Body.Close() // read to its end
		if err := c.RemoveBucket(ctx, "alice-1"); minio.ToErrorResponse(err).Code != "BucketNotEmpty" {
			t.Fatalf("removing a full bucket: %v", err)
		}
		objects := make(chan minio.ObjectInfo, 4)
		for _, k := range []string{"small", "dir/big one+é", "multi", "copy"} {
			objects <- minio.ObjectInfo{Key: k}
		}
		close(objects)
		for e := range c.RemoveObjects(ctx, "alice-1", objects, minio.RemoveObjectsOptions{}) {
			t.Fatalf("remove %s: %v", e.ObjectName, e.Err)
		}
		if err := c.RemoveBucket(ctx, "alice-1"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAWSSDK(t *testing.T) {
	overEndpoints(t, func(t *testing.T, h *harness, virtual bool) {
		ctx := t.Context()
		c := h.aws(t, aliceKey, virtual)
		bucket := aws.String("alice-sdk")
		if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); err != nil {
			t.Fatal(err)
		}
		var owned *types.BucketAlreadyOwnedByYou
		if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); !errors.As(err, &owned) {
			t.Fatalf("second create: %v", err)
		}
		body := content(9, 300000)
		for _, alg := range []types.ChecksumAlgorithm{"", types.ChecksumAlgorithmCrc32, types.ChecksumAlgorithmCrc32c,
			types.ChecksumAlgorithmCrc64nvme, types.ChecksumAlgorithmSha1, types.ChecksumAlgorithmSha256} {
			key := aws.String("dir/a key+" + string(alg))
			if _, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(body),
				ChecksumAlgorithm: alg, Metadata: map[string]string{"k": "v"}}); err != nil {
				t.Fatalf("put with %q: %v", alg, err)
			}
			out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, ChecksumMode: types.ChecksumModeEnabled})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(out.Body)
			if err != nil || !bytes.Equal(got, body) || out.Metadata["k"] != "v" {
				t.Fatalf("get with %q: %v", alg, err)
			}
			if alg != "" && out.ChecksumType != types.ChecksumTypeFullObject {
				t.Errorf("%q: checksum type %q", alg, out.ChecksumType)
			}
			out, err = c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, Range: aws.String("bytes=5-99"), ChecksumMode: types.ChecksumModeEnabled})
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(out.Body); err != nil || !bytes.Equal(got, body[5:100]) {
				t.Fatalf("range with %q: %v", alg, err)
			}
		}
		var noKey *types.NoSuchKey
		if _, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("none")}); !errors.As(err, &noKey) {
			t.Fatalf("missing key: %v", err)
		}
		var notFound *types.NotFound
		if _, err := c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("none")}); !errors.As(err, &notFound) {
			t.Fatalf("missing key: %v", err)
		}
		// A streamed multipart upload: the composite checksum is worked out here.
		up, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: aws.String("mp"), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
		if err != nil {
			t.Fatal(err)
		}
		parts := [][]byte{content(10, 5<<20), content(11, 100)}
		var done []types.CompletedPart
		for i, p := range parts {
			out, err := c.UploadPart(ctx, &s3.UploadPartInput{Bucket: bucket, Key: aws.String("mp"), UploadId: up.UploadId,
				PartNumber: aws.Int32(int32(i + 1)), Body: bytes.NewReader(p), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
			if err != nil {
				t.Fatal(err)
			}
			if want := crcOf(p); aws.ToString(out.ChecksumCRC32) != want {
				t.Fatalf("part %d: checksum %q, want %q", i+1, aws.ToString(out.ChecksumCRC32), want)
			}
			done = append(done, types.CompletedPart{PartNumber: aws.Int32(int32(i + 1)), ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32})
		}
		listed, err := c.ListParts(ctx, &s3.ListPartsInput{Bucket: bucket, Key: aws.String("mp"), UploadId: up.UploadId})
		if err != nil || len(listed.Parts) != 2 || aws.ToInt64(listed.Parts[0].Size) != 5<<20 || listed.ChecksumType != types.ChecksumTypeComposite {
			t.Fatalf("parts: %+v %v", listed, err)
		}
		comp, err := c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: bucket, Key: aws.String("mp"),
			UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: done}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(aws.ToString(comp.ChecksumCRC32), "-2") || !strings.HasSuffix(aws.ToString(comp.ETag), `-2"`) {
			t.Errorf("complete: %q %q", aws.ToString(comp.ChecksumCRC32), aws.ToString(comp.ETag))
		}
		out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("mp")})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(out.Body)
		if err != nil || !bytes.Equal(got, slices.Concat(parts...)) {
			t.Fatalf("multipart object: %v", err)
		}
		pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: bucket, MaxKeys: aws.Int32(2)})
		var del types.Delete
		for pages.HasMorePages() {
			p, err := pages.NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range p.Contents {
				del.Objects = append(del.Objects, types.ObjectIdentifier{Key: o.Key})
			}
		}
		if len(del.Objects) != 7 {
			t.Fatalf("%d objects listed, want 7", len(del.Objects))
		}
		res, err := c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: bucket, Delete: &del})
		if err != nil || len(res.Deleted) != 7 || len(res.Errors) != 0 {
			t.Fatalf("delete: %+v %v", res, err)
		}
		if _, err := c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket}); err != nil {
			t.Fatal(err)
		}
	})
}
