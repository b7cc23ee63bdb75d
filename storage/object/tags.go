package object

import (
	"context"
	"errors"
	"fmt"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

func appendTags(dst []byte, tags []storage.Tag) []byte {
	if len(tags) == 0 {
		return dst
	}
	var v []byte
	for _, t := range tags {
		v = appendString(appendString(v, t.Key), t.Value)
	}
	return appendField(dst, fieldTags, v)
}

// decodeTags reads a value of fieldTags.
func decodeTags(v []byte) (tags []storage.Tag, ok bool) {
	d := decoder{b: v}
	for len(d.b) > 0 && !d.bad {
		tags = append(tags, storage.Tag{Key: d.str(), Value: d.str()})
	}
	return tags, !d.bad
}

// SetTags implements storage.Objects. The record is written anew around the
// same bytes and under the same id: whoever reads the object goes on reading.
func (s *Store) SetTags(ctx context.Context, bucket, key string, tags []storage.Tag) error {
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
	objectKey := appendObjectKey(nil, key)
	return s.settle(ctx, b, func(batch *meta.Batch) error {
		var c current
		if err := s.lookup(ctx, b, objectKey, &c); err != nil {
			return err
		}
		if c.raw == nil {
			return s.missing(ctx, b)
		}
		desc, err := c.rec.retagged(tags)
		if err != nil {
			return fmt.Errorf("bucket %q: key %q: %w", b.Name, key, err)
		}
		batch.IfEqual(objectKey, c.raw)
		batch.Set(objectKey, appendRecord(nil, &c.rec, desc))
		return nil
	})
}

// retagged is r's description with other tags.
func (r *record) retagged(tags []storage.Tag) ([]byte, error) {
	d := decoder{b: r.desc}
	info := d.listed("", r.size)
	f := d.rest(&info, r)
	if d.bad {
		return nil, errBadRecord
	}
	info.Tags = tags
	desc := appendDescription(nil, &info)
	if len(f.partSums) > 0 {
		desc = appendField(desc, fieldPartSums, f.partSums)
	}
	if len(f.upload) > 0 {
		desc = appendField(desc, fieldUpload, f.upload)
	}
	return desc, nil
}

// maxConfigName bounds the name of a bucket's setting, in bytes.
const maxConfigName = 64

func configKey(name string) []byte { return append([]byte{keyConfig}, name...) }

// BucketConfig implements storage.Buckets.
func (s *Store) BucketConfig(ctx context.Context, bucket, name string) ([]byte, error) {
	if !s.usage.enter() {
		return nil, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	v, err := s.meta.Get(ctx, b.part, configKey(name), nil)
	if errors.Is(err, meta.ErrNotFound) {
		if err := s.missing(ctx, b); !storage.IsNoSuchKey(err) {
			return nil, err
		}
		return nil, storage.ErrNoSuchConfig
	}
	if err != nil {
		return nil, toStorage(err)
	}
	return v, nil
}

// SetBucketConfig implements storage.Buckets.
func (s *Store) SetBucketConfig(ctx context.Context, bucket, name string, value []byte) error {
	if !s.usage.enter() {
		return storage.ErrClosed
	}
	defer s.usage.leave()
	if name == "" || len(name) > maxConfigName || len(value) > storage.MaxBucketConfig {
		return fmt.Errorf("%w: setting %q of %d bytes", storage.ErrInvalidRequest, name, len(value))
	}
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	return s.settle(ctx, b, func(batch *meta.Batch) error {
		if value == nil {
			batch.Delete(configKey(name))
		} else {
			batch.Set(configKey(name), value)
		}
		return nil
	})
}
