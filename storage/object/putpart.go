package object

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// PutPart implements storage.Multipart.
func (s *Store) PutPart(ctx context.Context, bucket, key, id string, number int, body io.Reader, o storage.PartOptions) (storage.Part, error) {
	if !s.usage.enter() {
		return storage.Part{}, storage.ErrClosed
	}
	defer s.usage.leave()
	if number < 1 || number > maxParts {
		return storage.Part{}, fmt.Errorf("%w: part number %d", storage.ErrInvalidRequest, number)
	}
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.Part{}, err
	}
	if _, err := s.findUpload(ctx, b, key, id); err != nil {
		return storage.Part{}, err
	}
	var rec record
	md5, err := s.ingest(ctx, body, o.Size, true, &rec)
	if err != nil {
		return storage.Part{}, err
	}
	p := part{segment: rec.id, size: rec.size, etag: hex.EncodeToString(md5[:]), modified: s.o.Now().UTC().Round(0)}
	if o.Checksum != nil {
		p.sum = o.Checksum()
	}
	segment, value := appendRecord(nil, &rec, nil), p.encode()
	var old *garbage
	err = s.settle(ctx, b, func(batch *meta.Batch) error {
		u, err := s.findUpload(ctx, b, key, id)
		if err != nil {
			return err
		}
		batch.IfEqual(uploadKey(key, u.id), u.raw)
		if old, err = s.replacePart(ctx, b, partKey(u.id, number), batch); err != nil {
			return err
		}
		batch.Set(partKey(u.id, number), value)
		batch.Set(idKey(keySegment, rec.id), segment)
		owned(batch, &rec)
		return nil
	})
	if err != nil {
		s.abandon(ctx, &rec, err)
		return storage.Part{}, err
	}
	s.reap.add(old)
	return p.info(number), nil
}

// replacePart makes batch conditional on what is under k and drops it.
func (s *Store) replacePart(ctx context.Context, b *bucket, k []byte, batch *meta.Batch) (*garbage, error) {
	v, err := s.meta.Get(ctx, b.part, k, nil)
	if errors.Is(err, meta.ErrNotFound) {
		batch.IfAbsent(k)
		return nil, nil
	}
	if err != nil {
		return nil, toStorage(err)
	}
	var p part
	if err := p.decode(v); err != nil {
		return nil, err
	}
	old := singleSegment(b.part, &p, s.o.Now())
	batch.IfEqual(k, v)
	batch.Set(idKey(keyGarbage, old.id), old.value())
	return old, nil
}

// storedPart is a part with its entry's bytes.
type storedPart struct {
	part
	number int
	raw    []byte
}

// scanParts calls fn for the parts of an upload with numbers above after, in order.
func (s *Store) scanParts(ctx context.Context, b *bucket, upload ID, after int, fn func(storedPart) bool) error {
	start := partKey(upload, after+1)
	return s.meta.Scan(ctx, b.part, start, successor(idKey(keyPart, upload)), func(k, v []byte) (bool, error) {
		p := storedPart{number: partNumber(k), raw: bytes.Clone(v)}
		if err := p.decode(p.raw); err != nil {
			return false, fmt.Errorf("upload %s: part %d: %w", upload, p.number, err)
		}
		return fn(p), nil
	})
}

// ListParts implements storage.Multipart.
func (s *Store) ListParts(ctx context.Context, bucket, key, id string, after, limit int) (storage.PartPage, error) {
	if !s.usage.enter() {
		return storage.PartPage{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.PartPage{}, err
	}
	u, err := s.findUpload(ctx, b, key, id)
	if err != nil {
		return storage.PartPage{}, err
	}
	page := storage.PartPage{Upload: u.public()}
	if limit <= 0 || after >= maxParts {
		return page, nil
	}
	err = s.scanParts(ctx, b, u.id, max(after, 0), func(p storedPart) bool {
		if len(page.Parts) == limit {
			page.Truncated = true
			return false
		}
		page.Parts = append(page.Parts, p.info(p.number))
		return true
	})
	if err != nil {
		return storage.PartPage{}, toStorage(err)
	}
	return page, nil
}
