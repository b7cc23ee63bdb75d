// Package storage defines what the rest of objcached sees of a store: buckets,
// objects, listing and multipart uploads, as S3 means them.
//
// The S3 object model over a key-value store and a byte store is written once,
// in package storage/object. A backend that is itself an object store
// implements Store directly. Every implementation passes storage/storagetest.
package storage

import (
	"context"
	"io"
	"time"

	"github.com/objcached/objcached/checksum"
)

// BlockSize is the unit of verification: one CRC32C is kept per 64 KiB block
// of an object, so that a slice can be verified without reading its object.
// The last block of an object may be shorter.
const BlockSize = 64 << 10

// InlineLimit is the largest object, in bytes, that is kept in the metadata
// store and takes no extent.
const InlineLimit = 4 << 10

// Store is a whole object store. All methods may be called concurrently.
// Errors are those of errors.go, possibly wrapped; anything else is internal.
type Store interface {
	Buckets
	Objects
	Lister
	Multipart
	// Close waits for open objects and running calls to end, makes everything
	// acknowledged durable and releases the store. Later calls return ErrClosed.
	Close() error
}

// Bucket describes one bucket.
type Bucket struct {
	Name    string
	Owner   string // user name, unique within the tenant; empty for root
	Tenant  string // empty for root
	Created time.Time
}

// Buckets manages the name space of buckets.
type Buckets interface {
	// CreateBucket returns ErrBucketExists if the name is taken, by anyone, and
	// ErrTooManyBuckets if the tenant has as many as the store allows one.
	CreateBucket(ctx context.Context, b Bucket) error
	GetBucket(ctx context.Context, name string) (Bucket, error)
	// DeleteBucket returns ErrBucketNotEmpty if it holds an object or an
	// unfinished upload. A put under way either lands before the bucket is
	// found non-empty or fails with ErrNoSuchBucket; it never lands in limbo.
	DeleteBucket(ctx context.Context, name string) error
	// BucketConfig returns the value that SetBucketConfig kept under a name, or
	// ErrNoSuchConfig. The caller owns it.
	BucketConfig(ctx context.Context, bucket, name string) ([]byte, error)
	// SetBucketConfig keeps a value of at most MaxBucketConfig bytes, durably
	// and until the bucket is deleted; nil removes it. A bucket that has
	// nothing else is empty.
	SetBucketConfig(ctx context.Context, bucket, name string, value []byte) error
	// ListBuckets returns a page of buckets in name order; fewer than o.Max
	// are the last.
	ListBuckets(ctx context.Context, o ListBucketsOptions) ([]Bucket, error)
}

// ListBucketsOptions selects a page of buckets.
type ListBucketsOptions struct {
	Prefix string
	After  string // only names above it
	Max    int    // 0 gives none
}

// Chain says where a KV chunk stands in its prefix: eviction and residency
// need it, so it is kept from the start (headers x-kv-parent, x-kv-index).
type Chain struct {
	Parent string // key of the chunk before this one; empty for the first
	Index  int64  // place in the chain, from 0; -1 if the object is no chunk
}

// ObjectInfo describes one object. Values returned by a Store are the
// caller's to keep; maps must not be modified.
type ObjectInfo struct {
	Key      string
	Size     int64  // bytes
	ETag     string // without quotes
	Modified time.Time
	// Headers are the system headers given at PUT and returned at GET, by
	// canonical name: Content-Type, Cache-Control, Content-Disposition,
	// Content-Encoding, Content-Language, Expires.
	Headers map[string]string
	// UserMeta is by lower-case name without the "x-amz-meta-" prefix.
	UserMeta map[string]string
	Tags     []Tag        // not in a listing
	Checksum checksum.Sum // zero if none is kept
	Parts    int          // number of parts of a multipart object, else 0
	Layout   PartLayout   // of a multipart object, else nil; not in a listing
	Chain    Chain
}

// Condition guards a write. Values are ETags without quotes, or "*".
// It is evaluated atomically with the write it guards.
type Condition struct {
	IfMatch     string // the object must exist with this ETag ("*": exist), else ErrPrecondition (ErrNoSuchKey if there is none)
	IfNoneMatch string // "*": the object must not exist, else ErrPrecondition
}

