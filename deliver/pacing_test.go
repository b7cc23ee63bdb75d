package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport/transporttest"
)

// hasty is a clock that is at once where somebody wants to sleep until.
type hasty struct {
	mu    sync.Mutex
	now   int64
	woken chan struct{}
}

func (c *hasty) Begin() {}

func (c *hasty) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *hasty) SleepUntil(t int64) {
	if t == math.MaxInt64 {
		<-c.woken
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, t)
}

func (c *hasty) Wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// states is a policy of equal rates that writes down what it is told.
type states struct {
	bwsched.Equal
	mu   sync.Mutex
	seen []bwsched.Request
}

func (*states) Replans() bool { return true }

func (p *states) Rates(capacity float64, reqs []bwsched.Request, rates []float64) {
	p.mu.Lock()
	p.seen = append(p.seen, reqs...)
	p.mu.Unlock()
	p.Equal.Rates(capacity, reqs, rates)
}

func linked(t testing.TB, cfg pace.Config) (*pace.Link, *hasty) {
	t.Helper()
	c := &hasty{woken: make(chan struct{}, 1)}
	cfg.Clock = c
	if cfg.Policy == nil {
		cfg.Policy = bwsched.Equal{}
	}
	l, err := pace.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, c
}

func schedule(t testing.TB, dl *Deliverer, d *descriptor.Descriptor) *Delivery {
	t.Helper()
	y, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Schedule(t.Context(), "a tenant"); err != nil {
		t.Fatal(err)
	}
	return y
}

// left fails the test if a link holds anything.
func left(t testing.TB, l *pace.Link) {
	t.Helper()
	if st := l.Stats(); st.Pool != 0 || st.Outside != 0 || st.Waiting != 0 {
		t.Errorf("the link still has %+v", st)
	}
}

// sliceBlocks is how many blocks the slices of n chunks touch, each by itself.
func sliceBlocks(d *descriptor.Descriptor, n int) (blocks int64) {
	run, at := d.PerLayerChunkBytes, []int64{0}
	if d.Layout == descriptor.TwoLTD {
		run /= 2
		at = append(at, int64(d.NumLayers)*run)
	}
	for l := range int64(d.NumLayers) {
		for _, base := range at {
			lo := base + l*run
			blocks += (lo+run-1)/storage.BlockSize - lo/storage.BlockSize + 1
		}
	}
	return blocks * int64(n)
}

// TestPacedBytes delivers every geometry over links of many rates: the bytes
// are right, leave is asked for each once, it takes as long as it must by the
// link's clock, and no block is verified more often than without a link.
func TestPacedBytes(t *testing.T) {
	manyWorkers(t)
	const b = storage.BlockSize
	r := rand.New(rand.NewPCG(9, 10))
	for _, s := range []int64{1, 6, 1000, b, 3*b/2 + 2, 3 << 20} {
		for kind := -1; kind < 4; kind++ { // -1: a body
			for _, layout := range []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD} {
				if layout == descriptor.TwoLTD && s%2 != 0 || s > b && kind == 1 {
					continue
				}
				for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
					chunks, layers := 9, 4
					if s > 1000 {
						chunks, layers = 3, 3
					}
					d := desc(t, chunks, layers, s, func(d *descriptor.Descriptor) {
						d.Layout, d.Delivery, d.LayerComputeMicros = layout, mode, 100
					})
					if kind >= 0 {
						target(t, d, kind, r)
					}
					run := func(l *pace.Link, workers int) (got []byte, blocks int64) {
						t.Helper()
						f := newFake(d)
						dl := New(f, Config{Workers: workers, Link: l})
						y := schedule(t, dl, d)
						if kind < 0 {
							var body bytes.Buffer
							if err := y.WriteTo(t.Context(), &body); err != nil {
								t.Fatal(err)
							}
							got = body.Bytes()
						} else {
							m := transporttest.NewMemory(int(d.Target.Length))
							res, err := y.DeliverInto(t.Context(), m)
							if err != nil || res.Bytes != y.Size() || len(res.Layers) != layers || (res.GrantedRate > 0) != (l != nil) {
								t.Fatalf("%+v %v", res, err)
							}
							got = m.Bytes()
						}
						_ = y.Close()
						idle(t, dl, f)
						return got, f.blocks.Load()
					}
					rate := []float64{10e6, 1e9, 40e9}[r.IntN(3)]
					l, clock := linked(t, pace.Config{Capacity: rate})
					name := fmt.Sprintf("S=%d %s %s placement %d at %g", s, layout, mode, kind, rate)
					_, plainly := run(nil, 1)
					got, blocks := run(l, 1)
					want := expected(d, chunks, mode)
					if kind >= 0 {
						want = placed(d, chunks)
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%s: the bytes differ", name)
					}
					if kind >= 0 && mode == descriptor.Layer {
						plainly = sliceBlocks(d, chunks) // each layer for itself
					}
					if blocks != plainly {
						t.Errorf("%s: %d blocks are verified, want %d", name, blocks, plainly)
					}
					if got, _ := run(l, 4); !bytes.Equal(got, want) {
						t.Fatalf("%s: the bytes differ with four workers", name)
					}
					size := int64(chunks) * int64(layers) * s
					if st := l.Stats(); st.Bytes != 2*size {
						t.Errorf("%s: leave was asked for %d bytes of %d", name, st.Bytes, 2*size)
					}
					if least := float64(2*size-2*pace.MaxQuantum)/rate - 0.02; float64(clock.Now())/1e9 < least {
						t.Errorf("%s: took %.3f s, at least %.3f", name, float64(clock.Now())/1e9, least)
					}
					left(t, l)
				}
			}
		}
	}
}

