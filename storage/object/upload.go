package object

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// Limits of multipart uploads, as S3 has them.
const (
	maxParts    = 10000
	minPartSize = 5 << 20 // bytes, of all parts but the last
)

// upload is an unfinished upload as its u entry has it: a record without
// data, whose description is that of the object to be, with the time of
// initiation and a checksum without a value.
type upload struct {
	raw  []byte
	id   ID
	info storage.ObjectInfo
}

func (u *upload) public() storage.Upload {
	return storage.Upload{
		Key: u.info.Key, ID: u.id.String(), Initiated: u.info.Modified,
		Algorithm: u.info.Checksum.Algorithm, Type: u.info.Checksum.Type,
	}
}

func decodeUpload(key string, v []byte, all bool) (*upload, error) {
	u := &upload{raw: v}
	var rec record
	err := rec.decode(v)
	if err == nil {
		u.id = rec.id
		u.info, err = rec.describe(key, all)
	}
	if err != nil {
		return nil, fmt.Errorf("upload of %q: %w", key, err)
	}
	return u, nil
}

// checksumType settles the type of an upload's checksum.
func checksumType(alg checksum.Algorithm, typ checksum.Type) (checksum.Type, error) {
	if alg == checksum.None && typ == "" {
		return "", nil
	}
	if alg.Size() == 0 {
		return "", fmt.Errorf("%w: checksum type %q of algorithm %q", storage.ErrInvalidRequest, typ, alg)
	}
	if typ == "" {
		typ = checksum.Composite
		if alg == checksum.CRC64NVME {
			typ = checksum.FullObject
		}
	}
	ok := typ == checksum.FullObject && alg.IsCRC() || typ == checksum.Composite && alg != checksum.CRC64NVME
	if !ok {
		return "", fmt.Errorf("%w: checksum type %q with algorithm %q", storage.ErrInvalidRequest, typ, alg)
	}
	return typ, nil
}

// CreateUpload implements storage.Multipart.
func (s *Store) CreateUpload(ctx context.Context, bucket, key string, o storage.PutOptions, alg checksum.Algorithm, typ checksum.Type) (storage.Upload, error) {
	if !s.usage.enter() {
		return storage.Upload{}, storage.ErrClosed
	}
	defer s.usage.leave()
	if err := checkKey(key); err != nil {
		return storage.Upload{}, err
	}
	typ, err := checksumType(alg, typ)
	if err != nil {
		return storage.Upload{}, err
	}
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.Upload{}, err
	}
	id, err := s.newUploadID()
	if err != nil {
		return storage.Upload{}, err
	}
	u := upload{id: id, info: storage.ObjectInfo{
		Key: key, Modified: s.o.Now().UTC().Round(0),
		Headers: o.Headers, UserMeta: o.UserMeta, Tags: o.Tags, Chain: o.Chain,
		Checksum: checksum.Sum{Algorithm: alg, Type: typ},
	}}
	u.raw = appendRecord(nil, &record{kind: kindInline, id: id}, appendDescription(nil, &u.info))
	if err := s.beginUpload(ctx, b); err != nil {
		return storage.Upload{}, err
	}
	err = s.settle(ctx, b, func(batch *meta.Batch) error {
		k := uploadKey(key, id)
		batch.IfAbsent(k)
		batch.Set(k, u.raw)
		return nil
	})
	if err != nil {
		b.uploads.add(-1)
		return storage.Upload{}, err
	}
	return u.public(), nil
}

// uploadCount is the number of a bucket's unfinished uploads. It is taken from
// the store before the first of them begins or ends in this process.
type uploadCount struct {
	mu    sync.Mutex
	known bool
	n     int
}

func (c *uploadCount) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

// countUploads makes sure that b's uploads are counted. Whoever begins or ends
// one calls it before the commit, so that the count has seen all of them once.
func (s *Store) countUploads(ctx context.Context, b *bucket) error {
	c := &b.uploads
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		return nil
	}
	n := 0
	err := s.meta.Scan(ctx, b.part, []byte{keyUpload}, []byte{keyUpload + 1}, func(_, _ []byte) (bool, error) {
		n++
		return true, nil
	})
	if err != nil {
		return toStorage(err)
	}
	c.n, c.known = n, true
	return nil
}

// beginUpload counts one upload more, or says that there are too many.
func (s *Store) beginUpload(ctx context.Context, b *bucket) error {
	if err := s.countUploads(ctx, b); err != nil {
		return err
	}
	c := &b.uploads
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= s.o.MaxUploads {
		return storage.ErrTooManyUploads
	}
	c.n++
	return nil
}

// newUploadID makes an id whose first half is the time, later for every call
// in this process: the uploads of a key are listed in the order of creation.
func (s *Store) newUploadID() (ID, error) {
	id, err := s.newID()
	if err != nil {
		return id, err
	}
	s.randMu.Lock()
	defer s.randMu.Unlock()
	s.lastUpload = max(s.lastUpload+1, uint64(s.o.Now().UnixNano()))
	binary.BigEndian.PutUint64(id[:], s.lastUpload)
	return id, nil
}

