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
// The work is cut into items, taken in order: a few neighbouring chunks of one
// row, row by row. A row is a layer, or as many as share their blocks, so that
// each block is read and verified once; a chunk-major delivery has one. Layers
// are announced when the last item of their rows is done, whatever else is
// under way. Where sending is what limits, a row is one layer, and a block of
// several is read for each.
type crew struct {
	y     *Delivery
	sink  transport.Sink
	place *agg.Placement // nil: the payload's own order

	rows     agg.Rows
	hint     storage.ReadHint
	perItem  int            // chunks in an item
	groups   int64          // items in a row
	left     []atomic.Int64 // items missing of each row
	next     atomic.Int64
	failedAt atomic.Int64 // items from this one on are given up
	bytes    atomic.Int64

	// paced ends when an item fails, so that nobody waits for leave to do one
	// after it; giveUp ends it. Both are nil if the delivery is not paced.
	paced  context.Context
	giveUp context.CancelFunc

	mu    sync.Mutex // announces, and what follows
	whole int        // rows done, counted from the first
	ready []time.Duration
	at    int64 // the item that err is of
	err   error
}

// itemBytes is what an item has by default, unless that leaves too few items for
// the workers to share: enough that taking one costs nothing.
const itemBytes = 512 << 10

// chunksPerItem is how many chunks of a row an item has. One write of a sink
// that gathers is one item, as long as every worker has one.
func (y *Delivery) chunksPerItem(rows *agg.Rows, workers int, gather int64) int {
	per := func(size int64, items int) int64 {
		return min(max(1, int64(len(y.objs)/(items*workers))), max(1, size/rows.RowBytes()))
	}
	if y.d.cfg.AggBytes > 0 {
		return int(per(y.d.cfg.AggBytes, 1))
	}
	return int(max(per(itemBytes, 4), per(gather, 1)))
}

// runAnyOrder reads the payload's slices by several workers at once.
func (y *Delivery) runAnyOrder(ctx context.Context, sink transport.Sink, place *agg.Placement) (Result, error) {
	n, workers := len(y.objs), y.d.cfg.Workers
	if n == 0 {
		return Result{}, nil
	}
	gather, block := int64(0), int64(storage.BlockSize)
	if g, ok := sink.(transport.Gatherer); ok {
		gather = int64(g.Gather())
	}
	if gather > 0 || y.flow != nil {
		// What limits is sending: a layer whose blocks hold bytes of later ones
		// is whole sooner if only its own bytes are sent.
		block = 1
	}
	c := &crew{y: y, sink: sink, place: place, rows: y.plan.Rows(block), hint: storage.ReadHint{Class: storage.ClassLayer}}
	if y.mode == descriptor.Chunk {
		c.hint.Class = storage.ClassChunk
	}
	c.perItem = y.chunksPerItem(&c.rows, workers, gather)
	c.groups = int64((n + c.perItem - 1) / c.perItem)
	c.ready = make([]time.Duration, 0, y.plan.Layers())
	c.left = make([]atomic.Int64, c.rows.Len())
	for i := range c.left {
		c.left[i].Store(c.groups)
	}
	items := c.groups * int64(c.rows.Len())
	c.failedAt.Store(items)
	if y.flow != nil {
		c.paced, c.giveUp = context.WithCancel(ctx)
		defer c.giveUp()
	}

	var wg sync.WaitGroup
	for range min(int64(workers), items) - 1 {
		wg.Go(func() { c.work(ctx) })
	}
	c.work(ctx)
	wg.Wait()
	return Result{Bytes: c.bytes.Load(), Layers: c.ready}, c.err
}

// work takes items until there are none or one before them has failed. Items
// before the one that failed are finished: their layers may become ready.
func (c *crew) work(ctx context.Context) {
	h := &hand{crew: c, may: leave{flow: c.y.flow}}
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
	c.failLocked(i, err)
}

func (c *crew) failLocked(i int64, err error) {
	if c.err == nil || i < c.at {
		c.err, c.at = err, i
	}
	c.failedAt.Store(min(i, c.failedAt.Load()))
	if c.giveUp != nil {
		c.giveUp()
	}
}

// announce announces the layers of the rows that are whole, in order.
func (c *crew) announce(item int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.whole < len(c.left) && c.left[c.whole].Load() == 0 {
		for end := c.rows.Whole(c.whole); len(c.ready) < end; {
			if err := c.sink.LayerReady(c.y.plan.First() + len(c.ready)); err != nil {
				c.failLocked(item, err)
				return
			}
			c.ready = append(c.ready, c.y.d.cfg.Now().Sub(c.y.start))
			if c.y.flow != nil {
				c.y.flow.LayerDone()
			}
		}
		c.whole++
	}
}

