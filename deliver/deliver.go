// Package deliver is the data path of the KV requests: a validated descriptor
// becomes N opened chunk objects, a plan of their byte ranges, and bytes read
// from storage straight into the memory of a transport (ObjectCache §3.3, §3.4).
package deliver

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/objcached/objcached/agg"
	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/bwsched/profile"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/stream"
)

// Config bounds what deliveries may hold at one time. A zero field means its default.
type Config struct {
	// Threshold is Θ in bytes (Eq. 2): a delivery with mode auto of less than
	// Θ payload bytes goes chunk-major, any other layer-major. Default 0:
	// always layer-major.
	Threshold int64

	// Workers is how many slices of one delivery are read at a time if its sink
	// takes them in any order; default and most: GOMAXPROCS.
	Workers int

	// AggBytes is how many bytes of one layer a worker gathers before it takes
	// other work (ObjectCache, Figure A8), if its share of the layer has as many;
	// 0: 512 KiB, and no more than a quarter of its share.
	AggBytes int64

	MaxDeliveries int   // prepared and not yet closed; default 256
	MaxOpen       int   // chunk objects open in all of them; default 131,072
	Share         bool  // leave a quarter of these two to other tenants
	StagingBytes  int   // staging buffer of one response body; default stream.DefaultBuffer
	WindowBytes   int64 // block window of one delivery; default 16 MiB, negative: none
	WindowTotal   int64 // block windows of all deliveries; default 128 MiB
	Stages        int   // objects staged on their way to or from memory, 4 MiB each; default 16

	// Link paces deliveries (see Delivery.Schedule); nil: as fast as they go.
	Link *pace.Link
	// Profile knows the compute windows of requests that do not say theirs, and
	// everyone's class; nil knows nothing.
	Profile *profile.Profile

	Observer Observer         // default: none
	Now      func() time.Time // default time.Now; only for the Observer's durations
}

// Deliverer prepares deliveries from one store. It may be used concurrently.
type Deliverer struct {
	store   storage.Store
	cfg     Config
	bodies  *stream.Pool
	held    limits
	observe Observer
	staged  atomic.Int64 // staging buffers in use
}

// New makes a Deliverer over store.
func New(store storage.Store, cfg Config) *Deliverer {
	cfg.setDefaults()
	return &Deliverer{store: store, cfg: cfg, bodies: stream.NewPool(cfg.StagingBytes), observe: cfg.Observer,
		held: limits{maxDeliveries: int64(cfg.MaxDeliveries), maxOpen: int64(cfg.MaxOpen), maxWindow: cfg.WindowTotal, share: cfg.Share}}
}