// settle applies what fill adds to a batch that is conditional on the bucket,
// again as long as it meets conflicts. fill reads what the batch depends on.
func (s *Store) settle(ctx context.Context, b *bucket, fill func(*meta.Batch) error) error {
	for range maxTries {
		var batch meta.Batch
		batch.IfEqual(markerKey, markerLive)
		if err := fill(&batch); err != nil {
			return err
		}
		err := s.apply(ctx, b.part, &batch)
		if !errors.Is(err, meta.ErrConflict) {
			return err
		}
		if err := s.live(ctx, b); err != nil {
			return err
		}
	}
	return storage.ErrConflict
}

// findUpload reads an upload's entry.
func (s *Store) findUpload(ctx context.Context, b *bucket, key, id string) (*upload, error) {
	uid, ok := parseID(id)
	if !ok || checkKey(key) != nil {
		return nil, storage.ErrNoSuchUpload
	}
	v, err := s.meta.Get(ctx, b.part, uploadKey(key, uid), nil)
	if errors.Is(err, meta.ErrNotFound) {
		if err := s.missing(ctx, b); !storage.IsNoSuchKey(err) {
			return nil, err
		}
		return nil, storage.ErrNoSuchUpload
	}
	if err != nil {
		return nil, toStorage(err)
	}
	return decodeUpload(key, v, true)
}

// GetUpload implements storage.Multipart.
func (s *Store) GetUpload(ctx context.Context, bucket, key, id string) (storage.Upload, error) {
	if !s.usage.enter() {
		return storage.Upload{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.Upload{}, err
	}
	u, err := s.findUpload(ctx, b, key, id)
	if err != nil {
		return storage.Upload{}, err
	}
	return u.public(), nil
}

// AbortUpload implements storage.Multipart. It only drops the upload's entry:
// from then on no part can be committed, and the reaper drops those there are.
func (s *Store) AbortUpload(ctx context.Context, bucket, key, id string) error {
	if !s.usage.enter() {
		return storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	if err := s.countUploads(ctx, b); err != nil {
		return err
	}
	var sweep *garbage
	err = s.settle(ctx, b, func(batch *meta.Batch) error {
		u, err := s.findUpload(ctx, b, key, id)
		if err != nil {
			return err
		}
		sweep = s.endUpload(b, u, batch)
		return nil
	})
	if err == nil {
		b.uploads.add(-1)
		s.reap.add(sweep)
	}
	return err
}

// endUpload adds to batch the end of u and the sweeping of what parts it will
// leave. A part can only be committed while u's entry stands.
func (s *Store) endUpload(b *bucket, u *upload, batch *meta.Batch) *garbage {
	k := uploadKey(u.info.Key, u.id)
	batch.IfEqual(k, u.raw)
	batch.Delete(k)
	sweep := &garbage{part: b.part, id: u.id, kind: kindSweep, since: s.o.Now()}
	batch.Set(idKey(keyGarbage, u.id), sweep.value())
	return sweep
}

// ListUploads implements storage.Multipart.
func (s *Store) ListUploads(ctx context.Context, bucket string, o storage.ListOptions, afterID string) (storage.UploadPage, error) {
	if !s.usage.enter() {
		return storage.UploadPage{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.UploadPage{}, err
	}
	if o.Max <= 0 {
		return storage.UploadPage{}, nil
	}
	w := walker{prefix: o.Prefix, delimiter: o.Delimiter, max: o.Max}
	start := appendUploadPrefix(nil, w.prefix)
	end := successor(start)
	if from := uploadsAfter(&w, o.After, afterID); bytes.Compare(from, start) > 0 {
		start = from
	}
	var page storage.UploadPage
	for start != nil && bytes.Compare(start, end) < 0 {
		var seek []byte
		err := s.meta.Scan(ctx, b.part, start, end, func(k, v []byte) (bool, error) {
			key, id, ok := parseUploadKey(k)
			if !ok {
				return false, fmt.Errorf("%w: upload entry %x", errBadRecord, k)
			}
			if w.full() {
				return false, nil
			}
			w.n++
			if below := w.common(key); below != "" {
				page.Prefixes = append(page.Prefixes, below)
				page.NextKey, page.NextUpload = below, ""
				seek = successor(appendUploadPrefix(nil, below))
				return false, nil
			}
			u, err := decodeUpload(key, v, false)
			if err != nil {
				return false, err
			}
			page.Uploads = append(page.Uploads, u.public())
			page.NextKey, page.NextUpload = key, id.String()
			return true, nil
		})
		if err != nil {
			return storage.UploadPage{}, toStorage(err)
		}
		start = seek
	}
	if w.n == 0 {
		if err := s.missing(ctx, b); !storage.IsNoSuchKey(err) {
			return storage.UploadPage{}, err
		}
	}
	if page.Truncated = w.more; !w.more {
		page.NextKey, page.NextUpload = "", ""
	}
	return page, nil
}

// uploadsAfter is where a listing with these markers starts, nil at the beginning.
func uploadsAfter(w *walker, key, id string) []byte {
	if key == "" {
		return nil
	}
	from := appendUploadPrefix(nil, key)
	if len(key) >= len(w.prefix) && key[:len(w.prefix)] == w.prefix && w.common(key) == key {
		return successor(from)
	}
	if uid, ok := parseID(id); ok {
		return append(uploadKey(key, uid), 0)
	}
	return append(from, 0, 1) // above all uploads of key
}