// hand is one worker.
type hand struct {
	*crew
	one   [1][]byte // the place of a read
	stage *slab     // for blocks that are scattered

	may  leave
	left int64 // bytes of the item still to move
}

func (h *hand) close() {
	if h.stage != nil {
		slabs.Put(h.stage)
	}
}

// item does item i.
func (h *hand) item(ctx context.Context, i int64) error {
	c := h.crew
	row, g := int(i/c.groups), int(i%c.groups)
	lo, hi := g*c.perItem, min((g+1)*c.perItem, len(c.y.objs))
	h.left = 0
	for half := range c.y.plan.Halves() {
		_, n := c.rows.Range(row, half)
		h.left += n * int64(hi-lo)
	}
	for j := lo; j < hi; j++ {
		for half := range c.y.plan.Halves() {
			off, n := c.rows.Range(row, half)
			if err := h.read(ctx, i, part{row, j, half, off, off + n}); err != nil {
				return err
			}
		}
	}
	if c.left[row].Add(-1) == 0 {
		c.announce(i)
	}
	return nil
}

// part is the bytes [at, end) of a chunk, which lie in one half and row of it.
type part struct {
	row, chunk, half int
	at, end          int64
}

// lands gives the address of the part's first byte, and how many of its bytes
// lie together there.
func (c *crew) lands(p *part) (addr, run int64) {
	addr, run = c.rows.Dst(p.chunk, p.half, p.at)
	if c.place != nil {
		var k int64
		addr, k = c.place.At(addr)
		run = min(run, k)
	}
	return addr, min(run, p.end-p.at)
}

// maxPiece is the most that is read between two looks at the context.
const maxPiece = 4 << 20

// read reads a part to its places: runs of whole blocks straight, a block
// whose bytes lie apart by way of the stage.
func (h *hand) read(ctx context.Context, item int64, p part) error {
	c := h.crew
	hint := c.hint
	hint.Layer = c.rows.Layer(p.row)
	o := c.y.objs[p.chunk]
	for p.at < p.end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if item > c.failedAt.Load() {
			return errGivenUp // an item before this one has failed
		}
		most := p.end - p.at // at least to the end of a block
		if h.may.flow != nil {
			n, err := h.may.upTo(c.paced, most, h.left)
			if err != nil && ctx.Err() == nil && c.paced.Err() != nil {
				if item > c.failedAt.Load() {
					return errGivenUp
				}
				n, err = h.may.upTo(ctx, most, h.left) // an item after this one has failed
			}
			if err != nil {
				return err
			}
			most = n
		}
		addr, run := c.lands(&p)
		n := min(run, maxPiece, most)
		if p.at+n < p.end {
			n = (p.at+n)&^(storage.BlockSize-1) - p.at
		}
		if n <= 0 {
			if err := h.scatter(ctx, o, hint, &p); err != nil {
				return err
			}
			continue
		}
		q, err := c.sink.Grab(addr, int(n))
		if err != nil {
			return err
		}
		q = q[:pieceLen(p.at, len(q), p.end-p.at)]
		h.one[0] = q
		if err := storage.ReadInto(ctx, o, h.one[:], p.at, hint); err != nil {
			return err
		}
		if err := c.sink.Commit(addr, len(q)); err != nil {
			return err
		}
		p.at += int64(len(q))
		h.moved(int64(len(q)))
	}
	return nil
}

// scatter reads the part's bytes up to the next end of a block into memory of
// its own, so that the block is verified once, and copies them to their places.
func (h *hand) scatter(ctx context.Context, o storage.Object, hint storage.ReadHint, p *part) error {
	if h.stage == nil {
		h.stage = slabs.Get().(*slab)
	}
	n := min(storage.BlockSize-p.at%storage.BlockSize, p.end-p.at)
	s := h.stage[:n]
	if err := o.ReadAt(ctx, s, p.at, hint); err != nil {
		return err
	}
	for len(s) > 0 {
		addr, run := h.lands(p)
		q, err := h.sink.Grab(addr, int(min(run, int64(len(s)))))
		if err != nil {
			return err
		}
		k := copy(q, s)
		if err := h.sink.Commit(addr, k); err != nil {
			return err
		}
		s, p.at = s[k:], p.at+int64(k)
	}
	h.moved(n)
	return nil
}

// moved counts bytes that are in place.
func (h *hand) moved(n int64) {
	h.may.bytes -= n
	h.left -= n
	h.bytes.Add(n)
}
