package object

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// bucket is a bucket this process has seen. It may be gone by now: a commit
// finds that out by its condition on the marker, a read that misses asks live.
type bucket struct {
	storage.Bucket
	part string // its partition, never used again after it
	raw  []byte // its entry in sys

	deleting sync.Mutex // held by DeleteBucket
	uploads  uploadCount
}

const bucketVersion = 1

// encode returns the entry: version, partition, owner, tenant, created.
func (b *bucket) encode() []byte {
	v := appendString([]byte{bucketVersion}, b.part)
	v = appendString(v, b.Owner)
	v = appendString(v, b.Tenant)
	return binary.AppendVarint(v, b.Created.UnixNano())
}

func decodeBucket(name string, v []byte) (*bucket, error) {
	d := decoder{b: v}
	ver := d.byte()
	b := &bucket{part: d.str(), raw: bytes.Clone(v)}
	b.Name, b.Owner, b.Tenant = name, d.str(), d.str()
	b.Created = time.Unix(0, d.varint()).UTC()
	if d.bad || ver != bucketVersion {
		return nil, fmt.Errorf("%w: bucket %q", errBadRecord, name)
	}
	return b, nil
}

func sysBucketKey(name string) []byte { return append([]byte{sysBucket}, name...) }

// bucket finds a bucket by name.
func (s *Store) bucket(ctx context.Context, name string) (*bucket, error) {
	s.bucketMu.RLock()
	b := s.buckets[name]
	s.bucketMu.RUnlock()
	if b != nil {
		return b, nil
	}
	// Under nameMu, or a name could be remembered after its deletion.
	s.nameMu.RLock()
	defer s.nameMu.RUnlock()
	v, err := s.meta.Get(ctx, sysPartition, sysBucketKey(name), nil)
	if errors.Is(err, meta.ErrNotFound) {
		return nil, storage.ErrNoSuchBucket
	}
	if err != nil {
		return nil, toStorage(err)
	}
	b, err = decodeBucket(name, v)
	if err != nil {
		return nil, err
	}
	return s.remember(b), nil
}

// remember returns the one value that stands for b's bucket in this process.
func (s *Store) remember(b *bucket) *bucket {
	s.bucketMu.Lock()
	defer s.bucketMu.Unlock()
	if old := s.buckets[b.Name]; old != nil && old.part == b.part {
		return old
	}
	s.buckets[b.Name] = b
	return b
}

func (s *Store) forget(b *bucket) {
	s.bucketMu.Lock()
	defer s.bucketMu.Unlock()
	if s.buckets[b.Name] == b {
		delete(s.buckets, b.Name)
	}
}

