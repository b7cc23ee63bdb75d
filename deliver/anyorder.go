package deliver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objcached/objcached/agg"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport"
)

// crew is the workers of one delivery into memory that takes any order.
//
// The work is cut into items, taken in order: in layer mode a few neighbouring
// chunks of one layer, layer by layer; in chunk mode one chunk. A layer is
// announced when the last of its items is done, whatever else is under way.
type crew struct {
	y     *Delivery
	src   *source
	sink  transport.Sink
	place *agg.Placement // nil: the payload's own order

	chunky   bool
	perItem  int // chunks in an item
	groups   int // items in a layer; chunk mode: all
	layers   int
	items    int64
	group    []sync.Mutex   // layer mode: one layer at a time reads a group's chunks
	left     []atomic.Int64 // items missing of each layer
	next     atomic.Int64
	failedAt atomic.Int64 // items from this one on are given up
	bytes    atomic.Int64

	mu    sync.Mutex // announces, and what follows
	ready []time.Duration
	at    int64 // the item that err is of
	err   error
}

// itemBytes is what an item has at least, unless that leaves too few items for
// the workers to share: enough that taking one costs nothing.
const itemBytes = 512 << 10

// perItem is how many of n chunks with slices of s bytes an item has. One write
// of a sink that gathers is one item, as long as every worker has one.
func perItem(n, workers int, s, gather int64) int {
	most := func(bytes int64, items int) int64 { return min(bytes/s, int64(n/items)) }
	return int(max(1, most(itemBytes, 4*workers), most(gather, workers)))
}

// runAnyOrder reads the payload's slices by several workers at once.
func (y *Delivery) runAnyOrder(ctx context.Context, sink transport.Sink, place *agg.Placement) (Result, error) {
	n, workers := len(y.objs), y.d.cfg.Workers
	if n == 0 {
		return Result{}, nil
	}
	c := &crew{y: y, sink: sink, place: place, chunky: y.mode == descriptor.Chunk, perItem: 1, layers: y.plan.Layers()}
	if !c.chunky {
		gather := 0
		if g, ok := sink.(transport.Gatherer); ok {
			gather = g.Gather()
		}
		c.perItem = perItem(n, workers, y.desc.PerLayerChunkBytes, int64(gather))
	}
	c.groups = (n + c.perItem - 1) / c.perItem
	c.items = int64(c.groups)
	c.ready = make([]time.Duration, 0, c.layers)
	if !c.chunky {
		c.items *= int64(c.layers)
		c.group = make([]sync.Mutex, c.groups)
		c.left = make([]atomic.Int64, c.layers)
		for l := range c.left {
			c.left[l].Store(int64(c.groups))
		}
	}
	c.failedAt.Store(c.items)
	workers = int(min(int64(workers), c.items))
	c.src = y.openSource(workers)
	defer c.src.close() // when all workers have ended

	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Go(func() { c.work(ctx, w) })
	}
	c.work(ctx, 0)
	wg.Wait()
	if c.err == nil && c.chunky {
		c.announce(c.items, c.layers)
	}
	return Result{Bytes: c.bytes.Load(), Layers: c.ready}, c.err
}

// work takes items until there are none or one before them has failed. Items
// before the one that failed are finished: their layers may become ready.
func (c *crew) work(ctx context.Context, w int) {
	h := &hand{crew: c, worker: w}
	defer h.close()
	for {
		i := c.next.Add(1) - 1
		if i >= c.failedAt.Load() {
			return
		}
		if err := h.item(ctx, i); err != nil {
			c.fail(i, err)
			return
		}
	}
}

// fail gives up item i and those after it.
func (c *crew) fail(i int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil || i < c.at {
		c.err, c.at = err, i
	}
	c.failedAt.Store(min(i, c.failedAt.Load()))
}

