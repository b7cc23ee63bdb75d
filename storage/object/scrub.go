package object

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// ScrubOptions configures one scrub.
type ScrubOptions struct {
	Rate int64 // bytes per second read; 0: unlimited
	// Progress is called after every object with the report so far, which it
	// must not keep.
	Progress func(*ScrubReport)
}

// BadBlock is a block that could not be read or does not match its CRC32C.
type BadBlock struct {
	Bucket, Key string
	Block       int64 // within the object
	Err         error // a *storage.CorruptError, or why it could not be read
}

// ScrubReport says what a scrub found.
type ScrubReport struct {
	Objects int64 // complete objects
	Parts   int64 // parts of unfinished uploads
	Bytes   int64 // of both
	// Bad and Problems hold the first maxFindings; the numbers count all.
	// A problem is a record that is damaged or an extent or segment that has
	// not exactly one owner.
	BadBlocks    int64
	Bad          []BadBlock
	ProblemCount int64
	Problems     []string
}

const maxFindings = 1000

// Clean reports whether nothing is wrong with the store.
func (r *ScrubReport) Clean() bool { return r.BadBlocks == 0 && r.ProblemCount == 0 }

func (r *ScrubReport) problem(format string, args ...any) {
	if r.ProblemCount++; len(r.Problems) < maxFindings {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// scrubber is one scrub under way.
type scrubber struct {
	s      *Store
	o      ScrubOptions
	report ScrubReport
	start  time.Time
	buf    []byte
}

// Scrub reads every object and part, verifies all blocks and checks that every
// extent and segment belongs to exactly one owner. The store may be used
// meanwhile. It leaves nothing in the page cache that was not there. An error
// means that it could not go on; the report is then of what it has seen.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) (ScrubReport, error) {
	if !s.usage.enter() {
		return ScrubReport{}, storage.ErrClosed
	}
	defer s.usage.leave()
	return s.scrub(ctx, o)
}

func (s *Store) scrub(ctx context.Context, o ScrubOptions) (ScrubReport, error) {
	ctx, cancel := until(ctx, s.closing)
	defer cancel()
	c := &scrubber{s: s, o: o, start: s.o.Now(), buf: alignedBuffer(readSize)}
	buckets, err := s.allBuckets(ctx)
	if err != nil {
		return c.report, toStorage(err)
	}
	for _, b := range buckets {
		b, err := s.bucket(ctx, b.Name)
		if errors.Is(err, storage.ErrNoSuchBucket) {
			continue // deleted since
		}
		if err != nil {
			return c.report, err
		}
		if err := c.objects(ctx, b); err != nil {
			return c.report, toStorage(err)
		}
		if err := c.parts(ctx, b); err != nil {
			return c.report, toStorage(err)
		}
	}
	return c.report, toStorage(c.owners(ctx))
}

// scrubLoop scrubs in the background.
func (s *Store) scrubLoop() {
	ctx, cancel := until(context.Background(), s.closing)
	defer cancel()
	for {
		select {
		case <-s.o.After(s.o.ScrubInterval):
		case <-s.closing:
			return
		}
		r, err := s.scrub(ctx, ScrubOptions{Rate: s.o.ScrubRate})
		log := s.o.Logger.Info
		if !r.Clean() || err != nil && ctx.Err() == nil {
			log = s.o.Logger.Error
		}
		log("scrub ended", slog.Int64("objects", r.Objects), slog.Int64("parts", r.Parts), slog.Int64("bytes", r.Bytes),
			slog.Int64("bad_blocks", r.BadBlocks), slog.Int64("problems", r.ProblemCount), slog.Any("first", r.Problems[:min(len(r.Problems), 5)]),
			slog.Any("error", err))
	}
}

// scrubPage is how many keys are listed at a time.
const scrubPage = 256

// pages calls fn for copies of all keys of a kind, without a scan being open
// meanwhile.
func (c *scrubber) pages(ctx context.Context, part string, kind byte, fn func(key []byte) error) error {
	start, end := []byte{kind}, []byte{kind + 1}
	for {
		keys := make([][]byte, 0, scrubPage)
		err := c.s.meta.Scan(ctx, part, start, end, func(k, _ []byte) (bool, error) {
			keys = append(keys, append([]byte(nil), k...))
			return len(keys) < scrubPage, nil
		})
		if err != nil {
			return err
		}
		for _, k := range keys {
			if err := fn(k); err != nil {
				return err
			}
		}
		if len(keys) < scrubPage {
			return nil
		}
		start = append(keys[len(keys)-1], 0)
	}
}

// objects verifies the objects of a bucket, each pinned while it is read.
func (c *scrubber) objects(ctx context.Context, b *bucket) error {
	var kb []byte
	return c.pages(ctx, b.part, keyObject, func(k []byte) error {
		key := string(k[1:])
		o := new(object)
		p := c.s.gate.enter()
		err := o.load(ctx, c.s, b, key, &kb)
		c.s.gate.leave(p)
		switch {
		case storage.IsNoSuchKey(err):
			return nil // deleted since
		case errors.Is(err, errBadRecord):
			c.report.problem("bucket %q: key %q: %v", b.Name, key, err)
			return nil
		case err != nil:
			return err
		}
		defer o.Close()
		if _, err := o.Info(); err != nil {
			c.report.problem("bucket %q: key %q: description: %v", b.Name, key, err)
		}
		var bad []BadBlock
		if o.rec.kind == kindSegments {
			bad, err = c.segments(ctx, o)
		} else {
			bad, err = c.blocks(ctx, b.Name, key, &o.rec, 0)
		}
		if err != nil {
			return err
		}
		c.report.Objects++
		c.report.Bytes += o.rec.size
		c.found(ctx, bad)
		if c.o.Progress != nil {
			c.o.Progress(&c.report)
		}
		return nil
	})
}

func (c *scrubber) segments(ctx context.Context, o *object) (bad []BadBlock, err error) {
	for i := range o.rec.segments() {
		g, err := c.s.loadSegment(ctx, o.bucket.part, o.rec.segmentID(i))
		if errors.Is(err, errBadRecord) || err == nil && g.rec.size != o.segmentLen(i) {
			c.report.problem("bucket %q: key %q: segment %d: %v", o.bucket.Name, o.key, i, errors.Join(errBadRecord, err))
			continue
		}
		if err != nil {
			return bad, err
		}
		more, err := c.blocks(ctx, o.bucket.Name, o.key, &g.rec, o.rec.segmentEnd(i)-g.rec.size)
		bad = append(bad, more...)
		if err != nil {
			return bad, err
		}
	}
	return bad, nil
}

// parts verifies the parts of unfinished uploads, each pinned while it is read.
func (c *scrubber) parts(ctx context.Context, b *bucket) error {
	return c.pages(ctx, b.part, keyPart, func(k []byte) error {
		var upload ID
		copy(upload[:], k[1:])
		name := fmt.Sprintf("part %d of upload %s", partNumber(k), upload)
		p, g, err := c.pinPart(ctx, b, k, &upload)
		switch {
		case errors.Is(err, meta.ErrNotFound):
			return nil // gone since
		case errors.Is(err, errBadRecord):
			c.report.problem("bucket %q: %s: %v", b.Name, name, err)
			return nil
		case err != nil:
			return err
		}
		defer c.unpin(&upload)
		defer c.unpin(&p.segment)
		bad, err := c.blocks(ctx, b.Name, name, &g.rec, 0)
		if err != nil {
			return err
		}
		c.report.Parts++
		c.report.Bytes += p.size
		c.found(ctx, bad)
		return nil
	})
}

// pinPart looks a part up and pins it twice: its upload, which may end and have
// its parts swept, and its segment, which may be replaced or become a part of
// an object that is deleted. A part of an upload that has ended is left out: it
// may be swept at any moment. That is asked first, because the answer does not
// change from yes to no before the part itself is gone.
func (c *scrubber) pinPart(ctx context.Context, b *bucket, k []byte, upload *ID) (p part, g *segment, err error) {
	phase := c.s.gate.enter()
	defer c.s.gate.leave(phase)
	if _, err := c.s.meta.Get(ctx, b.part, idKey(keyGarbage, *upload), nil); err == nil {
		return p, nil, meta.ErrNotFound
	} else if !errors.Is(err, meta.ErrNotFound) {
		return p, nil, err
	}
	v, err := c.s.meta.Get(ctx, b.part, k, nil)
	if err != nil {
		return p, nil, err
	}
	if err := p.decode(v); err != nil {
		return p, nil, err
	}
	if g, err = c.s.loadSegment(ctx, b.part, p.segment); err != nil {
		return p, nil, err
	}
	c.s.pins.pin(upload)
	c.s.pins.pin(&p.segment)
	return p, g, nil
}

func (c *scrubber) unpin(id *ID) {
	if g := c.s.pins.unpin(id); g != nil {
		c.s.reap.released(g)
	}
}

// found puts bad blocks into the report.
func (c *scrubber) found(ctx context.Context, bad []BadBlock) {
	for _, b := range bad {
		if errors.As(b.Err, new(*storage.CorruptError)) {
			b.Err = c.s.corrupt(ctx, b.Bucket, b.Key, b.Block)
		}
		if c.report.BadBlocks++; len(c.report.Bad) < maxFindings {
			c.report.Bad = append(c.report.Bad, b)
		}
	}
}

// blocks verifies all blocks of a record that starts at base of its object.
// Its error is the context's.
func (c *scrubber) blocks(ctx context.Context, bucket, key string, rec *record, base int64) (bad []BadBlock, err error) {
	if rec.kind != kindExtents {
		return nil, nil // it lies in its record, which has been verified
	}
	r := reader{s: c.s, bucket: bucket, key: key, rec: rec, cold: true}
	for off := int64(0); off < rec.size; off += readSize {
		p := c.buf[:min(readSize, rec.size-off)]
		if err := c.pace(ctx, int64(len(p))); err != nil {
			return bad, err
		}
		whole := r.raw(ctx, p, off)
		if err := ctx.Err(); err != nil {
			return bad, err
		}
		for i := int64(0); i < int64(len(p)); i += storage.BlockSize {
			blk := p[i:min(i+storage.BlockSize, int64(len(p)))]
			n := (off + i) / storage.BlockSize
			b := BadBlock{Bucket: bucket, Key: key, Block: base/storage.BlockSize + n}
			if whole != nil { // find out which
				b.Err = r.raw(ctx, blk, off+i)
			}
			if b.Err == nil && checksum.Block(blk) != checksum.TableAt(rec.crcs, n) {
				b.Err = &storage.CorruptError{Bucket: bucket, Key: key, Block: b.Block}
			}
			if b.Err != nil {
				bad = append(bad, b)
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return bad, nil
}

// pace waits until n bytes more keep the rate.
func (c *scrubber) pace(ctx context.Context, n int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.o.Rate <= 0 {
		return nil
	}
	// A window of its own for each read: what idle time was left over is not caught up.
	now := c.s.o.Now()
	due := c.start
	if due.Before(now) {
		due = now
	}
	c.start = due.Add(time.Duration(float64(n) / float64(c.o.Rate) * float64(time.Second)))
	if wait := due.Sub(now); wait > 0 {
		select {
		case <-c.s.o.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