// TestPolicySeesLayers: the link's policy is told what the descriptor says,
// and how far the delivery is.
func TestPolicySeesLayers(t *testing.T) {
	for _, kind := range []int{-1, 0} {
		p := new(states)
		l, _ := linked(t, pace.Config{Capacity: 1e6, Policy: p})
		d := desc(t, 3, 8, 1<<20, window(2, 5), func(d *descriptor.Descriptor) { d.LayerComputeMicros = 12.5 })
		y := func() *Delivery {
			if kind >= 0 {
				target(t, d, kind, nil)
			}
			return schedule(t, New(newFake(d), Config{Link: l}), d)
		}()
		if y.GrantedRate() != 1e6 {
			t.Errorf("granted %g", y.GrantedRate())
		}
		var err error
		if kind < 0 {
			err = y.WriteTo(t.Context(), io.Discard)
		} else {
			_, err = y.DeliverInto(t.Context(), transporttest.NewMemory(int(d.Target.Length)))
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = y.Close()
		for i := range p.seen {
			p.seen[i].Age = 0
		}
		first := bwsched.Request{LayerBytes: 3 << 20, Compute: 12500, Layers: 5}
		if p.seen[0] != first {
			t.Errorf("at first %+v", p.seen[0])
		}
		if !slices.ContainsFunc(p.seen, func(r bwsched.Request) bool { return r.Started && r.Layers == 4 }) {
			t.Errorf("never saw the first layer done: %+v", p.seen)
		}
		for _, r := range p.seen {
			if r.LayerBytes != first.LayerBytes || r.Compute != first.Compute || r.Started != (r.Layers < 5) || r.Layers < 1 {
				t.Errorf("%+v", r)
			}
		}
		left(t, l)
	}
}

// TestChunkModeIsOutsideThePool, and so is what has no compute window.
func TestChunkModeIsOutsideThePool(t *testing.T) {
	l, _ := linked(t, pace.Config{Capacity: 1e9})
	compute := func(d *descriptor.Descriptor) { d.LayerComputeMicros = 1e300 }
	for _, c := range []struct {
		change        []func(*descriptor.Descriptor)
		pool, outside int
	}{{[]func(*descriptor.Descriptor){compute}, 1, 0}, {nil, 0, 1}, {[]func(*descriptor.Descriptor){compute, inChunk}, 0, 1}} {
		d := desc(t, 2, 2, 10, c.change...)
		y := schedule(t, New(newFake(d), Config{Link: l}), d)
		if st := l.Stats(); st.Pool != c.pool || st.Outside != c.outside {
			t.Errorf("%d in the pool, %d outside", st.Pool, st.Outside)
		}
		_ = y.Close()
		_ = y.Close()
		left(t, l)
	}
	// Nothing to deliver: nothing to pace.
	d := desc(t, 2, 2, 10, trunc)
	f := newFake(d)
	clear(f.chunks)
	y := schedule(t, New(f, Config{Link: l}), d)
	left(t, l)
	if y.GrantedRate() != 0 {
		t.Error("an empty payload has a rate")
	}
	_ = y.Close()
}

// TestBusyLink: a link that is full refuses, as one of the server's limits.
func TestBusyLink(t *testing.T) {
	l, _ := linked(t, pace.Config{Capacity: 1e9, MaxFlows: 1})
	d := desc(t, 2, 2, 10)
	f, o := newFake(d), new(refusals)
	dl := New(f, Config{Link: l, Observer: o})
	first := schedule(t, dl, d)
	second, err := dl.Prepare(t.Context(), "b", d)
	if err != nil {
		t.Fatal(err)
	}
	var busy *descriptor.BusyError
	if err := second.Schedule(t.Context(), ""); !errors.As(err, &busy) || len(o.limits) != 1 || o.limits[0] != busy.Limit {
		t.Fatalf("%v, observed %q", err, o.limits)
	}
	_, _ = first.Close(), second.Close()
	idle(t, dl, f)
	left(t, l)
}

type refusals struct {
	noObserver
	limits []string
}

func (o *refusals) Refused(limit string) { o.limits = append(o.limits, limit) }

// TestCancelWhileWaitingForLeave ends deliveries that the link holds back: in
// order, and by several workers.
func TestCancelWhileWaitingForLeave(t *testing.T) {
	manyWorkers(t)
	for kind := -1; kind < 1; kind++ {
		l, err := pace.New(pace.Config{Capacity: 1, Policy: bwsched.Equal{}}) // on the system's clock: years
		if err != nil {
			t.Fatal(err)
		}
		d := desc(t, 40, 3, storage.BlockSize)
		if kind >= 0 {
			target(t, d, kind, nil)
		}
		f := newFake(d)
		dl := New(f, Config{Workers: 4, Link: l})
		y := schedule(t, dl, d)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			for l.Stats().Waiting == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel(gone)
		}()
		if kind < 0 {
			err = y.WriteTo(ctx, io.Discard)
		} else {
			_, err = y.DeliverInto(ctx, transporttest.NewMemory(int(d.Target.Length)))
		}
		if !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		_ = y.Close()
		idle(t, dl, f)
		left(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowClientHoldsNoBandwidth: a body whose client does not read asks for
// no more than one quantum beyond what it has written.
func TestSlowClientHoldsNoBandwidth(t *testing.T) {
	l, _ := linked(t, pace.Config{Capacity: 1e9})
	d := desc(t, 16, 4, 4*storage.BlockSize)
	y := schedule(t, New(newFake(d), Config{Link: l}), d)
	var written int64
	err := y.WriteTo(t.Context(), writer(func(p []byte) (int, error) {
		if most := written + pace.MaxQuantum + 256<<10; l.Stats().Bytes > most {
			t.Errorf("%d bytes are granted after %d were taken", l.Stats().Bytes, written)
		}
		written += int64(len(p))
		return len(p), nil
	}))
	if err != nil || written != y.Size() {
		t.Fatal(written, err)
	}
	_ = y.Close()
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestNoAllocationPerPacedSlice: pacing does not change that.
func TestNoAllocationPerPacedSlice(t *testing.T) {
	l, _ := linked(t, pace.Config{Capacity: 1e9})
	allocs := func(n int) float64 {
		d := desc(t, n, 8, 1000)
		target(t, d, 0, nil)
		f := newFake(d)
		f.into = true // the fallback's pool drops buffers under the race detector
		y := schedule(t, New(f, Config{Link: l}), d)
		defer func() { _ = y.Close() }()
		w := newPlain(int(d.Target.Length))
		return testing.AllocsPerRun(5, func() {
			if _, err := y.DeliverInto(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		})
	}
	if small, large := allocs(8), allocs(800); large > small+8 {
		t.Errorf("%v allocations for 64 slices, %v for 6400", small, large)
	}
}

// TestFaultWhileOthersWaitForLeave: a worker whose read fails does not wait for
// those that the link holds back for years, and neither does its client.
func TestFaultWhileOthersWaitForLeave(t *testing.T) {
	manyWorkers(t)
	l, err := pace.New(pace.Config{Capacity: 1, Policy: bwsched.Equal{}}) // on the system's clock
	if err != nil {
		t.Fatal(err)
	}
	d := desc(t, 40, 3, storage.BlockSize)
	target(t, d, 0, nil)
	f := newFake(d)
	f.failAt = 1
	f.onRead = func(int64, storage.ReadHint) {
		for l.Stats().Waiting < 3 { // all the others
			time.Sleep(time.Millisecond)
		}
	}
	dl := New(f, Config{Workers: 4, Link: l})
	y := schedule(t, dl, d)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err = y.DeliverInto(ctx, transporttest.NewMemory(int(d.Target.Length))); !errors.Is(err, errFault) || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
	_ = y.Close()
	idle(t, dl, f)
	left(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
