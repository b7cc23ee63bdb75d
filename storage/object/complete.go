package object

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// errPartsChanged says that a part was overwritten while its upload was being completed.
var errPartsChanged = errors.New("object: parts changed")

// CompleteUpload implements storage.Multipart. One batch puts the object in
// place of what the key held, drops the upload and its parts' entries, and
// leaves parts that are not listed to the reaper. It is conditional on all
// of it, so that of concurrent completions, aborts and parts one wins.
func (s *Store) CompleteUpload(ctx context.Context, bucket, key, id string, parts []storage.CompletedPart, o storage.CompleteOptions) (storage.ObjectInfo, error) {
	if !s.usage.enter() {
		return storage.ObjectInfo{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	for range maxTries {
		u, err := s.findUpload(ctx, b, key, id)
		if err != nil {
			return storage.ObjectInfo{}, err
		}
		info, err := s.completeOnce(ctx, b, u, parts, o)
		if !errors.Is(err, errPartsChanged) {
			return info, err
		}
	}
	return storage.ObjectInfo{}, storage.ErrConflict
}

func (s *Store) completeOnce(ctx context.Context, b *bucket, u *upload, parts []storage.CompletedPart, o storage.CompleteOptions) (storage.ObjectInfo, error) {
	listed, err := s.listedParts(ctx, b, u, parts)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	rec := record{kind: kindSegments}
	if rec.id, err = s.newID(); err != nil {
		return storage.ObjectInfo{}, err
	}
	h := md5.New()
	for i, p := range listed {
		if i < len(listed)-1 && p.size < minPartSize {
			return storage.ObjectInfo{}, fmt.Errorf("%w: part %d has %d bytes", storage.ErrEntityTooSmall, p.number, p.size)
		}
		raw, err := hex.DecodeString(p.etag)
		if err != nil {
			return storage.ObjectInfo{}, errBadRecord
		}
		h.Write(raw)
		rec.size += p.size
		rec.segs = appendSegment(rec.segs, p.segment, rec.size)
	}
	if o.Size > 0 && o.Size != rec.size {
		return storage.ObjectInfo{}, fmt.Errorf("%w: the parts have %d bytes, not %d", storage.ErrInvalidRequest, rec.size, o.Size)
	}
	info := u.info
	info.Size = rec.size
	info.Parts = len(listed)
	info.ETag = fmt.Sprintf("%x-%d", h.Sum(nil), len(listed))
	info.Modified = s.o.Now().UTC().Round(0)
	if info.Checksum, err = wholeSum(u, listed); err != nil {
		return storage.ObjectInfo{}, err
	}
	if !o.Checksum.IsZero() && !sameSum(info.Checksum, o.Checksum) {
		return storage.ObjectInfo{}, fmt.Errorf("%w: the parts give %s %s", storage.ErrBadDigest, info.Checksum.Algorithm, info.Checksum.Value)
	}

	var sweep *garbage
	first := true
	ch := change{key: u.info.Key, cond: o.Cond, record: appendRecord(nil, &rec, appendDescription(nil, &info))}
	ch.more = func(batch *meta.Batch) error {
		if !first { // a conflict: look whose
			if err := s.unchanged(ctx, b, u, listed); err != nil {
				return err
			}
		}
		first = false
		sweep = s.endUpload(b, u, batch)
		for _, p := range listed {
			k := partKey(u.id, p.number)
			batch.IfEqual(k, p.raw)
			batch.Delete(k)
		}
		return nil
	}
	if err := s.commit(ctx, b, &ch); err != nil {
		return storage.ObjectInfo{}, err
	}
	s.reap.add(sweep)
	return info, nil
}

// listedParts returns the stored parts that the client lists.
func (s *Store) listedParts(ctx context.Context, b *bucket, u *upload, parts []storage.CompletedPart) ([]storedPart, error) {
	if len(parts) == 0 || len(parts) > maxParts {
		return nil, fmt.Errorf("%w: %d parts", storage.ErrInvalidRequest, len(parts))
	}
	for i, p := range parts {
		if i > 0 && p.Number <= parts[i-1].Number {
			return nil, fmt.Errorf("%w: part %d after part %d", storage.ErrInvalidPartOrder, p.Number, parts[i-1].Number)
		}
	}
	listed := make([]storedPart, 0, len(parts))
	err := s.scanParts(ctx, b, u.id, 0, func(p storedPart) bool {
		i := len(listed)
		if p.number == parts[i].Number {
			listed = append(listed, p)
		}
		return len(listed) < len(parts) && p.number <= parts[i].Number
	})
	if err != nil {
		return nil, toStorage(err)
	}
	if n := len(listed); n < len(parts) {
		return nil, fmt.Errorf("%w: there is no part %d", storage.ErrInvalidPart, parts[n].Number)
	}
	for i, p := range listed {
		want := parts[i]
		if !strings.EqualFold(want.ETag, p.etag) {
			return nil, fmt.Errorf("%w: part %d has ETag %s", storage.ErrInvalidPart, p.number, p.etag)
		}
		if want.Checksum != "" && (p.sum.Algorithm != u.info.Checksum.Algorithm || want.Checksum != p.sum.Value) {
			return nil, fmt.Errorf("%w: part %d has checksum %s", storage.ErrInvalidPart, p.number, p.sum.Value)
		}
	}
	return listed, nil
}

// unchanged says whether the upload and the listed parts are still as they were read.
func (s *Store) unchanged(ctx context.Context, b *bucket, u *upload, listed []storedPart) error {
	if _, err := s.findUpload(ctx, b, u.info.Key, u.id.String()); err != nil {
		return err
	}
	i := 0
	err := s.scanParts(ctx, b, u.id, 0, func(p storedPart) bool {
		if i < len(listed) && p.number == listed[i].number && p.segment == listed[i].segment {
			i++
		}
		return i < len(listed)
	})
	if err != nil {
		return toStorage(err)
	}
	if i < len(listed) {
		return errPartsChanged
	}
	return nil
}

// wholeSum makes the object's checksum from its parts'. If a part was stored
// without one there is none.
func wholeSum(u *upload, listed []storedPart) (checksum.Sum, error) {
	want := u.info.Checksum
	if want.IsZero() {
		return checksum.Sum{}, nil
	}
	for _, p := range listed {
		if p.sum.Algorithm != want.Algorithm || p.sum.Value == "" {
			return checksum.Sum{}, nil
		}
	}
	if want.Type == checksum.FullObject {
		c, err := checksum.NewCombiner(want.Algorithm)
		for i := 0; err == nil && i < len(listed); i++ {
			err = c.Add(listed[i].sum.Value, listed[i].size)
		}
		if err != nil {
			return checksum.Sum{}, err
		}
		return c.Sum(), nil
	}
	c, err := checksum.NewCompositor(want.Algorithm)
	for i := 0; err == nil && i < len(listed); i++ {
		err = c.Add(listed[i].sum.Value)
	}
	if err != nil {
		return checksum.Sum{}, err
	}
	return c.Sum(), nil
}

// sameSum compares what the parts gave with what a client expects, which may
// leave out the type and a composite's number of parts.
func sameSum(got, want checksum.Sum) bool {
	if got.Algorithm != want.Algorithm || want.Type != "" && got.Type != want.Type {
		return false
	}
	value, _, _ := strings.Cut(got.Value, "-")
	return want.Value == got.Value || want.Value == value
}
