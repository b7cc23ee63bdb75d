package object

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/meta"
)

// garbage is what a committed drop no longer refers to: the content of one g entry.
type garbage struct {
	part  string // partition
	id    ID     // readers pin this
	kind  kind
	exts  []blob.Extent
	segs  []byte // of kindSegments, as in a record
	since time.Time
}

// garbageOf returns the garbage that dropping r leaves, nil if it owns no extent.
func garbageOf(part string, r *record, now time.Time) *garbage {
	g := &garbage{part: part, id: r.id, kind: r.kind, since: now}
	switch {
	case r.kind == kindExtents:
		g.exts = append(g.exts, r.exts...)
	case r.kind == kindSegments && len(r.segs) > 0:
		g.segs = append(g.segs, r.segs...)
	case r.kind == kindSweep:
	default:
		return nil
	}
	return g
}

// value encodes g's entry.
func (g *garbage) value() []byte {
	r := record{kind: g.kind, id: g.id, exts: g.exts, segs: g.segs}
	for _, e := range g.exts {
		r.size += e.Len
	}
	if n := r.segments(); n > 0 {
		r.size = r.segmentEnd(n - 1)
	}
	return appendRecord(nil, &r, nil)
}

// reapBatch bounds one batch of the reaper, in extents.
const reapBatch = 4096

// reaper frees what committed drops left behind, in the background and in
// batches: under load many drops share one durable batch, so that it keeps up
// with any number of writers.
type reaper struct {
	s *Store

	mu      sync.Mutex
	queue   []*garbage    // not known to be without readers
	ready   []*garbage    // without readers for ever, but a batch has failed
	unfreed []blob.Extent // nobody's, but the byte store failed to free them
	busy    bool
	stopped bool
	idle    chan struct{} // closed and replaced whenever the reaper has done all it can

	wake chan struct{} // holds one
	done chan struct{}
}

func newReaper(s *Store) *reaper {
	return &reaper{s: s, wake: make(chan struct{}, 1), done: make(chan struct{}), idle: make(chan struct{})}
}

func (r *reaper) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add takes garbage whose g entry is durable.
func (r *reaper) add(gs ...*garbage) {
	n := 0
	r.mu.Lock()
	for _, g := range gs {
		if g != nil {
			r.queue = append(r.queue, g)
			n++
		}
	}
	r.mu.Unlock()
	if n > 0 {
		r.s.stats.garbage.Add(int64(n))
		r.notify()
	}
}

// released takes garbage back whose reader has left.
func (r *reaper) released(g *garbage) {
	r.mu.Lock()
	r.queue = append(r.queue, g)
	r.mu.Unlock()
	r.notify()
}

