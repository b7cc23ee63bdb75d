package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/sim"
	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// Tenants runs the ObjectCache paper's workloads A, B and C (§5.7) against a
// store whose link is shared by one policy after another, and compares what
// the prefills lose with what Eq. 3 predicts.
type Tenants struct {
	Workloads []string // names, of sim.Workloads
	Policies  []string // names, of bwsched.Names
	Transport string   // "stream" or "shm"
	Rounds    int
	// Scale divides the paper's bytes and caps: every time stays what it was.
	// Speed divides bytes and times: every rate stays what it was. Their
	// product divides 128, so that chunks stay whole.
	Scale, Speed int
	MarginGbps   float64       // of cal-stall-opt, before Scale
	Epoch        time.Duration // of the policies that hold rates, before Speed
	// Start stops the store if it runs, and starts it on the same data with a
	// link of that many bytes per second; 0: with none.
	Start    func(ctx context.Context, link float64, policy string, margin float64, epoch time.Duration) (Target, error)
	Command  string
	Progress func(title string, total int64) Progress
}

// tenantTokens is G here: chunks of 64 KiB a layer.
const tenantTokens = 16

// apart is by how much one request is sent after the one before it: together,
// as people see it, but in an order that the prediction knows.
const apart = time.Millisecond

// tenant is one request of a workload, cut down to size.
type tenant struct {
	sim.Request
	chunks int
}

// load is a workload, cut down to size.
type load struct {
	sim.Workload
	tenants []tenant
}

// Run runs it all: rounds of all policies on all workloads, taking turns.
func (b *Tenants) Run(ctx context.Context) (*TenantsReport, error) {
	loads, err := b.loads()
	if err != nil {
		return nil, err
	}
	r := &TenantsReport{
		Command: b.Command, Machine: ThisMachine(), Transport: b.Transport, Rounds: b.Rounds, Scale: b.Scale, Speed: b.Speed,
		MarginGbps: b.MarginGbps / float64(b.Scale), EpochMs: millis(b.epoch()),
		GPU: "a timer: the compute windows are the paper's for an A100, and no byte is copied to a GPU",
	}
	if r.Workloads, err = b.predict(loads); err != nil {
		return nil, err
	}
	keys, err := b.store(ctx, loads)
	if err != nil {
		return nil, err
	}
	bar := b.Progress("running the workloads", int64(b.Rounds*len(loads)*(len(b.Policies)+1)))
	defer bar.Done()
	for round := range b.Rounds {
		for i, w := range loads {
			runs := r.Workloads[i].runs()
			for k := range runs {
				p := runs[(k+round)%len(runs)] // in each round, another policy comes first
				played, err := b.run(ctx, w, p.Name, keys, round == 0)
				if err != nil {
					return nil, fmt.Errorf("workload %s, %s, round %d: %w", w.Name, p.Name, round, err)
				}
				p.add(w, played)
				bar.Add(1)
			}
		}
	}
	r.finish()
	return r, nil
}

// Check reports what is wrong with the fields. Run does too, but a caller may
// want to know before there is a store.
func (b *Tenants) Check() error {
	_, err := b.loads()
	return err
}

func (b *Tenants) epoch() time.Duration { return b.Epoch / time.Duration(b.Speed) }

// loads are the workloads asked for, scaled.
func (b *Tenants) loads() (loads []load, err error) {
	switch {
	case b.Rounds <= 0:
		return nil, fmt.Errorf("rounds must be positive, not %d", b.Rounds)
	case b.Scale <= 0 || b.Speed <= 0 || 128%(b.Scale*b.Speed) != 0:
		return nil, fmt.Errorf("scale times speed must divide 128: %d times %d does not", b.Scale, b.Speed)
	case b.Transport != overStream && b.Transport != overShm:
		return nil, fmt.Errorf("transport %q: it is %s or %s", b.Transport, overStream, overShm)
	case b.epoch() <= 0:
		return nil, fmt.Errorf("an epoch of %v", b.Epoch)
	case len(b.Workloads) == 0 || len(b.Policies) == 0:
		return nil, errors.New("workloads and policies: one of each at least")
	}
	for _, name := range b.Policies {
		if _, err := bwsched.ByName(name, b.margin()); err != nil {
			return nil, err
		}
	}
	all := sim.Workloads()
	for _, name := range b.Workloads {
		i := slices.IndexFunc(all, func(w sim.Workload) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no workload %q: there are A, B and C", name)
		}
		l := load{Workload: all[i].Scale(1 / float64(b.Scale))}
		for k := range l.Requests {
			q := &l.Requests[k]
			q.LayerBytes /= float64(b.Speed)
			q.Compute /= time.Duration(b.Speed)
			q.Arrive = time.Duration(k) * apart / time.Duration(b.Speed)
			l.tenants = append(l.tenants, tenant{*q, int(q.LayerBytes) / (tenantTokens * modelTokenBytes)})
		}
		loads = append(loads, l)
	}
	return loads, nil
}

func (b *Tenants) margin() float64 { return b.MarginGbps * sim.Gbps / float64(b.Scale) }