// live returns nil if the bucket takes writes. While it is being deleted live
// waits for the outcome.
func (s *Store) live(ctx context.Context, b *bucket) error {
	for range 100 {
		v, err := s.meta.Get(ctx, b.part, markerKey, nil)
		switch {
		case errors.Is(err, meta.ErrNotFound):
			s.forget(b)
			return storage.ErrNoSuchBucket
		case err != nil:
			return toStorage(err)
		case bytes.Equal(v, markerLive):
			return nil
		}
		b.deleting.Lock() // waits for the call that deletes it, if it is in this process
		v, err = s.meta.Get(ctx, b.part, markerKey, nil)
		b.deleting.Unlock()
		if err == nil && !bytes.Equal(v, markerLive) { // another process
			select {
			case <-s.o.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return storage.ErrConflict
}

// missing says what a key that is not there means: no such key, unless the
// bucket itself is gone.
func (s *Store) missing(ctx context.Context, b *bucket) error {
	_, err := s.meta.Get(ctx, b.part, markerKey, nil)
	if errors.Is(err, meta.ErrNotFound) {
		s.forget(b)
		return storage.ErrNoSuchBucket
	}
	if err != nil {
		return toStorage(err)
	}
	return storage.ErrNoSuchKey
}

// CreateBucket implements storage.Buckets. The marker goes into the fresh
// partition first, so that a bucket found by name is whole.
func (s *Store) CreateBucket(ctx context.Context, info storage.Bucket) error {
	if !s.usage.enter() {
		return storage.ErrClosed
	}
	defer s.usage.leave()
	if info.Name == "" || len(info.Name) > 255 {
		return fmt.Errorf("%w: bucket name of %d bytes", storage.ErrInvalidRequest, len(info.Name))
	}
	// Asked before a partition is made for nothing; not of the names remembered,
	// which may be of buckets that are gone.
	if _, err := s.meta.Get(ctx, sysPartition, sysBucketKey(info.Name), nil); err == nil {
		return storage.ErrBucketExists
	} else if !errors.Is(err, meta.ErrNotFound) {
		return toStorage(err)
	}
	if !s.ownBucket(info.Tenant, 1) {
		return storage.ErrTooManyBuckets
	}
	err := s.createBucket(ctx, info)
	if err != nil {
		s.ownBucket(info.Tenant, -1)
	}
	return err
}

// ownBucket counts one bucket more or less of a tenant, or says that it has
// too many.
func (s *Store) ownBucket(tenant string, n int) bool {
	s.bucketMu.Lock()
	defer s.bucketMu.Unlock()
	if n > 0 && s.perTenant[tenant] >= s.o.MaxBuckets {
		return false
	}
	if s.perTenant[tenant] += n; s.perTenant[tenant] <= 0 {
		delete(s.perTenant, tenant)
	}
	return true
}

func (s *Store) createBucket(ctx context.Context, info storage.Bucket) error {
	id, err := s.newID()
	if err != nil {
		return err
	}
	if info.Created.IsZero() {
		info.Created = s.o.Now()
	}
	info.Created = info.Created.UTC().Round(0)
	b := &bucket{Bucket: info, part: partitionName(id)}
	b.raw = b.encode()

	ctx = context.WithoutCancel(ctx)
	var mark, name meta.Batch
	mark.IfAbsent(markerKey)
	mark.Set(markerKey, markerLive)
	if err := s.meta.Apply(ctx, b.part, &mark); err != nil {
		return toStorage(err)
	}
	name.IfAbsent(sysBucketKey(info.Name))
	name.Set(sysBucketKey(info.Name), b.raw)
	err = s.meta.Apply(ctx, sysPartition, &name)
	if errors.Is(err, meta.ErrConflict) {
		var undo meta.Batch
		undo.Delete(markerKey)
		if err := s.meta.Apply(ctx, b.part, &undo); err != nil {
			return toStorage(err) // the next start removes it
		}
		return storage.ErrBucketExists
	}
	return toStorage(err)
}

// GetBucket implements storage.Buckets.
func (s *Store) GetBucket(ctx context.Context, name string) (storage.Bucket, error) {
	if !s.usage.enter() {
		return storage.Bucket{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, name)
	if err != nil {
		return storage.Bucket{}, err
	}
	return b.Bucket, nil
}

// ListBuckets implements storage.Buckets.
func (s *Store) ListBuckets(ctx context.Context, o storage.ListBucketsOptions) ([]storage.Bucket, error) {
	if !s.usage.enter() {
		return nil, storage.ErrClosed
	}
	defer s.usage.leave()
	if o.Max <= 0 {
		return nil, nil
	}
	start := sysBucketKey(o.Prefix)
	end := successor(start)
	if o.After >= o.Prefix && o.After != "" {
		start = append(sysBucketKey(o.After), 0)
	}
	if bytes.Compare(start, end) >= 0 {
		return nil, nil
	}
	var out []storage.Bucket
	err := s.meta.Scan(ctx, sysPartition, start, end, func(k, v []byte) (bool, error) {
		b, err := decodeBucket(string(k[1:]), v)
		if err != nil {
			return false, err
		}
		out = append(out, b.Bucket)
		return len(out) < o.Max, nil
	})
	return out, toStorage(err)
}

func (s *Store) allBuckets(ctx context.Context) ([]*bucket, error) {
	var out []*bucket
	err := s.meta.Scan(ctx, sysPartition, []byte{sysBucket}, []byte{sysBucket + 1}, func(k, v []byte) (bool, error) {
		b, err := decodeBucket(string(k[1:]), v)
		if err != nil {
			return false, err
		}
		out = append(out, b)
		return true, nil
	})
	return out, err
}

// DeleteBucket implements storage.Buckets. With the marker at "deleting" no
// commit can land, so that what the scan finds is what there is.
func (s *Store) DeleteBucket(ctx context.Context, name string) error {
	if !s.usage.enter() {
		return storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, name)
	if err != nil {
		return err
	}
	b.deleting.Lock()
	defer b.deleting.Unlock()
	// A first look without disturbing anybody.
	if empty, err := s.empty(ctx, b); err != nil {
		return toStorage(err)
	} else if !empty {
		return storage.ErrBucketNotEmpty
	}
	token, err := s.newID()
	if err != nil {
		return err
	}
	closing := append([]byte{markerDeleting}, token[:]...)
	ctx = context.WithoutCancel(ctx)
	if err := s.setMarker(ctx, b, markerLive, closing); err != nil {
		if !errors.Is(err, meta.ErrConflict) {
			return toStorage(err)
		}
		if err := s.missing(ctx, b); !errors.Is(err, storage.ErrNoSuchKey) {
			return err // gone
		}
		return storage.ErrConflict // another process is at it
	}
	empty, err := s.empty(ctx, b)
	if err != nil || !empty {
		if rerr := s.setMarker(ctx, b, closing, markerLive); rerr != nil {
			return toStorage(errors.Join(err, rerr)) // the next start reverts it
		}
		if err == nil {
			err = storage.ErrBucketNotEmpty
		}
		return toStorage(err)
	}
	if err := s.endPartition(ctx, b, closing); err != nil {
		return toStorage(err)
	}
	s.ownBucket(b.Tenant, -1)
	s.nameMu.Lock()
	defer s.nameMu.Unlock()
	s.forget(b)
	return toStorage(s.dropName(ctx, b))
}

// setMarker changes the marker from one value to another, or deletes it.
func (s *Store) setMarker(ctx context.Context, b *bucket, from, to []byte) error {
	var batch meta.Batch
	batch.IfEqual(markerKey, from)
	if to == nil {
		batch.Delete(markerKey)
	} else {
		batch.Set(markerKey, to)
	}
	return s.meta.Apply(ctx, b.part, &batch)
}

// endPartition deletes the marker, and with it the bucket's settings: what is
// left of a partition without a marker nobody would look for.
func (s *Store) endPartition(ctx context.Context, b *bucket, marker []byte) error {
	var batch meta.Batch
	batch.IfEqual(markerKey, marker)
	batch.Delete(markerKey)
	err := s.meta.Scan(ctx, b.part, []byte{keyConfig}, []byte{keyConfig + 1}, func(k, _ []byte) (bool, error) {
		batch.Delete(bytes.Clone(k))
		return true, nil
	})
	if err != nil {
		return err
	}
	return s.meta.Apply(ctx, b.part, &batch)
}

// dropName removes b's entry in sys.
func (s *Store) dropName(ctx context.Context, b *bucket) error {
	var batch meta.Batch
	batch.IfEqual(sysBucketKey(b.Name), b.raw)
	batch.Delete(sysBucketKey(b.Name))
	err := s.meta.Apply(ctx, sysPartition, &batch)
	if errors.Is(err, meta.ErrConflict) {
		return nil // done already
	}
	return err
}

// empty reports whether b holds neither an object nor an upload.
func (s *Store) empty(ctx context.Context, b *bucket) (bool, error) {
	empty := true
	for _, kind := range []byte{keyObject, keyUpload} {
		err := s.meta.Scan(ctx, b.part, []byte{kind}, []byte{kind + 1}, func(_, _ []byte) (bool, error) {
			empty = false
			return false, nil
		})
		if err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

// recoverBuckets finishes creations and deletions that a crash interrupted: a
// name without a marker is removed, a marker without a name too, and a
// bucket that was about to be deleted lives on.
func (s *Store) recoverBuckets(ctx context.Context, parts []string) error {
	bs, err := s.allBuckets(ctx)
	if err != nil {
		return err
	}
	named := make(map[string]*bucket, len(bs))
	for _, b := range bs {
		named[b.part] = b
		s.perTenant[b.Tenant]++
	}
	for _, p := range parts {
		b := named[p]
		delete(named, p)
		v, err := s.meta.Get(ctx, p, markerKey, nil)
		if errors.Is(err, meta.ErrNotFound) {
			if b != nil {
				s.ownBucket(b.Tenant, -1)
				err = s.dropName(ctx, b)
			} else {
				err = nil // a deleted bucket with garbage
			}
		} else if err == nil && b == nil {
			err = s.setMarker(ctx, &bucket{part: p}, v, nil)
		} else if err == nil && !bytes.Equal(v, markerLive) {
			err = s.setMarker(ctx, b, v, markerLive)
		}
		if err != nil {
			return err
		}
	}
	for _, b := range named { // whose partitions hold nothing at all
		s.ownBucket(b.Tenant, -1)
		if err := s.dropName(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