// PutOptions says what is stored beside the bytes.
type PutOptions struct {
	Size     int64 // exact number of bytes the body will give; never negative
	Headers  map[string]string
	UserMeta map[string]string
	Tags     []Tag
	Chain    Chain
	Cond     Condition
	// Checksum is called once, after the body has ended with io.EOF and before
	// anything is committed; it gives the checksum to keep. Nil keeps none.
	Checksum func() checksum.Sum
	// ETag, if not empty, is stored in place of the MD5 of the bytes (a copy
	// of a multipart object does not use it: S3 gives copies a plain ETag).
	ETag string
}

// Objects stores and reads single objects.
type Objects interface {
	// Put stores exactly o.Size bytes of body under key and returns when they
	// are durable and visible. The body is read to io.EOF; any other error
	// from it (a bad signature, a checksum mismatch found at the end) aborts
	// the put, leaves no trace and is returned as it is. A body that is
	// shorter or longer than o.Size is ErrIncompleteBody.
	Put(ctx context.Context, bucket, key string, body io.Reader, o PutOptions) (ObjectInfo, error)
	// Open pins the object's bytes: until Close, a delete or overwrite does
	// not change what it reads.
	Open(ctx context.Context, bucket, key string) (Object, error)
	// Stat is Open without the pin.
	Stat(ctx context.Context, bucket, key string) (ObjectInfo, error)
	// Delete removes the object. A missing key is ErrNoSuchKey (S3's 204 for it
	// is the caller's affair).
	Delete(ctx context.Context, bucket, key string, c Condition) error
	// SetTags replaces an object's tags and nothing else of it, durably. The
	// object's time and ETag stay; a missing key is ErrNoSuchKey.
	SetTags(ctx context.Context, bucket, key string, tags []Tag) error
}

// ReadHint tells a backend what a read is for. The zero value is an ordinary read.
type ReadHint struct {
	Class ReadClass
	Layer int // for ClassLayer: the model layer, counted from 0
}

// ReadClass is the kind of request behind a read.
type ReadClass uint8

// The classes of reads.
const (
	ClassPlain ReadClass = iota // an S3 GET
	ClassLayer                  // layerwise delivery
	ClassChunk                  // chunk-major delivery
	ClassScrub                  // background verification; must not warm any cache
)

// Object is an opened object. ReadAt may be called concurrently; Close must
// not be called while a ReadAt runs, and may be called more than once.
type Object interface {
	Size() int64
	// Info decodes the description; it costs more than Size.
	Info() (ObjectInfo, error)
	// ReadAt fills p with the bytes [off, off+len(p)) or returns an error, in
	// which case p's content is undefined. Every block it touches is verified
	// as the store's verify mode says; a bad block is a *CorruptError. A range
	// outside the object is ErrInvalidRange. p is the caller's and is not kept.
	// Ranges that start and end on block boundaries (or at the object's end)
	// are read straight into p; others go through a bounce buffer for their
	// partial blocks.
	ReadAt(ctx context.Context, p []byte, off int64, hint ReadHint) error
	Close() error
}

// ListOptions selects a page of a listing. Keys are in byte order.
type ListOptions struct {
	Prefix    string
	Delimiter string
	// After: only keys above it, and if it is itself a common prefix of this
	// listing, nothing below that prefix.
	After string
	Max   int // entries (objects plus common prefixes); 0 gives none
}

// ListPage is one page. Objects carry Key, Size, ETag, Modified and Checksum.
type ListPage struct {
	Objects   []ObjectInfo
	Prefixes  []string
	Truncated bool
	Next      string // the last key or prefix of the page; pass as After for the next one
}

// Lister lists a bucket.
type Lister interface {
	List(ctx context.Context, bucket string, o ListOptions) (ListPage, error)
	// MatchPrefix returns the length of the longest prefix of keys that all exist.
	MatchPrefix(ctx context.Context, bucket string, keys []string) (int, error)
}

// Part describes one stored part of an upload.
type Part struct {
	Number   int // 1..10000
	Size     int64
	ETag     string
	Modified time.Time
	Checksum checksum.Sum
}

// PartOptions is PutOptions for a part.
type PartOptions struct {
	Size     int64
	Checksum func() checksum.Sum
}