// predict makes the report's rows with what Eq. 3 says of each.
func (b *Tenants) predict(loads []load) ([]*WorkloadReport, error) {
	var out []*WorkloadReport
	for _, w := range loads {
		wr := &WorkloadReport{Name: w.Name, CapGbps: w.Capacity / sim.Gbps, NoLimit: &PolicyReport{}}
		for _, q := range w.Requests {
			wr.ComputeMs += millis(q.Compute) * float64(q.Layers)
		}
		together := slices.Clone(w.Requests)
		for i := range together {
			together[i].Arrive = 0
		}
		for _, name := range b.Policies {
			policy, err := bwsched.ByName(name, b.margin())
			if err != nil {
				return nil, err
			}
			res, err := sim.Run(w.Requests, sim.Options{Capacity: w.Capacity, Policy: policy, Epoch: b.epoch()})
			if err != nil {
				return nil, err
			}
			batch, err := sim.Run(together, sim.Options{Capacity: w.Capacity, Policy: policy})
			if err != nil {
				return nil, err
			}
			p := &PolicyReport{Name: name}
			for _, one := range batch {
				p.PredictedBatch += 1000 * one.Added
			}
			for i, one := range res {
				p.Requests = append(p.Requests, TenantReport{Name: w.Requests[i].Name, Predicted: 1000 * one.Added})
				p.Predicted += 1000 * one.Added
			}
			wr.Policies = append(wr.Policies, p)
		}
		for _, q := range w.Requests {
			wr.NoLimit.Requests = append(wr.NoLimit.Requests, TenantReport{Name: q.Name})
		}
		out = append(out, wr)
	}
	return out, nil
}

// store stores the chunks of the longest prefix, of which all others are
// prefixes.
func (b *Tenants) store(ctx context.Context, loads []load) ([]string, error) {
	t, err := b.Start(ctx, 0, "", 0, 0)
	if err != nil {
		return nil, err
	}
	c, err := connect(t)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &Layerwise{Geometry: Geometry{Layers: modelLayers, Slice: tenantTokens * modelTokenBytes}, Progress: b.Progress}
	for _, w := range loads {
		for _, q := range w.tenants {
			s.Chunks = max(s.Chunks, q.chunks)
		}
	}
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	return keys, s.fill(ctx, c, keys)
}

// connect makes a client that stores fast.
func connect(t Target) (*client.Client, error) {
	return client.New(client.Config{
		Endpoint: t.Endpoint, AccessKey: t.AccessKey, SecretKey: t.SecretKey, Bucket: t.Bucket,
		UnsignedPayload: true, // storing is not what is measured
	})
}

// seat is one tenant's client and memory.
type seat struct {
	tenant
	c    *client.Client
	mem  []byte
	get  delivery
	free func() error
}

// run starts the store under a policy ("": no limit) and plays all requests of
// a workload at it, each by a client of its own.
func (b *Tenants) run(ctx context.Context, w load, policy string, keys []string, check bool) (_ []Played, err error) {
	link, margin, epoch := w.Capacity, b.margin(), b.epoch()
	if policy == "" {
		link, margin, epoch = 0, 0, 0
	}
	t, err := b.Start(ctx, link, policy, margin, epoch)
	if err != nil {
		return nil, err
	}
	seats := make([]*seat, 0, len(w.tenants))
	defer func() {
		for _, s := range seats {
			err = errors.Join(err, s.free())
			s.c.Close()
		}
	}()
	for _, q := range w.tenants {
		s, err := b.seat(ctx, t, q, keys)
		if err != nil {
			return nil, err
		}
		seats = append(seats, s)
	}
	played, err := playTogether(ctx, seats)
	if err != nil || !check {
		return played, err
	}
	for _, s := range seats {
		if err := verifyLayers(s.mem, Geometry{s.chunks, s.Layers, tenantTokens * modelTokenBytes}); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return played, nil
}

// seat makes a tenant's client and memory, and opens its connection.
func (b *Tenants) seat(ctx context.Context, t Target, q tenant, keys []string) (*seat, error) {
	c, err := connect(t)
	if err != nil {
		return nil, err
	}
	s := &seat{tenant: q, c: c}
	req := client.GetRequest{
		Keys: keys[:q.chunks], NumLayers: q.Layers, PerLayerChunkBytes: tenantTokens * modelTokenBytes, ChunkTokens: tenantTokens,
		Delivery: descriptor.Layer, LayerComputeMicros: float64(q.Compute) / float64(time.Microsecond),
	}
	if n, err := c.Match(ctx, req.Keys); err != nil || n != q.chunks {
		c.Close()
		return nil, errors.Join(err, fmt.Errorf("%d of %d chunks are in the store", n, q.chunks))
	}
	mem, shared, free, err := playMemory(ctx, c, int64(q.LayerBytes)*int64(q.Layers), b.Transport == overShm)
	if err != nil {
		c.Close()
		return nil, err
	}
	s.mem, s.free = mem, free
	if shared != nil {
		s.get = intoShared(c, req, shared)
	} else {
		req.Into = mem
		s.get = intoBody(c, req)
	}
	return s, nil
}

// playTogether plays the prefills of all seats, each from its time of arrival.
func playTogether(ctx context.Context, seats []*seat) ([]Played, error) {
	g, ctx := errgroup.WithContext(ctx)
	played := make([]Played, len(seats))
	var ready sync.WaitGroup
	ready.Add(len(seats))
	var start time.Time
	var once sync.Once
	for i, s := range seats {
		g.Go(func() (err error) {
			windows := make([]time.Duration, s.Layers)
			for l := range windows {
				windows[l] = s.Compute
			}
			onGPUThread(func() {
				ready.Done()
				ready.Wait()
				once.Do(func() { start = time.Now().Add(apart) })
				gpuTimer{}.SleepUntil(start.Add(s.Arrive))
				played[i], err = play(ctx, gpuTimer{}, windows, s.get)
			})
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Name, err)
			}
			return err
		})
	}
	return played, g.Wait()
}
