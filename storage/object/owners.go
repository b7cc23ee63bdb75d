package object

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/meta"
)

// ledger is a multiset of things, kept as their number and the sum of their
// hashes: two ledgers are equal if, but for one chance in 2^64, the same
// things went in. So a store of any size is checked in constant memory.
type ledger struct {
	n   int64
	sum uint64
}

func (l *ledger) add(seed maphash.Seed, thing []byte) {
	l.n++
	l.sum += maphash.Bytes(seed, thing)
}

// books is what one snapshot of a partition claims and has.
type books struct {
	extentsClaimed, extents   ledger // by g, o and s records; x entries
	segmentsClaimed, segments ledger // by g and o records and p entries; s records
	uploads                   map[ID]bool
	strays                    map[ID]bool // uploads that parts name and that have not been seen
}

// placed is an x entry and the partition it is in.
type placed struct {
	blob.Extent
	part int
}

// owners checks in one snapshot of each partition that every extent and
// segment has exactly one owner, and over all of them that no two overlap.
func (c *scrubber) owners(ctx context.Context) error {
	parts, err := c.s.meta.Partitions(ctx)
	if err != nil {
		return err
	}
	var all []placed
	for i, p := range parts {
		if p == sysPartition {
			continue
		}
		var b books
		seed := maphash.MakeSeed()
		err := c.s.meta.Scan(ctx, p, nil, nil, func(k, v []byte) (bool, error) {
			if err := b.enter(seed, k, v); err != nil {
				c.report.problem("partition %s: entry %q: %v", p, k, err)
			}
			if e, _, ok := parseExtent(k, v); ok {
				all = append(all, placed{e, i})
			}
			return true, ctx.Err()
		})
		if err != nil {
			return err
		}
		for id := range b.strays {
			c.report.problem("partition %s: parts of upload %s, which is unknown", p, id)
		}
		if b.extentsClaimed != b.extents || b.segmentsClaimed != b.segments {
			if err := c.name(ctx, p); err != nil {
				return err
			}
		}
	}
	return c.overlaps(ctx, parts, all)
}

// enter notes one pair of a bucket's partition.
func (b *books) enter(seed maphash.Seed, k, v []byte) error {
	claims, has, err := claimsOf(k, v)
	if err != nil {
		return err
	}
	for _, t := range claims {
		b.ledger(t, &b.extentsClaimed, &b.segmentsClaimed).add(seed, t)
	}
	if has != nil {
		b.ledger(has, &b.extents, &b.segments).add(seed, has)
	}
	var id ID
	switch k[0] {
	case keyPart:
		copy(id[:], k[1:])
		if !b.uploads[id] { // the sweeping g entries have been, u entries come later
			if b.strays == nil {
				b.strays = make(map[ID]bool)
			}
			b.strays[id] = true
		}
	case keyUpload:
		_, id, _ = parseUploadKey(k)
		delete(b.strays, id)
	case keyGarbage:
		if len(v) > 5 && kind(v[5]) == kindSweep {
			if b.uploads == nil {
				b.uploads = make(map[ID]bool)
			}
			copy(id[:], k[1:])
			b.uploads[id] = true
		}
	}
	return nil
}

func (b *books) ledger(thing []byte, extents, segments *ledger) *ledger {
	if thing[0] == keyExtent {
		return extents
	}
	return segments
}

// claimsOf returns the things that a pair owns and the thing that it is, each
// as the bytes of the x entry (key and value) or the s key.
func claimsOf(k, v []byte) (claims [][]byte, has []byte, err error) {
	switch k[0] {
	case keyExtent:
		if _, _, ok := parseExtent(k, v); !ok {
			return nil, nil, errBadRecord
		}
		return nil, slices.Concat(k, v), nil
	case keyPart:
		var p part
		if err := p.decode(v); err != nil {
			return nil, nil, err
		}
		return [][]byte{idKey(keySegment, p.segment)}, nil, nil
	case keyGarbage, keyObject, keySegment:
		var r record
		if err := r.decode(v); err != nil {
			return nil, nil, err
		}
		for _, e := range r.exts {
			claims = append(claims, slices.Concat(extentKey(e), extentValue(e, r.id)))
		}
		for i := range r.segments() {
			claims = append(claims, idKey(keySegment, r.segmentID(i)))
		}
		if k[0] == keySegment {
			if has = slices.Clone(k); !bytes.Equal(has, idKey(keySegment, r.id)) {
				return nil, nil, fmt.Errorf("%w: filed under another id", errBadRecord)
			}
		}
		return claims, has, nil
	case keyConfig, keyMarker, keyUpload:
		return nil, nil, nil
	}
	return nil, nil, errors.New("unknown kind of entry")
}

// name finds out, in a second snapshot, what the ledgers of the first only
// said to exist.
func (c *scrubber) name(ctx context.Context, part string) error {
	claims := make(map[string]int) // how often claimed, less one if there
	err := c.s.meta.Scan(ctx, part, nil, nil, func(k, v []byte) (bool, error) {
		owned, has, err := claimsOf(k, v)
		if err != nil {
			return true, nil // reported before
		}
		for _, t := range owned {
			claims[string(t)]++
		}
		if has != nil {
			claims[string(has)]--
		}
		return true, ctx.Err()
	})
	if err != nil {
		return err
	}
	for t, n := range claims {
		what := fmt.Sprintf("segment %x", t[1:])
		if t[0] == keyExtent {
			e, owner, _ := parseExtent([]byte(t[:13]), []byte(t[13:]))
			what = fmt.Sprintf("extent %d:%d of %d bytes, owner %s", e.Volume, e.Offset, e.Len, owner)
		}
		switch {
		case n < 0:
			c.report.problem("partition %s: %s belongs to nobody", part, what)
		case n > 0:
			c.report.problem("partition %s: %s is claimed %d times too often", part, what, n)
		}
	}
	return nil
}

// overlaps checks that no two extents share a byte of the space reserved for
// them. The snapshots of two partitions are not of one moment: space may have
// gone from one to the other in between. So an overlap counts if both
// extents are still there.
func (c *scrubber) overlaps(ctx context.Context, parts []string, all []placed) error {
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Offset, b.Offset))
	})
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.Volume != b.Volume || a.Offset+blob.Roundup(a.Len) <= b.Offset {
			continue
		}
		both := true
		for _, e := range []placed{a, b} {
			v, err := c.s.meta.Get(ctx, parts[e.part], extentKey(e.Extent), nil)
			if errors.Is(err, meta.ErrNotFound) {
				both = false
				continue
			}
			if err != nil {
				return err
			}
			now, _, ok := parseExtent(extentKey(e.Extent), v)
			both = both && ok && now.Len == e.Len
		}
		if both {
			c.report.problem("extents %d:%d of %d bytes and %d:%d of %d bytes overlap",
				a.Volume, a.Offset, a.Len, b.Volume, b.Offset, b.Len)
		}
	}
	return nil
}
