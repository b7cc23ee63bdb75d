package object

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// current is what is under an object key at some moment.
type current struct {
	raw []byte // nil: nothing
	rec record
}

// lookup reads what is under key into c.
func (s *Store) lookup(ctx context.Context, b *bucket, objectKey []byte, c *current) error {
	v, err := s.meta.Get(ctx, b.part, objectKey, nil)
	if errors.Is(err, meta.ErrNotFound) {
		c.raw = nil
		return nil
	}
	if err != nil {
		return toStorage(err)
	}
	c.raw = v
	if err := c.rec.decode(v); err != nil {
		return fmt.Errorf("bucket %q: key %q: %w", b.Name, objectKey[1:], err)
	}
	return nil
}

// check evaluates a condition against c.
func (c *current) check(cond storage.Condition) error {
	if cond.IfNoneMatch == "" && cond.IfMatch == "" {
		return nil
	}
	if c.raw == nil {
		if cond.IfMatch != "" {
			return storage.ErrNoSuchKey
		}
		return nil
	}
	info, err := c.rec.describe("", false)
	if err != nil {
		return err
	}
	if cond.IfMatch != "" && cond.IfMatch != "*" && cond.IfMatch != info.ETag {
		return storage.ErrPrecondition
	}
	if cond.IfNoneMatch == "*" || cond.IfNoneMatch != "" && cond.IfNoneMatch == info.ETag {
		return storage.ErrPrecondition
	}
	return nil
}

// refuse is check for a write: a refusal that rests on an object being there
// waits until that object is durable. The client may take it as "my chunk is
// stored", and the put that stored it may not have been acknowledged yet.
func (s *Store) refuse(ctx context.Context, b *bucket, objectKey []byte, c *current, cond storage.Condition) error {
	err := c.check(cond)
	if c.raw == nil || !errors.Is(err, storage.ErrPrecondition) {
		return err
	}
	if e := s.durable(ctx, b, objectKey, c.raw); e != nil {
		return e
	}
	return err
}

// durable returns when what was seen under a key is durable. If it is there no
// more, what took its place is, and so is what was before that.
func (s *Store) durable(ctx context.Context, b *bucket, objectKey, raw []byte) error {
	var settled meta.Batch // changes nothing; see meta.Store.Apply
	settled.IfEqual(objectKey, raw)
	if err := s.meta.Apply(ctx, b.part, &settled); err != nil && !errors.Is(err, meta.ErrConflict) {
		return toStorage(err)
	}
	return nil
}

// change replaces what is under a key, in one batch.
type change struct {
	key    string
	cond   storage.Condition
	record []byte // the new record; nil deletes
	// known, if set, is what was under key a moment ago: the first try uses it.
	known *current
	// more adds the caller's own conditions and operations; it is called once
	// per try. Its error ends the commit and is returned as it is.
	more func(*meta.Batch) error
}

// maxTries bounds a commit's tries. From the second on the tries of one key
// in one process take turns, so that this many are met only by a key that
// several processes fight over.
const maxTries = 64

// doubtError is a failed commit whose outcome is open.
type doubtError struct{ err error }

func (e *doubtError) Error() string {
	return "object: the outcome of a commit is open: " + e.err.Error()
}
func (e *doubtError) Unwrap() error { return e.err }

var stripeSeed = maphash.MakeSeed()

// commit applies ch atomically and durably. What the key held goes to garbage
// in the same batch. A *doubtError means that it may or may not have happened.
func (s *Store) commit(ctx context.Context, b *bucket, ch *change) error {
	objectKey := appendObjectKey(make([]byte, 0, len(ch.key)+1), ch.key)
	cur := ch.known
	if cur == nil {
		cur = new(current)
		if err := s.lookup(ctx, b, objectKey, cur); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		old, err := s.try(ctx, b, objectKey, cur, ch)
		if err == nil {
			s.reap.add(old)
			return nil
		}
		if !errors.Is(err, meta.ErrConflict) {
			return err
		}
		if err := s.live(ctx, b); err != nil {
			return err
		}
		if try == maxTries {
			return storage.ErrConflict
		}
		if try == 1 {
			m := &s.stripes[maphash.Bytes(stripeSeed, objectKey)%uint64(len(s.stripes))]
			m.Lock()
			defer m.Unlock()
		}
		if err := s.lookup(ctx, b, objectKey, cur); err != nil {
			return err
		}
	}
}

func (s *Store) try(ctx context.Context, b *bucket, objectKey []byte, cur *current, ch *change) (old *garbage, err error) {
	if err := s.refuse(ctx, b, objectKey, cur, ch.cond); err != nil {
		return nil, err
	}
	if ch.record == nil && cur.raw == nil {
		return nil, s.missing(ctx, b)
	}
	var batch meta.Batch
	batch.IfEqual(markerKey, markerLive)
	if cur.raw == nil {
		batch.IfAbsent(objectKey)
	} else {
		batch.IfEqual(objectKey, cur.raw)
		if old = garbageOf(b.part, &cur.rec, s.o.Now()); old != nil {
			batch.Set(idKey(keyGarbage, old.id), old.value())
		}
	}
	if ch.record != nil {
		batch.Set(objectKey, ch.record)
	} else {
		batch.Delete(objectKey)
	}
	if ch.more != nil {
		if err := ch.more(&batch); err != nil {
			return nil, err
		}
	}
	return old, s.apply(ctx, b.part, &batch)
}

// apply is meta.Apply for batches that refer to extents: a client that goes
// away does not interrupt it, and any error but a conflict is a doubtError.
func (s *Store) apply(ctx context.Context, part string, batch *meta.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.meta.Apply(context.WithoutCancel(ctx), part, batch)
	if err == nil || errors.Is(err, meta.ErrConflict) {
		return err
	}
	s.stats.doubtful.Add(1)
	return &doubtError{toStorage(err)}
}

// owned adds the x entries of r's extents to batch.
func owned(batch *meta.Batch, r *record) {
	for _, e := range r.exts {
		batch.Set(extentKey(e), extentValue(e, r.id))
	}
}

// abandon gives back what an uncommitted record reserved, unless the commit's
// outcome is open.
func (s *Store) abandon(ctx context.Context, rec *record, err error) {
	if doubt := (*doubtError)(nil); errors.As(err, &doubt) {
		s.log(ctx).Error("extents stay taken until the next start", "error", err)
		return
	}
	s.discard(ctx, rec)
}