// flush waits until the garbage there was at the call is freed, except what
// readers hold, and reports whether there was any to wait for.
func (r *reaper) flush(ctx context.Context) bool {
	r.mu.Lock()
	work := r.busy || len(r.queue) > 0 || len(r.ready) > 0
	r.mu.Unlock()
	if !work {
		return false
	}
	// Two rounds: the one under way may have begun before the latest garbage came.
	for range 2 {
		r.mu.Lock()
		idle, work := r.idle, !r.stopped && (r.busy || len(r.queue) > 0 || len(r.ready) > 0)
		r.mu.Unlock()
		if !work {
			return true
		}
		r.notify()
		select {
		case <-idle:
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// run works until stop. It starts when the free list is restored, since only
// then can extents be freed.
func (r *reaper) run(stop <-chan struct{}) {
	defer close(r.done)
	select {
	case <-r.s.restored:
	case <-stop:
		return
	}
	if r.s.restoreErr != nil {
		<-stop // what is wrong with the extents is not made worse
		return
	}
	stopping := false
	for {
		r.mu.Lock()
		queue, ready := r.queue, r.ready
		r.queue, r.ready, r.busy = nil, nil, true
		r.mu.Unlock()

		young, wait := r.young(&queue)
		if stopping {
			young, wait = nil, 0 // g entries outlive us: the next start frees them
		}
		if len(queue) > 0 {
			r.s.gate.pass()
			for _, g := range queue {
				if !r.s.pins.park(g) {
					ready = append(ready, g)
				}
			}
		}
		r.retryFree()
		left := r.reap(ready)

		r.mu.Lock()
		r.queue = append(young, r.queue...)
		more := len(r.queue) > len(young)
		r.ready = left
		r.busy = false
		if !more {
			close(r.idle)
			r.idle = make(chan struct{})
		}
		r.stopped = stopping
		again := len(left) > 0 || len(r.unfreed) > 0
		r.mu.Unlock()
		if more {
			continue
		}
		if stopping {
			return
		}
		if again && (wait == 0 || wait > retryDelay) {
			wait = retryDelay
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = r.s.o.After(wait)
		}
		select {
		case <-r.wake:
		case <-timer:
		case <-stop:
			stopping = true
		}
	}
}

// retryDelay is the pause after a failed batch.
const retryDelay = time.Second

// young takes out of queue what is not as old as FreeGrace and returns it,
// with the time until the first of them is.
func (r *reaper) young(queue *[]*garbage) (young []*garbage, wait time.Duration) {
	grace := r.s.o.FreeGrace
	if grace <= 0 {
		return nil, 0
	}
	now := r.s.o.Now()
	old := (*queue)[:0]
	for _, g := range *queue {
		left := grace - now.Sub(g.since)
		if left <= 0 {
			old = append(old, g)
			continue
		}
		young = append(young, g)
		if wait == 0 || left < wait {
			wait = left
		}
	}
	*queue = old
	return young, wait
}

// reap frees gs, which have no readers, and returns those to try again.
func (r *reaper) reap(gs []*garbage) (left []*garbage) {
	byPart := make(map[string][]*garbage)
	for _, g := range gs {
		byPart[g.part] = append(byPart[g.part], g)
	}
	for part, gs := range byPart {
		for len(gs) > 0 {
			n, err := r.reapSome(part, gs)
			if errors.Is(err, errBadRecord) {
				// Only the first of gs can be at fault (see reapSome). Its entry stays.
				r.s.o.Logger.Error("damaged garbage is left alone", slog.String("partition", part),
					slog.String("id", gs[0].id.String()), slog.Any("error", err))
				n, err = 1, nil
			}
			if err != nil {
				r.s.o.Logger.Warn("freeing dropped extents failed, will try again",
					slog.String("partition", part), slog.Any("error", err))
				left = append(left, gs...)
				break
			}
			gs = gs[n:]
		}
	}
	return left
}

// reapSome handles the front of gs in one batch and returns how many of them
// are done.
func (r *reaper) reapSome(part string, gs []*garbage) (done int, err error) {
	ctx := context.Background()
	var b meta.Batch
	var free []blob.Extent
	var after func() // what a partial step changes in memory once it is durable
	for _, g := range gs {
		if g.kind != kindExtents {
			if done > 0 {
				break // by itself: it may take several batches
			}
			whole, fn, err := r.dropSegments(ctx, g, &b, &free)
			if err != nil {
				return 0, err
			}
			after = fn
			if whole {
				done = 1
			}
			break
		}
		if len(free) > 0 && len(free)+len(g.exts) > reapBatch {
			break
		}
		free = append(free, g.exts...)
		b.Delete(idKey(keyGarbage, g.id))
		done++
	}
	for _, e := range free {
		b.Delete(extentKey(e))
	}
	if err := r.s.meta.Apply(ctx, part, &b); err != nil {
		return 0, err
	}
	if after != nil {
		after()
	}
	r.s.stats.garbage.Add(int64(-done))
	r.free(ctx, free)
	return done, nil
}

// free gives extents back that nothing refers to, durably. If that fails it
// is tried again with the next round; at worst the next start finds them free.
func (r *reaper) free(ctx context.Context, exts []blob.Extent) {
	if len(exts) == 0 {
		return
	}
	if err := r.s.blob.Free(ctx, exts); err != nil {
		r.s.o.Logger.Warn("extents could not be freed, will try again", slog.Any("error", err))
		r.mu.Lock()
		r.unfreed = append(r.unfreed, exts...)
		r.mu.Unlock()
	}
}

func (r *reaper) retryFree() {
	r.mu.Lock()
	exts := r.unfreed
	r.unfreed = nil
	r.mu.Unlock()
	r.free(context.Background(), exts)
}

// dropSegments adds to b and free the dropping of as many of g's segments as
// fit one batch. If some remain g's entry keeps them, so that every segment is
// named by somebody at every moment.
func (r *reaper) dropSegments(ctx context.Context, g *garbage, b *meta.Batch, free *[]blob.Extent) (whole bool, after func(), err error) {
	if g.kind == kindSweep {
		return r.sweepParts(ctx, g, b, free)
	}
	rec := record{segs: g.segs}
	n := rec.segments()
	i := 0
	for ; i < n && len(*free) < reapBatch && i < reapBatch; i++ {
		if err := r.dropSegment(ctx, g.part, rec.segmentID(i), b, free); err != nil {
			return false, nil, err
		}
	}
	if i == n {
		b.Delete(idKey(keyGarbage, g.id))
		return true, nil, nil
	}
	rest := garbage{part: g.part, id: g.id, kind: g.kind, segs: g.segs[i*segmentLen:]}
	b.Set(idKey(keyGarbage, g.id), rest.value())
	return false, func() { g.segs = rest.segs }, nil
}

// sweepParts drops the parts that a finished upload left unused.
func (r *reaper) sweepParts(ctx context.Context, g *garbage, b *meta.Batch, free *[]blob.Extent) (whole bool, after func(), err error) {
	start := idKey(keyPart, g.id)
	var ids []ID
	whole = true
	err = r.s.meta.Scan(ctx, g.part, start, successor(start), func(k, v []byte) (bool, error) {
		if len(ids) == reapBatch {
			whole = false
			return false, nil
		}
		var p part
		if err := p.decode(v); err != nil {
			return false, err
		}
		ids = append(ids, p.segment)
		b.Delete(append([]byte(nil), k...))
		return true, nil
	})
	if err != nil {
		return false, nil, err
	}
	for _, id := range ids {
		if err := r.dropSegment(ctx, g.part, id, b, free); err != nil {
			return false, nil, err
		}
	}
	if whole {
		b.Delete(idKey(keyGarbage, g.id))
	}
	return whole, nil, nil
}

func (r *reaper) dropSegment(ctx context.Context, part string, id ID, b *meta.Batch, free *[]blob.Extent) error {
	key := idKey(keySegment, id)
	v, err := r.s.meta.Get(ctx, part, key, nil)
	if errors.Is(err, meta.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var seg record
	if err := seg.decode(v); err != nil {
		return err
	}
	b.Delete(key)
	*free = append(*free, seg.exts...)
	return nil
}

// load queues the g entries that an earlier run left.
func (r *reaper) load(ctx context.Context, part string) error {
	now := r.s.o.Now()
	return r.s.meta.Scan(ctx, part, []byte{keyGarbage}, []byte{keyGarbage + 1}, func(k, v []byte) (bool, error) {
		var rec record
		if err := rec.decode(append([]byte(nil), v...)); err != nil {
			r.s.o.Logger.Error("damaged garbage entry is left alone", slog.String("partition", part), slog.Any("error", err))
			return true, nil
		}
		r.add(garbageOf(part, &rec, now))
		return true, nil
	})
}

// singleSegment is the garbage of one part that another has replaced.
func singleSegment(partition string, p *part, now time.Time) *garbage {
	segs := appendSegment(nil, p.segment, p.size)
	return &garbage{part: partition, id: p.segment, kind: kindSegments, segs: segs, since: now}
}

// partNumber reads the number off a part's key.
func partNumber(k []byte) int { return int(binary.BigEndian.Uint16(k[len(k)-2:])) }