// announce announces the layers that are whole, in order, up to end.
func (c *crew) announce(item int64, end int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := len(c.ready); l < end && (c.chunky || c.left[l].Load() == 0); l++ {
		if err := c.sink.LayerReady(c.y.plan.First() + l); err != nil {
			if c.err == nil || item < c.at {
				c.err, c.at = err, item
			}
			c.failedAt.Store(min(item, c.failedAt.Load()))
			return
		}
		c.ready = append(c.ready, c.y.d.cfg.Now().Sub(c.y.start))
	}
}

// hand is one worker.
type hand struct {
	*crew
	worker int
	stage  *slab // for slices that are scattered
}

func (h *hand) close() {
	if h.stage != nil {
		slabs.Put(h.stage)
	}
}

// item does item i.
func (h *hand) item(ctx context.Context, i int64) error {
	c := h.crew
	plan := &c.y.plan
	if c.chunky {
		per := plan.Steps() / len(c.y.objs)
		for k := range per {
			if err := h.step(ctx, i, plan.At(int(i)*per+k)); err != nil {
				return err
			}
		}
		return nil
	}
	l, g := int(i/int64(c.groups)), int(i%int64(c.groups))
	n := len(c.y.objs)
	lo, hi := g*c.perItem, min((g+1)*c.perItem, n)
	c.group[g].Lock()
	defer c.group[g].Unlock()
	halves := plan.Halves()
	for k := (l*n + lo) * halves; k < (l*n+hi)*halves; k++ {
		if err := h.step(ctx, i, plan.At(k)); err != nil {
			return err
		}
	}
	if c.left[l].Add(-1) == 0 {
		c.announce(i, c.layers)
	}
	return nil
}

// maxPiece is the most that is read between two looks at the context.
const maxPiece = 4 << 20

// step reads one range of a chunk to its place.
func (h *hand) step(ctx context.Context, item int64, s agg.Read) error {
	c := h.crew
	for done := int64(0); done < s.Len; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if item > c.failedAt.Load() {
			return errGivenUp // an item before this one has failed
		}
		left := s.Len - done
		addr, run := s.Dst+done, left
		if c.place != nil {
			addr, run = c.place.At(s.Dst + done)
		}
		n := int(min(left, run, maxPiece))
		if run < left && scattered(s.Off+done, n) {
			k, err := h.scatter(ctx, &s, done)
			if err != nil {
				return err
			}
			done += k
			continue
		}
		p, err := c.sink.Grab(addr, n)
		if err != nil {
			return err
		}
		p = p[:pieceLen(s.Off+done, len(p), left)]
		if err := c.src.read(ctx, &s, h.worker, p, s.Off+done); err != nil {
			return err
		}
		if err := c.sink.Commit(addr, len(p)); err != nil {
			return err
		}
		done += int64(len(p))
		c.bytes.Add(int64(len(p)))
	}
	return nil
}

// scattered reports whether n bytes at off, which land apart from what follows
// them, would leave a block read in part: it would be read and verified again
// for the rest of it.
func scattered(off int64, n int) bool { return (off+int64(n))%storage.BlockSize != 0 }

// scatter reads a run of a chunk into memory of its own, so that each block is
// verified once, and copies it to its places from there.
func (h *hand) scatter(ctx context.Context, s *agg.Read, done int64) (int64, error) {
	c := h.crew
	if h.stage == nil {
		h.stage = slabs.Get().(*slab)
	}
	n := min(s.Len-done, stageBytes)
	n = int64(pieceLen(s.Off+done, int(n), s.Len-done))
	p := h.stage[:n]
	if err := c.src.read(ctx, s, h.worker, p, s.Off+done); err != nil {
		return 0, err
	}
	for at := int64(0); at < n; {
		addr, run := c.place.At(s.Dst + done + at)
		run = min(run, n-at)
		q, err := c.sink.Grab(addr, int(run))
		if err != nil {
			return 0, err
		}
		k := copy(q, p[at:])
		if err := c.sink.Commit(addr, k); err != nil {
			return 0, err
		}
		at += int64(k)
	}
	c.bytes.Add(n)
	return n, nil
}

// stageBytes is what is scattered at a time: it stays in the core's cache.
const stageBytes = 256 << 10
