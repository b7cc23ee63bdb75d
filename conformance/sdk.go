package conformance

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/minio/minio-go/v7"
)

// sdk is what both SDKs can do, in one form. Errors are the SDK's own;
// failureOf reads them.
type sdk interface {
	MakeBucket(ctx context.Context, bucket string) error
	HeadBucket(ctx context.Context, bucket string) error
	RemoveBucket(ctx context.Context, bucket string) error
	ListBuckets(ctx context.Context) ([]string, error)
	Location(ctx context.Context, bucket string) (string, error)

	Put(ctx context.Context, bucket, key string, body []byte, o putOpts) (http.Header, error)
	Get(ctx context.Context, bucket, key string, o getOpts) (got, error)
	Head(ctx context.Context, bucket, key string, o getOpts) (http.Header, error)
	Delete(ctx context.Context, bucket, key string) error
	DeleteMany(ctx context.Context, bucket string, keys []string) (failed map[string]string, err error)
	Copy(ctx context.Context, bucket, key, srcBucket, srcKey string, o copyOpts) (etag string, err error)
	List(ctx context.Context, bucket string, o listOpts) (page, error)

	CreateUpload(ctx context.Context, bucket, key string, o putOpts) (id string, err error)
	PutPart(ctx context.Context, bucket, key, id string, n int, body []byte) (part, error)
	CopyPart(ctx context.Context, bucket, key, id string, n int, srcBucket, srcKey string, off, length int64) (part, error)
	Complete(ctx context.Context, bucket, key, id string, parts []part) (etag string, err error)
	Abort(ctx context.Context, bucket, key, id string) error
	ListParts(ctx context.Context, bucket, key, id string) ([]part, error)
	ListUploads(ctx context.Context, bucket, prefix string) ([]upload, error)

	Presign(ctx context.Context, method, bucket, key string, expires time.Duration) (*url.URL, error)
}

// putOpts is what goes with a PUT. Meta is by lower-case name.
type putOpts struct {
	ContentType, CacheControl, ContentDisposition, ContentEncoding, ContentLanguage string
	Expires                                                                         time.Time
	Meta                                                                            map[string]string
	IfMatch, IfNoneMatch                                                            string
	Algorithm                                                                       string // checksum, by S3 name; the SDK computes it
}

// getOpts is what goes with a GET or HEAD. ETags are without quotes.
type getOpts struct {
	Range                              string
	IfMatch, IfNoneMatch               string
	IfModifiedSince, IfUnmodifiedSince time.Time
	Checksum                           bool
	Part                               int
}

// got is an answer to GET.
type got struct {
	Header http.Header
	Body   []byte
}

type copyOpts struct {
	IfMatch, IfNoneMatch string            // of the source
	Replace              bool              // take Meta and ContentType in place of the source's
	Meta                 map[string]string // by lower-case name
	ContentType          string
}

type listOpts struct {
	V1                bool
	Prefix, Delimiter string
	After             string // start-after, or the marker of v1
	Token             string // continuation token of v2
	Max               int    // 0: not given
}

// entry is one object of a listing.
type entry struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

type page struct {
	Objects   []entry
	Prefixes  []string
	Truncated bool
	Next      string // token of v2, marker of v1 (only with a delimiter)
}

type part struct {
	N    int
	ETag string
	Size int64
}

type upload struct{ Key, ID string }

// failureOf reads an SDK's error.
func failureOf(err error) failure {
	var f failure
	var m minio.ErrorResponse
	if errors.As(err, &m) {
		return failure{m.StatusCode, m.Code}
	}
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) {
		f.Status = re.HTTPStatusCode()
	}
	var ae smithy.APIError
	if errors.As(err, &ae) {
		f.Code = ae.ErrorCode()
	}
	return f
}
