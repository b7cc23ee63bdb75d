package bench

import (
	"context"
	"time"
)

// A clock measures a prefill and plays its compute.
type clock interface {
	Now() time.Time
	// SleepUntil returns at t or as little later as it can, or at once if t has
	// passed. The goroutine that sleeps calls nothing else of the clock meanwhile.
	SleepUntil(t time.Time)
}

// A delivery brings the layers of one prefix, 0 to L-1, to local memory. It
// calls ready(l) in order of l, once every byte of layer l is there, and returns
// after the last.
type delivery func(ctx context.Context, ready func(l int)) error

// Played is what one prefill took, counted from the moment its request was sent.
type Played struct {
	Ready []time.Duration // of each layer: when it was whole in local memory
	TTFT  time.Duration   // when the last layer was computed
	Stall time.Duration   // how long nothing was computed between layer 0's arrival and the end
	Late  time.Duration   // the most by which the timer overslept one layer
}

// play plays the prefill of len(windows) layers: the computation of layer l
// begins when layer l is whole and layer l-1 is computed, and takes windows[l].
// It is what a GPU stream does that waits for one event per layer, so a layer
// that is there when the one before it ends is computed from that very moment,
// however late the timer woke this program. The first time to sleep binds the
// clock to the calling goroutine.
func play(ctx context.Context, c clock, windows []time.Duration, deliver delivery) (Played, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := Played{Ready: make([]time.Duration, 0, len(windows))}
	arrivals := make(chan time.Time, len(windows)) // the delivery never waits for the compute
	failed := make(chan error, 1)
	start := c.Now()
	go func() {
		err := deliver(ctx, func(int) { arrivals <- c.Now() })
		close(arrivals)
		failed <- err
	}()
	var end, woke time.Time
	for l, w := range windows {
		at, ok := <-arrivals
		if !ok {
			break // too few layers came: the delivery says why
		}
		p.Ready = append(p.Ready, at.Sub(start))
		begin := at
		if l > 0 && end.After(at) {
			begin = end
		} else if l > 0 {
			p.Stall += at.Sub(end)
		}
		end = begin.Add(w)
		c.SleepUntil(end)
		woke = c.Now()
		p.Late = max(p.Late, woke.Sub(end))
	}
	p.TTFT = woke.Sub(start)
	cancelled := ctx.Err()
	if err := <-failed; err != nil {
		return p, err
	}
	return p, cancelled
}

// eq3 is the TTFT of ObjectCache's Eq. 3: the first layer's arrival, then the
// longer of the next layer's transfer and this one's compute, then the last
// layer's compute.
func eq3(x0, x, c time.Duration, layers int) time.Duration {
	return x0 + time.Duration(layers-1)*max(x, c) + c
}

// local is the delivery of a prefix that lies layer-major in local memory
// already (the paper's opt-local-LW). It copies nothing to the GPU, in which it
// is stricter than the paper's.
func local(layers int) delivery {
	return func(_ context.Context, ready func(int)) error {
		for l := range layers {
			ready(l)
		}
		return nil
	}
}
