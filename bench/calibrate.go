package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/profile"
	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// Calibrate finds out about a deployment what its server cannot know: the
// payload from which layerwise delivery pays (ObjectCache, Eq. 2), and how TTFT
// answers to the rate that a request is given (§5.7, Figure 15). It plays
// prefills of Llama 3.1 8B in chunks of 16 tokens; a timer stands for the GPU.
type Calibrate struct {
	MaxPayload int64     // of the sweep of sizes, bytes
	Contexts   []int     // of the requests whose answer to rates is measured
	Hits       []float64 // of the same, percent
	Transport  string    // "stream" or "shm"
	Rounds     int
	Memory     int64 // that may be taken, in bytes: page cache and the client's buffer
	// Start returns the store to measure, with its link held to so many bytes
	// per second; 0: not held. HoldsLink says whether it can hold one: if not,
	// no rates are swept.
	Start     func(ctx context.Context, link float64) (Target, error)
	HoldsLink bool
	Keep      bool // leave the chunks in the bucket
	Command   string
	Progress  func(title string, total int64) Progress
}

const (
	grain      = 16 // tokens per chunk
	grainSlice = grain * modelTokenBytes
	grainChunk = modelLayers * grainSlice
)

// rateFactors are the rates of the sweep, in zero-stall rates: close to it,
// where the knee is, and to both sides of it.
var rateFactors = []float64{0.6, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2}

// Check reports what is wrong with the fields. Run does too, but a caller may
// want to know before there is a store.
func (b *Calibrate) Check() error {
	switch {
	case b.Rounds <= 0:
		return fmt.Errorf("rounds must be positive, not %d", b.Rounds)
	case b.MaxPayload < grainChunk:
		return fmt.Errorf("payloads up to %s: one chunk has %s", byteSize(b.MaxPayload), byteSize(grainChunk))
	case 2*b.MaxPayload > b.Memory:
		return fmt.Errorf("payloads up to %s need twice as much memory, %s may be used", byteSize(b.MaxPayload), byteSize(b.Memory))
	}
	t := TTFT{Contexts: b.Contexts, Hits: b.Hits, Grains: []int{grain}, Transports: []string{b.Transport}, Rounds: 1, Scale: 1}
	return t.Check()
}

// Run sweeps sizes, then rates.
func (b *Calibrate) Run(ctx context.Context) (_ *CalibrateReport, err error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	r := &CalibrateReport{Command: b.Command, Machine: ThisMachine(), Transport: b.Transport, Rounds: b.Rounds,
		GPU: "a timer: the compute windows are those of an A100"}
	chunks := int(b.MaxPayload / grainChunk)
	classes := b.classes(r)
	for _, p := range classes {
		chunks = max(chunks, p.Chunks)
	}
	keys, err := (&Layerwise{Geometry: Geometry{chunks, modelLayers, grainSlice}}).keys()
	if err != nil {
		return nil, err
	}
	if err := b.store(ctx, keys); err != nil {
		return nil, err
	}
	if !b.Keep {
		defer func() { err = errors.Join(err, b.remove(ctx, keys)) }()
	}
	if err := b.sizes(ctx, keys, r); err != nil {
		return nil, err
	}
	for _, p := range classes {
		p.keys = keys[:p.Chunks]
		if err := b.rates(ctx, p, r); err != nil {
			return nil, err
		}
	}
	r.finish()
	return r, nil
}

// classes are the requests to sweep rates for.
func (b *Calibrate) classes(r *CalibrateReport) (ps []prefix) {
	if !b.HoldsLink {
		r.Note = "Rates were not swept: only the link of a store that calibrate starts itself can be held."
		return nil
	}
	t := TTFT{Contexts: b.Contexts, Hits: b.Hits, Scale: 1}
	for _, p := range t.prefixes(grain) {
		if need := 2 * p.Payload(); need > b.Memory {
			r.Curves = append(r.Curves, CurveReport{Class: p.class(), Skipped: fmt.Sprintf("needs %s of memory, %s may be used", byteSize(need), byteSize(b.Memory))})
			continue
		}
		ps = append(ps, p)
	}
	return ps
}

// class is the name of the kind of request, as Table A8's configurations have it.
func (w Window) class() string { return fmt.Sprintf("%s,%v%%", tokens(w.Context), w.Hit) }

