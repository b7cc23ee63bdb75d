package storage

import (
	"errors"
	"fmt"
)

// Errors of a Store. The gateway maps each to one S3 code.
var (
	ErrNoSuchBucket     = errors.New("no such bucket")
	ErrBucketExists     = errors.New("bucket exists")
	ErrBucketNotEmpty   = errors.New("bucket not empty")
	ErrNoSuchKey        = errors.New("no such key")
	ErrNoSuchConfig     = errors.New("the bucket has no such setting")
	ErrNoSuchUpload     = errors.New("no such upload")
	ErrInvalidPart      = errors.New("invalid part")
	ErrInvalidPartOrder = errors.New("parts not in ascending order")
	ErrEntityTooSmall   = errors.New("part below the minimum size")
	ErrPrecondition     = errors.New("precondition failed")
	ErrConflict         = errors.New("conflicting write under way")
	ErrIncompleteBody   = errors.New("body does not have the stated length")
	ErrInvalidRange     = errors.New("range outside the object")
	ErrInvalidRequest   = errors.New("invalid request")
	ErrBadDigest        = errors.New("checksum does not match the bytes")
	ErrTooManyBuckets   = errors.New("too many buckets of one tenant")
	ErrTooManyUploads   = errors.New("too many unfinished uploads in one bucket")
	ErrNoSpace          = errors.New("no space left in the store")
	ErrClosed           = errors.New("store is closed")
)

// InvalidError is an ErrInvalidRequest whose reason the client should read.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return "invalid request: " + e.Reason }

// Is makes every InvalidError an ErrInvalidRequest.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalidRequest }

// CorruptError reports a block whose bytes do not match their CRC32C.
type CorruptError struct {
	Bucket, Key string
	Block       int64 // block number within the object
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt block %d of %q in bucket %q", e.Block, e.Key, e.Bucket)
}

// IsNoSuchKey reports whether err says that a key does not exist.
func IsNoSuchKey(err error) bool { return errors.Is(err, ErrNoSuchKey) }
