package object

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/objcached/objcached/storage/meta"
)

// segmentTable holds the segment records of an opened multipart object. They
// are loaded when a read first touches them: such an object may have 10,000,
// and a ranged read needs one or two.
type segmentTable struct {
	loaded atomic.Pointer[[]atomic.Pointer[segment]]
}

type segment struct {
	rec  record
	seen *bitmap
}

// get returns segment i of o, loading it if need be. Two calls at once may
// both load it; one of the two copies stays.
func (o *object) segment(ctx context.Context, i int) (*segment, error) {
	t := o.segs.loaded.Load()
	if t == nil {
		fresh := make([]atomic.Pointer[segment], o.rec.segments())
		if !o.segs.loaded.CompareAndSwap(nil, &fresh) {
			t = o.segs.loaded.Load()
		} else {
			t = &fresh
		}
	}
	if g := (*t)[i].Load(); g != nil {
		return g, nil
	}
	g, err := o.s.loadSegment(ctx, o.bucket.part, o.rec.segmentID(i))
	if err == nil && g.rec.size != o.segmentLen(i) {
		err = errBadRecord
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %q: key %q: segment %d: %w", o.bucket.Name, o.key, i, err)
	}
	(*t)[i].Store(g)
	return g, nil
}

func (o *object) segmentLen(i int) int64 {
	if i == 0 {
		return o.rec.segmentEnd(0)
	}
	return o.rec.segmentEnd(i) - o.rec.segmentEnd(i-1)
}

// loadSegment reads a segment's record. The caller has pinned its owner, so
// that it cannot go away.
func (s *Store) loadSegment(ctx context.Context, part string, id ID) (*segment, error) {
	v, err := s.meta.Get(ctx, part, idKey(keySegment, id), nil)
	if errors.Is(err, meta.ErrNotFound) {
		return nil, fmt.Errorf("%w: there is none", errBadRecord)
	}
	if err != nil {
		return nil, toStorage(err)
	}
	g := new(segment)
	if err := g.rec.decode(v); err != nil {
		return nil, err
	}
	if g.rec.id != id || !g.rec.readable(false) {
		return nil, errBadRecord
	}
	if s.verified != nil {
		g.seen = s.verified.of(&g.rec)
	}
	return g, nil
}

// readSegments is ReadAt of a multipart object; r has everything but the record.
func (o *object) readSegments(ctx context.Context, r reader, p []byte, off int64) error {
	for i := o.rec.findSegment(off); len(p) > 0; i++ {
		g, err := o.segment(ctx, i)
		if err != nil {
			return err
		}
		r.rec, r.seen, r.base = &g.rec, g.seen, o.rec.segmentEnd(i)-g.rec.size
		n := min(int64(len(p)), g.rec.size-(off-r.base))
		if err := r.read(ctx, p[:n], off-r.base); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}
