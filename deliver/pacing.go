package deliver

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
)

// Schedule joins the delivery to the link that Config names, as one of the
// tenant's; without one it does nothing. It is called once, before the first
// byte is asked for. Too many deliveries are a *descriptor.BusyError.
//
// In layer mode a compute window (layer_compute_us, or else that of
// Config.Profile) puts the delivery under the link's policy; chunk mode and
// deliveries without one get a fair share (§3.4).
func (y *Delivery) Schedule(ctx context.Context, tenant string) error {
	if y.d.cfg.Link == nil || y.Size() == 0 {
		return nil
	}
	spec := pace.Spec{Tenant: tenant, LayerBytes: int64(len(y.objs)) * y.desc.PerLayerChunkBytes,
		Layers: y.desc.LayerCount, Compute: computeWindow(y.desc.LayerComputeMicros)}
	if y.mode == descriptor.Chunk {
		spec.Mode = pace.Chunk
	} else {
		spec.Class, spec.Compute = y.d.cfg.Profile.Resolve(y.desc.NumLayers, spec.LayerBytes, spec.Compute)
	}
	flow, err := y.d.cfg.Link.Join(ctx, spec)
	var busy *pace.BusyError
	if errors.As(err, &busy) {
		y.d.observe.Refused(busy.Limit)
		return &descriptor.BusyError{Limit: busy.Limit}
	}
	y.flow = flow
	return err
}

// computeWindow is a compute window of at most a day, and at least 1 ns if
// there is one at all.
func computeWindow(micros float64) time.Duration {
	if micros <= 0 {
		return 0
	}
	return time.Duration(max(1, min(micros*1e3, float64(24*time.Hour))))
}

// GrantedRate is the rate that the link has planned for the delivery, in bytes
// per second: the present one until it is delivered, then the mean. It is 0 if
// the delivery is not paced, or waits for its first plan.
func (y *Delivery) GrantedRate() float64 {
	if y.flow == nil {
		return 0
	}
	if u := y.flow.Usage(); u.Bytes > 0 {
		return math.Round(u.Granted)
	}
	return math.Round(y.flow.Rate())
}

// leave is what one goroutine of a paced delivery may move without asking
// again. It asks for many slices at a time, so that small ones cost no more.
type leave struct {
	flow  *pace.Flow
	bytes int64
}

// upTo waits until some of the next n bytes may go, and says how many. They
// are part of left bytes that are asked for together (a layer, or a worker's
// item). Unless left ends, at least a block may go: a block that is read in
// parts is verified once for each.
func (l *leave) upTo(ctx context.Context, n, left int64) (int64, error) {
	if l.bytes < min(n, storage.BlockSize) {
		more := min(max(l.flow.Quantum(), storage.BlockSize), left-l.bytes)
		if err := l.flow.Take(ctx, more); err != nil {
			return 0, err
		}
		l.bytes += more
	}
	return min(n, l.bytes), nil
}