func (b *Calibrate) store(ctx context.Context, keys []string) error {
	s, err := b.open(ctx, 0, 0)
	if err != nil {
		return err
	}
	fill := &Layerwise{Geometry: Geometry{len(keys), modelLayers, grainSlice}, Progress: b.Progress}
	return errors.Join(fill.fill(ctx, s.c, keys), s.close())
}

// remove drops the chunks, also when ctx has ended.
func (b *Calibrate) remove(ctx context.Context, keys []string) error {
	s, err := b.open(context.WithoutCancel(ctx), 0, 0)
	if err != nil {
		return err
	}
	return errors.Join(removeAll(s.c, keys), s.close())
}

// opened is a client of the store with memory for layers.
type opened struct {
	c     *client.Client
	mem   []byte
	share *client.Buffer // whose memory mem is; nil without shared memory
	free  func() error
}

// open starts the store and makes a client with n bytes of memory.
func (b *Calibrate) open(ctx context.Context, link float64, n int64) (*opened, error) {
	t, err := b.Start(ctx, link)
	if err != nil {
		return nil, err
	}
	c, err := connect(t)
	if err != nil {
		return nil, err
	}
	o := &opened{c: c, free: func() error { return nil }}
	if n > 0 {
		if o.mem, o.share, o.free, err = playMemory(ctx, c, n, b.Transport == overShm); err != nil {
			c.Close()
			return nil, fmt.Errorf("memory for %s of payload: %w", byteSize(n), err)
		}
	}
	return o, nil
}

func (o *opened) close() error {
	err := o.free()
	o.c.Close()
	return err
}

// get is the delivery of a prefix.
func (o *opened) get(keys []string, mode descriptor.Mode, compute time.Duration) delivery {
	req := client.GetRequest{
		Keys: keys, NumLayers: modelLayers, PerLayerChunkBytes: grainSlice, ChunkTokens: grain, Delivery: mode,
		LayerComputeMicros: float64(compute) / float64(time.Microsecond),
	}
	if o.share != nil {
		return intoShared(o.c, req, o.share)
	}
	req.Into = o.mem[:int64(len(keys))*grainChunk]
	return intoBody(o.c, req)
}

// sizes plays prefixes of 1, 2, 4, ... chunks layerwise and chunkwise. Their
// windows are those of a context of which 87.5 % are cached, by the law of
// prefill: the hit rate of §5 that leaves the least to hide behind.
func (b *Calibrate) sizes(ctx context.Context, keys []string, r *CalibrateReport) (err error) {
	var counts []int
	for n := 1; int64(n)*grainChunk <= b.MaxPayload; n *= 2 {
		counts = append(counts, n)
	}
	o, err := b.open(ctx, 0, int64(counts[len(counts)-1])*grainChunk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	rounds := 4 * b.Rounds // they are short
	bar := b.Progress("sweeping payload sizes", int64(rounds*len(counts)*2))
	defer bar.Done()
	rows := make([]SizeReport, len(counts))
	for i, n := range counts {
		cached := float64(n * grain)
		window := lawWindow(cached/0.875, cached) / modelLayers
		rows[i] = SizeReport{Chunks: n, PayloadBytes: int64(n) * grainChunk, ComputeUs: float64(window) / float64(time.Microsecond)}
		for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
			clear(o.mem)
			if err := o.get(keys[:n], mode, window)(ctx, func(int) {}); err != nil {
				return err
			}
			if err := verifyLayers(o.mem, Geometry{n, modelLayers, grainSlice}); err != nil {
				return fmt.Errorf("%s: %w", mode, err)
			}
		}
	}
	for round := range rounds {
		for i, n := range counts {
			window := time.Duration(rows[i].ComputeUs * float64(time.Microsecond))
			times := make(map[descriptor.Mode]time.Duration, 2)
			modes := []descriptor.Mode{descriptor.Layer, descriptor.Chunk}
			for k := range modes {
				mode := modes[(k+round)%2]
				p, err := playAlike(ctx, window, o.get(keys[:n], mode, window))
				if err != nil {
					return fmt.Errorf("%d chunks: %w", n, err)
				}
				times[mode] = p.TTFT
				bar.Add(1)
			}
			rows[i].add(times[descriptor.Layer], times[descriptor.Chunk])
		}
	}
	r.Sizes = rows
	return nil
}

// playAlike plays a prefill whose layers all compute for window.
func playAlike(ctx context.Context, window time.Duration, get delivery) (p Played, err error) {
	windows := slices.Repeat([]time.Duration{window}, modelLayers)
	onGPUThread(func() { p, err = play(ctx, gpuTimer{}, windows, get) })
	return p, err
}