func (c *Config) setDefaults() {
	if procs := runtime.GOMAXPROCS(0); c.Workers <= 0 || c.Workers > procs {
		c.Workers = procs
	}
	if c.MaxDeliveries == 0 {
		c.MaxDeliveries = 256
	}
	if c.MaxOpen == 0 {
		c.MaxOpen = 1 << 17
	}
	if c.WindowBytes == 0 {
		c.WindowBytes = 16 << 20
	}
	if c.WindowTotal == 0 {
		c.WindowTotal = 128 << 20
	}
	if c.Stages == 0 {
		c.Stages = 16
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Prepare is PrepareFor of a store with one tenant.
func (d *Deliverer) Prepare(ctx context.Context, bucket string, desc *descriptor.Descriptor) (*Delivery, error) {
	return d.PrepareFor(ctx, "", bucket, desc)
}

// PrepareFor opens every chunk of a validated descriptor once, checks that each
// is L*S bytes long, and chooses the mode. It returns *descriptor.MissingError
// (on_missing fail), *descriptor.ChunkSizeError, *descriptor.BusyError or an
// error of the store. The caller closes what it gets. What the delivery holds
// counts as the tenant's.
func (d *Deliverer) PrepareFor(ctx context.Context, tenant, bucket string, desc *descriptor.Descriptor) (*Delivery, error) {
	start := d.cfg.Now()
	n := len(desc.ChunkKeys)
	if err := d.held.enter(tenant, n); err != nil {
		d.observe.Refused(err.Limit)
		return nil, err
	}
	objs, err := storage.OpenMany(ctx, d.store, bucket, desc.ChunkKeys)
	if storage.IsNoSuchKey(err) {
		if desc.OnMissing == descriptor.Truncate {
			err = nil
		} else {
			err = &descriptor.MissingError{Key: desc.ChunkKeys[len(objs)], Matched: len(objs)}
		}
	}
	if err == nil {
		err = checkSizes(objs, desc)
	}
	if err != nil {
		storage.CloseAll(objs)
		d.held.leave(tenant, n)
		return nil, err
	}
	d.held.giveBack(tenant, n-len(objs))
	mode := d.mode(desc, len(objs))
	return &Delivery{d: d, tenant: tenant, desc: desc, objs: objs, mode: mode, plan: agg.New(desc, len(objs), mode), start: start}, nil
}

func checkSizes(objs []storage.Object, desc *descriptor.Descriptor) error {
	want := desc.ChunkBytes()
	for i, o := range objs {
		if got := o.Size(); got != want {
			return &descriptor.ChunkSizeError{Key: desc.ChunkKeys[i], Size: got, Want: want}
		}
	}
	return nil
}

// mode is the paper's rule (§3.4, Eq. 2) over the bytes that will be served.
func (d *Deliverer) mode(desc *descriptor.Descriptor, n int) descriptor.Mode {
	if desc.Delivery != descriptor.Auto {
		return desc.Delivery
	}
	if w := int64(n) * int64(desc.LayerCount) * desc.PerLayerChunkBytes; w < d.cfg.Threshold {
		return descriptor.Chunk
	}
	return descriptor.Layer
}

// Delivery is one prepared delivery. It pins its chunks' bytes until Close.
// Its methods are for one goroutine.
type Delivery struct {
	d      *Deliverer
	tenant string
	desc   *descriptor.Descriptor
	objs   []storage.Object // in prefix order
	mode   descriptor.Mode
	plan   agg.Plan
	flow   *pace.Flow // nil: not paced
	start  time.Time
	closed bool
}

var (
	errClosed  = errors.New("deliver: delivery is closed")
	errGivenUp = errors.New("deliver: given up after another error") // never seen outside
)

// Matched is the number of chunks served: N, or fewer if truncated.
func (y *Delivery) Matched() int { return len(y.objs) }

// Mode is "layer" or "chunk".
func (y *Delivery) Mode() string { return string(y.mode) }

// Size is the number of bytes in the payload.
func (y *Delivery) Size() int64 { return y.plan.Size() }

// WriteTo writes the whole payload to w in delivery order, in large writes. If
// w has a method Flush(), it is called when a layer is whole.
func (y *Delivery) WriteTo(ctx context.Context, w io.Writer) error {
	if y.closed {
		return errClosed
	}
	return y.Deliver(ctx, y.d.bodies.Open(w))
}

// Deliver writes the whole payload to sink and closes it. On an error the
// payload is short: layers announced before it are whole, no other is.
func (y *Delivery) Deliver(ctx context.Context, sink transport.Sink) error {
	_, err := y.deliver(ctx, sink, nil)
	return err
}

// Result says how a delivery into memory went, and how far one got that failed.
type Result struct {
	Bytes  int64           // payload bytes in place
	Layers []time.Duration // from Prepare until each layer was ready, in order
	// GrantedRate is the mean of the rates that the link granted, in bytes per
	// second; 0: not paced.
	GrantedRate float64
}

// DeliverInto is Deliver to the places in the client's memory that the
// descriptor's target names. The sink's offsets are counted from the start of
// the target's window; it takes any order.
func (y *Delivery) DeliverInto(ctx context.Context, sink transport.Sink) (Result, error) {
	if sink.Ordered() || y.desc.Target == nil {
		return Result{}, errors.Join(errNoTarget, sink.Close())
	}
	place := agg.Place(y.desc, len(y.objs), y.mode)
	return y.deliver(ctx, sink, &place)
}

var errNoTarget = errors.New("deliver: no target, or a sink that is no memory")

func (y *Delivery) deliver(ctx context.Context, sink transport.Sink, place *agg.Placement) (Result, error) {
	defer func() { _ = sink.Close() }() // releases memory; the payload is announced or broken by then
	if y.closed {
		return Result{}, errClosed
	}
	r := Report{Mode: y.mode, Requested: len(y.desc.ChunkKeys), Matched: len(y.objs)}
	var res Result
	if sink.Ordered() {
		r.Err = y.run(ctx, sink, &r)
	} else {
		res, r.Err = y.runAnyOrder(ctx, sink, place)
		// Bytes may be under way still, and arrive or not.
		if err := sink.Close(); r.Err == nil {
			r.Err = err
		}
		if r.Bytes, r.Layers = res.Bytes, len(res.Layers); r.Layers > 0 {
			r.FirstLayer = res.Layers[0]
		}
	}
	r.Total = y.d.cfg.Now().Sub(y.start)
	res.GrantedRate = y.GrantedRate()
	y.d.observe.Delivered(r)
	return res, r.Err
}

// run is the loop of Table A3, with the plan in place of its two loops.
func (y *Delivery) run(ctx context.Context, sink transport.Sink, r *Report) error {
	src := y.openSource()
	defer src.close()
	may := leave{flow: y.flow}
	unit := y.plan.Size() // what leave is asked for together
	if y.mode == descriptor.Layer {
		unit /= int64(y.plan.Layers())
	}
	for i, steps := 0, y.plan.Steps(); i < steps; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		step := y.plan.At(i)
		for done := int64(0); done < step.Len; {
			n := min(step.Len-done, maxGrab)
			if may.flow != nil {
				var err error
				if n, err = may.upTo(ctx, n, unit-(step.Dst+done)%unit); err != nil {
					return err
				}
			}
			p, err := sink.Grab(step.Dst+done, int(n))
			if err != nil {
				return err
			}
			p = p[:pieceLen(step.Off+done, len(p), step.Len-done)]
			if err := src.read(ctx, &step, p, step.Off+done); err != nil {
				return err
			}
			if err := sink.Commit(step.Dst+done, len(p)); err != nil {
				return err
			}
			done += int64(len(p))
			may.bytes -= int64(len(p))
			r.Bytes += int64(len(p))
		}
		for ; r.Layers < step.Whole; r.Layers++ {
			if err := sink.LayerReady(y.plan.First() + r.Layers); err != nil {
				return err
			}
			if r.Layers == 0 {
				r.FirstLayer = y.d.cfg.Now().Sub(y.start)
			}
			if y.flow != nil {
				y.flow.LayerDone()
			}
		}
	}
	return nil
}

// maxGrab bounds one Grab, so that a length fits an int anywhere.
const maxGrab = 1 << 30

// pieceLen shortens a piece of n bytes at off, with left to go, to end on a
// block boundary, so that the next piece need not verify that block again.
func pieceLen(off int64, n int, left int64) int {
	if int64(n) == left {
		return n
	}
	if whole := (off+int64(n))&^(storage.BlockSize-1) - off; whole > 0 {
		return int(whole)
	}
	return n
}

// Close unpins the chunks and leaves the link. It may be called more than once.
func (y *Delivery) Close() error {
	if y.closed {
		return nil
	}
	y.closed = true
	if y.flow != nil {
		y.flow.Close()
	}
	storage.CloseAll(y.objs)
	y.d.held.leave(y.tenant, len(y.objs))
	y.objs = nil
	return nil
}