// CompletedPart names a part in CompleteUpload. A checksum that is not zero
// must be the stored one; its Type does not count.
type CompletedPart struct {
	Number   int
	ETag     string
	Checksum checksum.Sum
}

// Upload describes an unfinished multipart upload.
type Upload struct {
	Key, ID   string
	Initiated time.Time
	// Algorithm and Type say what checksum was asked for of the completed
	// object. Without one, it has a CRC64NVME if all its parts do.
	Algorithm checksum.Algorithm
	Type      checksum.Type
}

// CompleteOptions guards a completion.
type CompleteOptions struct {
	Cond Condition
	// Checksum, if its Value is set, is the checksum the client expects of the
	// object; a different result is ErrBadDigest. An algorithm or a type that is
	// not the upload's is ErrInvalidRequest.
	Checksum checksum.Sum
	// Size, if positive, is the total size the client expects, else ErrInvalidRequest.
	Size int64
}

// PartPage is one page of a part listing.
type PartPage struct {
	Upload    Upload
	Parts     []Part
	Truncated bool
}

// UploadPage is one page of an upload listing.
type UploadPage struct {
	Uploads    []Upload
	Prefixes   []string
	Truncated  bool
	NextKey    string
	NextUpload string
}

// Multipart stores an object in parts. Completing moves no bytes: the object
// becomes a list of the parts' extents.
type Multipart interface {
	// CreateUpload uses o.Headers, UserMeta, Tags and Chain; alg and typ may be
	// zero. ErrTooManyUploads says that the bucket has as many unfinished
	// uploads as the store allows one.
	CreateUpload(ctx context.Context, bucket, key string, o PutOptions, alg checksum.Algorithm, typ checksum.Type) (Upload, error)
	GetUpload(ctx context.Context, bucket, key, id string) (Upload, error)
	PutPart(ctx context.Context, bucket, key, id string, number int, body io.Reader, o PartOptions) (Part, error)
	// CompleteUpload checks order (ErrInvalidPartOrder), presence and ETag
	// (ErrInvalidPart), and that every part but the last has 5 MiB
	// (ErrEntityTooSmall). Completing an upload again with the same parts gives
	// the object again, as long as the key holds what the upload made of it;
	// after that it is ErrNoSuchUpload.
	CompleteUpload(ctx context.Context, bucket, key, id string, parts []CompletedPart, o CompleteOptions) (ObjectInfo, error)
	AbortUpload(ctx context.Context, bucket, key, id string) error
	ListParts(ctx context.Context, bucket, key, id string, after, max int) (PartPage, error)
	// ListUploads pages by (key, upload id), and uploads of one key are in the
	// order in which they were created; o.After is the key marker and afterID
	// the upload id marker.
	ListUploads(ctx context.Context, bucket string, o ListOptions, afterID string) (UploadPage, error)
}

// VerifyMode says when reads check block CRCs.
type VerifyMode uint8

// The verify modes of `--verify`.
const (
	VerifyAlways    VerifyMode = iota // every block, every time (default)
	VerifyFirstRead                   // a block once per process
	VerifyOff
)

// MultiOpener is an optional ability: opening many objects of one bucket in
// one go. On any missing key it returns the objects before it (opened, in
// order) together with ErrNoSuchKey; on any other error, none.
type MultiOpener interface {
	OpenMany(ctx context.Context, bucket string, keys []string) ([]Object, error)
}

// OpenMany opens keys in order through s's MultiOpener, or one by one.
// See MultiOpener for what it returns; the caller closes what it gets.
func OpenMany(ctx context.Context, s Store, bucket string, keys []string) ([]Object, error) {
	if m, ok := s.(MultiOpener); ok {
		return m.OpenMany(ctx, bucket, keys)
	}
	objs := make([]Object, 0, len(keys))
	for _, k := range keys {
		o, err := s.Open(ctx, bucket, k)
		if err != nil {
			if !IsNoSuchKey(err) {
				CloseAll(objs)
				objs = nil
			}
			return objs, err
		}
		objs = append(objs, o)
	}
	return objs, nil
}

// CloseAll closes objects that OpenMany returned.
func CloseAll(objs []Object) {
	for _, o := range objs {
		_ = o.Close() // closing a reader has nothing to lose
	}
}