// rates plays one kind of request at rates around its zero-stall rate, the
// rates taking turns.
func (b *Calibrate) rates(ctx context.Context, p prefix, r *CalibrateReport) error {
	row := CurveReport{
		Class: p.class(), ComputeUs: float64(p.Layer()) / float64(time.Microsecond), LayerBytes: p.LayerBytes(), ZeroStall: p.Required(),
	}
	top, err := b.one(ctx, p, 0)
	if err != nil {
		return err
	}
	last := modelLayers - 1
	row.Top = 1e9 * gbps(p.LayerBytes()*int64(last), top.Ready[last]-top.Ready[0])
	// A held link must be what holds the request back, and a knee is seen from
	// above only.
	if highest := 0.9 * row.Top; highest < 1.25*row.ZeroStall {
		row.Skipped = fmt.Sprintf("hiding its transfers takes %.2f GB/s and the transport has %.2f: there is nothing above the knee to see",
			row.ZeroStall/1e9, row.Top/1e9)
		r.Curves = append(r.Curves, row)
		return nil
	}
	for _, f := range rateFactors {
		if rate := f * row.ZeroStall; rate <= 0.9*row.Top {
			row.Points = append(row.Points, PointReport{Rate: rate, Eq3: bwsched.Added(rate, bwsched.Request{
				LayerBytes: float64(p.LayerBytes()), Compute: p.Layer(), Layers: modelLayers})})
		}
	}
	bar := b.Progress(p.title("sweeping rates of"), int64(b.Rounds*len(row.Points)))
	defer bar.Done()
	for round := range b.Rounds {
		for k := range row.Points {
			point := &row.Points[(k+round)%len(row.Points)]
			played, err := b.one(ctx, p, point.Rate)
			if err != nil {
				return fmt.Errorf("%s at %.3f GB/s: %w", row.Class, point.Rate/1e9, err)
			}
			point.Raw = append(point.Raw, max(0, (played.TTFT-modelLayers*p.Layer()).Seconds()))
			bar.Add(1)
		}
	}
	r.Curves = append(r.Curves, row)
	return nil
}

// one plays a request on a link held to a rate, and checks its bytes if it is
// not held.
func (b *Calibrate) one(ctx context.Context, p prefix, rate float64) (_ Played, err error) {
	o, err := b.open(ctx, rate, p.Payload())
	if err != nil {
		return Played{}, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	// The first answer of a connection is no slower than others.
	if n, err := o.c.Match(ctx, p.keys); err != nil || n != p.Chunks {
		return Played{}, errors.Join(err, fmt.Errorf("%d of %d chunks are in the store", n, p.Chunks))
	}
	played, err := playAlike(ctx, p.Layer(), o.get(p.keys, descriptor.Layer, p.Layer()))
	if err == nil && rate == 0 {
		err = verifyLayers(o.mem, p.Geometry)
	}
	return played, err
}

// Profile is what a server is to know of it.
func (r *CalibrateReport) Profile() *profile.Profile {
	p := &profile.Profile{Version: profile.Version, ModeThreshold: r.Threshold, Margin: r.Margin,
		Note: fmt.Sprintf("measured over %s on %s, %d cores; compute windows of Llama 3.1 8B on an A100 80GB", r.Transport, r.Machine.CPU, r.Machine.Cores)}
	// Sizes tell Table A8's configurations apart. A class that was measured may
	// have the size of one of them; it comes after, so that it is taken for
	// requests alone that say how long they compute.
	for _, w := range Windows() {
		if w.Source == "A8" {
			p.Windows = append(p.Windows, profile.Window{
				Class: w.class(), Layers: modelLayers, LayerBytes: w.LayerBytes(), ComputeUs: float64(w.Layer()) / float64(time.Microsecond),
			})
		}
	}
	for _, c := range r.Curves {
		if len(c.Points) > 0 && !slices.ContainsFunc(p.Windows, func(w profile.Window) bool { return w.Class == c.Class }) {
			p.Windows = append(p.Windows, profile.Window{Class: c.Class, Layers: modelLayers, LayerBytes: c.LayerBytes, ComputeUs: c.ComputeUs})
		}
		for _, point := range c.Points {
			for _, added := range point.Raw {
				if p.Curves == nil {
					p.Curves = &bwsched.Curves{}
				}
				p.Curves.Observe(c.Class, point.Rate, added)
			}
		}
	}
	return p
}
