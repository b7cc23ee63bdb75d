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
	if err := s.countUploads(ctx, b); err != nil {
		return storage.ObjectInfo{}, err
	}
	for range maxTries {
		u, err := s.findUpload(ctx, b, key, id)
		var info storage.ObjectInfo
		if err == nil {
			info, err = s.completeOnce(ctx, b, u, parts, o)
		}
		if errors.Is(err, storage.ErrNoSuchUpload) {
			return s.completedBefore(ctx, b, key, id, parts, o)
		}
		if !errors.Is(err, errPartsChanged) {
			return info, err
		}
	}
	return storage.ObjectInfo{}, storage.ErrConflict
}

// completedBefore answers a completion of an upload that is no more. A client
// whose first answer was lost gets it again: the object's record says of which
// upload and part numbers it was made, its ETag of which parts. So nothing is
// kept of an upload beyond the object it became.
func (s *Store) completedBefore(ctx context.Context, b *bucket, key, id string, parts []storage.CompletedPart, o storage.CompleteOptions) (storage.ObjectInfo, error) {
	uid, ok := parseID(id)
	if !ok || checkKey(key) != nil {
		return storage.ObjectInfo{}, storage.ErrNoSuchUpload
	}
	var c current
	objectKey := appendObjectKey(nil, key)
	if err := s.lookup(ctx, b, objectKey, &c); err != nil {
		return storage.ObjectInfo{}, err
	}
	if c.raw == nil || c.rec.kind != kindSegments {
		return storage.ObjectInfo{}, storage.ErrNoSuchUpload
	}
	info, f, err := c.rec.describeFields(key)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	etag, err := completedETag(len(parts), func(i int) string { return parts[i].ETag })
	if err != nil || etag != info.ETag || !f.madeBy(uid, numbersSum(parts)) {
		return storage.ObjectInfo{}, storage.ErrNoSuchUpload
	}
	if err := expected(&info, o); err != nil {
		return storage.ObjectInfo{}, err
	}
	// The first completion may be visible and not yet durable.
	if err := s.durable(ctx, b, objectKey, c.raw); err != nil {
		return storage.ObjectInfo{}, err
	}
	return info, nil
}

// completedETag is the MD5 of the parts' MD5s and their number.
func completedETag(n int, etag func(int) string) (string, error) {
	h := md5.New()
	for i := range n {
		raw, err := hex.DecodeString(etag(i))
		if err != nil || len(raw) != md5.Size {
			return "", errBadRecord
		}
		h.Write(raw)
	}
	return fmt.Sprintf("%x-%d", h.Sum(nil), n), nil
}

// expected holds a completed object to what the client expects of it.
func expected(info *storage.ObjectInfo, o storage.CompleteOptions) error {
	if o.Size > 0 && o.Size != info.Size {
		return &storage.InvalidError{Reason: fmt.Sprintf("the parts have %d bytes, not %d", info.Size, o.Size)}
	}
	if want := o.Checksum; want.Type != "" && want.Type != info.Checksum.Type {
		return &storage.InvalidError{Reason: fmt.Sprintf("the upload has checksum type %q, the complete request %q", info.Checksum.Type, want.Type)}
	} else if want.Algorithm != checksum.None && want.Algorithm != info.Checksum.Algorithm {
		return checksumMismatch(info.Checksum.Algorithm, want.Algorithm)
	} else if want.Value != "" && !sameSum(info.Checksum, want) {
		return fmt.Errorf("%w: the parts give %s %s", storage.ErrBadDigest, info.Checksum.Algorithm, info.Checksum.Value)
	}
	return nil
}

func checksumMismatch(have, got checksum.Algorithm) error {
	name := "null"
	if have != checksum.None {
		name = strings.ToLower(string(have))
	}
	return &storage.InvalidError{Reason: fmt.Sprintf("Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
		name, strings.ToLower(string(got)))}
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
	for i, p := range listed {
		if i < len(listed)-1 && p.size < minPartSize {
			return storage.ObjectInfo{}, fmt.Errorf("%w: part %d has %d bytes", storage.ErrEntityTooSmall, p.number, p.size)
		}
		rec.size += p.size
		rec.segs = appendSegment(rec.segs, p.segment, rec.size)
	}
	info := u.info
	info.Size = rec.size
	info.Parts = len(listed)
	if info.ETag, err = completedETag(len(listed), func(i int) string { return listed[i].etag }); err != nil {
		return storage.ObjectInfo{}, err
	}
	info.Modified = s.o.Now().UTC().Round(0)
	var f fields
	if info.Checksum, f.partSums, err = wholeSum(u, listed); err != nil {
		return storage.ObjectInfo{}, err
	}
	info.Layout = newPartLayout(rec.segs, &f, info.Checksum)
	if err := expected(&info, o); err != nil {
		return storage.ObjectInfo{}, err
	}
	desc := appendDescription(nil, &info)
	if len(f.partSums) > 0 {
		desc = appendField(desc, fieldPartSums, f.partSums)
	}
	desc = appendUploadField(desc, u.id, numbersSum(parts))

	var sweep *garbage
	first := true
	ch := change{key: u.info.Key, cond: o.Cond, record: appendRecord(nil, &rec, desc)}
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
	b.uploads.add(-1)
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
		if want.Checksum.IsZero() {
			continue
		}
		if have := u.info.Checksum.Algorithm; have != checksum.None && want.Checksum.Algorithm != have {
			return nil, checksumMismatch(have, want.Checksum.Algorithm)
		}
		if want.Checksum.Algorithm != p.sum.Algorithm || want.Checksum.Value != p.sum.Value {
			return nil, fmt.Errorf("%w: part %d has checksum %s %s", storage.ErrInvalidPart, p.number, p.sum.Algorithm, p.sum.Value)
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

// wholeSum makes the object's checksum from its parts', and the field that
// keeps those. If a part was stored without one there is none. An upload that
// asked for none gets a CRC64NVME, if its parts have it.
func wholeSum(u *upload, listed []storedPart) (whole checksum.Sum, raw []byte, err error) {
	want := u.info.Checksum
	if want.IsZero() {
		want = checksum.Sum{Algorithm: checksum.CRC64NVME, Type: checksum.FullObject}
	}
	for _, p := range listed {
		if p.sum.Algorithm != want.Algorithm || p.sum.Value == "" {
			return checksum.Sum{}, nil, nil
		}
		v, err := checksum.Decode(want.Algorithm, p.sum.Value)
		if err != nil {
			return checksum.Sum{}, nil, err
		}
		raw = append(raw, v...)
	}
	if want.Type == checksum.FullObject {
		c, err := checksum.NewCombiner(want.Algorithm)
		for i := 0; err == nil && i < len(listed); i++ {
			err = c.Add(listed[i].sum.Value, listed[i].size)
		}
		if err != nil {
			return checksum.Sum{}, nil, err
		}
		return c.Sum(), raw, nil
	}
	c, err := checksum.NewCompositor(want.Algorithm)
	for i := 0; err == nil && i < len(listed); i++ {
		err = c.Add(listed[i].sum.Value)
	}
	if err != nil {
		return checksum.Sum{}, nil, err
	}
	return c.Sum(), raw, nil
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
