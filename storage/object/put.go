package object

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

func checkKey(key string) error {
	if key == "" || len(key) > MaxKeyLen {
		return fmt.Errorf("%w: key of %d bytes", storage.ErrInvalidRequest, len(key))
	}
	return nil
}

// Put implements storage.Objects.
func (s *Store) Put(ctx context.Context, bucket, key string, body io.Reader, o storage.PutOptions) (storage.ObjectInfo, error) {
	if !s.usage.enter() {
		return storage.ObjectInfo{}, storage.ErrClosed
	}
	defer s.usage.leave()
	if err := checkKey(key); err != nil {
		return storage.ObjectInfo{}, err
	}
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	ch := change{key: key, cond: o.Cond}
	if o.Cond != (storage.Condition{}) {
		// A put that must fail does so before its body is sent.
		ch.known = new(current)
		objectKey := appendObjectKey(nil, key)
		if err := s.lookup(ctx, b, objectKey, ch.known); err != nil {
			return storage.ObjectInfo{}, err
		}
		if err := s.refuse(ctx, b, objectKey, ch.known, o.Cond); err != nil {
			return storage.ObjectInfo{}, err
		}
	}

	var rec record
	md5, err := s.ingest(ctx, body, o.Size, o.ETag == "", &rec)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	info := storage.ObjectInfo{
		Key:      key,
		Size:     o.Size,
		ETag:     o.ETag,
		Modified: s.o.Now().UTC().Round(0),
		Headers:  o.Headers,
		UserMeta: o.UserMeta,
		Tags:     o.Tags,
		Chain:    o.Chain,
	}
	if info.ETag == "" {
		info.ETag = hex.EncodeToString(md5[:])
	}
	if o.Checksum != nil {
		info.Checksum = o.Checksum()
	}
	ch.record = appendRecord(nil, &rec, appendDescription(nil, &info))
	ch.more = func(batch *meta.Batch) error {
		owned(batch, &rec)
		return nil
	}
	if err := s.commit(ctx, b, &ch); err != nil {
		s.abandon(ctx, &rec, err)
		return storage.ObjectInfo{}, err
	}
	return info, nil
}

// Delete implements storage.Objects.
func (s *Store) Delete(ctx context.Context, bucket, key string, c storage.Condition) error {
	if !s.usage.enter() {
		return storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	if checkKey(key) != nil {
		return s.missing(ctx, b) // there cannot be one
	}
	return s.commit(ctx, b, &change{key: key, cond: c})
}
