package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// TTFT plays prefills of Llama 3.1 8B whose cached prefix comes from the store,
// and compares their time to first token with the optimal local layerwise one
// and with chunkwise delivery (ObjectCache, §5.5, Figure 13). A timer stands
// for the GPU.
type TTFT struct {
	Contexts   []int     // tokens
	Hits       []float64 // percent cached
	Grains     []int     // G, tokens per chunk
	Transports []string  // "stream" and "shm"; with shm the store is on this host and has a socket for it
	Rounds     int       // of the longest context; see rounds
	Scale      int       // 1: as in the paper; k: k times fewer bytes to the same compute windows
	Link       int64     // the store's --link-rate in bytes per second, 0 if it has none: for the report
	Keep       bool      // leave the chunks in the bucket
	Command    string
	Target     Target
	Progress   func(title string, total int64) Progress
	// Memory is what may be taken, in bytes: page cache and the client's
	// buffer. Prefixes that need more are skipped, which the report says.
	Memory int64
}

// The transports.
const (
	overStream = "stream"
	overShm    = "shm"
)

// Run runs it all: for each G it stores the longest prefix once, checks every
// byte of every way to deliver it, and plays the rounds of one context and hit
// rate after the other, the ways taking turns.
func (b *TTFT) Run(ctx context.Context) (*TTFTReport, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	r := &TTFTReport{
		Command: b.Command, Machine: ThisMachine(), Model: "Llama 3.1 8B, 32 layers, 4096 bytes per token and layer",
		GPU:    "a timer: the compute windows are the paper's for an A100, and no byte is copied to a GPU",
		Rounds: b.Rounds, Scale: b.Scale, LinkBytesPerSecond: b.Link,
	}
	c, err := connect(b.Target)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	watch := watchMemory(b.Target.PID)
	defer watch.stop()
	for _, g := range b.Grains {
		if err := b.grain(ctx, c, g, r); err != nil {
			return nil, err
		}
	}
	r.ServerRSSAnonPeak = watch.stop()
	return r, nil
}

// Check reports what is wrong with the fields. Run does too, but a caller may
// want to know before there is a store.
func (b *TTFT) Check() error {
	switch {
	case b.Rounds <= 0 || b.Scale <= 0:
		return fmt.Errorf("rounds and scale must be positive, not %d and %d", b.Rounds, b.Scale)
	case len(b.Contexts) == 0 || len(b.Hits) == 0 || len(b.Grains) == 0 || len(b.Transports) == 0:
		return errors.New("contexts, hit rates, chunk sizes and transports: one of each at least")
	}
	for _, t := range b.Transports {
		if t != overStream && t != overShm {
			return fmt.Errorf("transport %q: it is %s or %s", t, overStream, overShm)
		}
	}
	for _, g := range b.Grains {
		if g <= 0 || g > 1<<14 {
			return fmt.Errorf("chunks of %d tokens: they have 1 to 16384", g)
		}
	}
	for _, n := range b.Contexts {
		for _, hit := range b.Hits {
			if _, ok := findWindow(n, hit); !ok {
				return fmt.Errorf("no compute window is known for %d tokens and a hit rate of %v %%", n, hit)
			}
		}
	}
	return nil
}

func findWindow(context int, hit float64) (Window, bool) {
	ws := Windows()
	i := slices.IndexFunc(ws, func(w Window) bool { return w.Context == context && w.Hit == hit })
	if i < 0 {
		return Window{}, false
	}
	return ws[i], true
}

// prefix is one configuration: the chunks of a cached prefix and the time to
// compute the rest.
type prefix struct {
	Window
	Geometry
	g    int
	keys []string
}

// prefixes are the configurations of one G, those with the fewest chunks first.
func (b *TTFT) prefixes(g int) []prefix {
	var ps []prefix
	for _, n := range b.Contexts {
		for _, hit := range b.Hits {
			w, _ := findWindow(n, hit) // Check has found it
			ps = append(ps, prefix{Window: w, g: g, Geometry: Geometry{
				Chunks: w.Cached() / b.Scale / g, Layers: modelLayers, Slice: int64(g) * modelTokenBytes,
			}})
		}
	}
	slices.SortStableFunc(ps, func(a, b prefix) int { return a.Chunks - b.Chunks })
	return ps
}

// grain measures every configuration of one G. All prefixes are prefixes of
// the longest, so its chunks are stored once and removed at the end.
func (b *TTFT) grain(ctx context.Context, c *client.Client, g int, r *TTFTReport) (err error) {
	var todo []prefix
	for _, p := range b.prefixes(g) {
		switch need := 2 * p.Payload(); { // in the page cache and in the buffer
		case p.Chunks == 0:
			r.skip(p, fmt.Sprintf("less than one chunk at scale %d", b.Scale))
		case need > b.Memory:
			r.skip(p, fmt.Sprintf("needs %s of memory, %s may be used", byteSize(need), byteSize(b.Memory)))
		default:
			todo = append(todo, p)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	longest := todo[len(todo)-1]
	store := &Layerwise{Geometry: longest.Geometry, Progress: b.Progress}
	keys, err := store.keys()
	if err != nil {
		return err
	}
	if !b.Keep {
		defer func() { err = errors.Join(err, removeAll(c, keys)) }()
	}
	if err := store.fill(ctx, c, keys); err != nil {
		return err
	}
	dst, shared, free, err := playMemory(ctx, c, longest.Payload(), slices.Contains(b.Transports, overShm))
	if err != nil {
		return fmt.Errorf("memory for %s of payload: %w", byteSize(longest.Payload()), err)
	}
	defer func() { err = errors.Join(err, free()) }()

	for _, p := range todo {
		p.keys = keys[:p.Chunks]
		ways := b.ways(c, p, dst, shared)
		if err := b.check(ctx, p, ways, dst); err != nil {
			return err
		}
		rounds, err := b.measure(ctx, p, ways)
		if err != nil {
			return err
		}
		r.add(p, ways, rounds)
	}
	return nil
}

// playMemory makes n bytes of memory for layers, with its pages in place: a
// registered buffer if shared memory is measured.
func playMemory(ctx context.Context, c *client.Client, n int64, shm bool) (dst []byte, shared *client.Buffer, free func() error, err error) {
	if shm {
		if shared, err = c.Register(ctx, n); err != nil {
			return nil, nil, nil, err
		}
		return shared.Bytes(), shared, shared.Close, nil
	}
	dst, err = unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	return dst, nil, func() error { return unix.Munmap(dst) }, err
}

// way is one way to get a prefix.
type way struct {
	name      string
	transport string // "" for the local one
	mode      descriptor.Mode
	plain     bool // deliver only, compute nothing: it is how fast the transport is
	deliver   delivery
}

// ways are those of one prefix, the baseline first.
func (b *TTFT) ways(c *client.Client, p prefix, dst []byte, shared *client.Buffer) []way {
	ws := []way{{name: "opt-local-LW", mode: descriptor.Layer, deliver: local(p.Layers)}}
	for _, t := range b.Transports {
		deliver := func(mode descriptor.Mode) delivery {
			req := client.GetRequest{
				Keys: p.keys, NumLayers: p.Layers, PerLayerChunkBytes: p.Slice, ChunkTokens: p.g, Delivery: mode,
				LayerComputeMicros: float64(p.Layer()) / float64(time.Microsecond),
			}
			if t == overShm {
				return intoShared(c, req, shared)
			}
			req.Into = dst[:p.Payload()]
			return intoBody(c, req)
		}
		ws = append(ws,
			way{t + " layerwise", t, descriptor.Layer, false, deliver(descriptor.Layer)},
			way{t + " layerwise, delivery only", t, descriptor.Layer, true, deliver(descriptor.Layer)},
			way{t + " chunkwise", t, descriptor.Chunk, false, deliver(descriptor.Chunk)},
		)
	}
	return ws
}

// intoBody delivers by a response body.
func intoBody(c *client.Client, req client.GetRequest) delivery {
	return func(ctx context.Context, ready func(int)) error {
		ls, err := c.GetLayers(ctx, req)
		if err != nil {
			return err
		}
		if !ls.Native() {
			ls.Close()
			return errors.New("the store has no layerwise GET")
		}
		for l, err := range ls.All() {
			if err != nil {
				return err
			}
			ready(l.Index)
		}
		return nil
	}
}

// intoShared delivers into shared memory.
func intoShared(c *client.Client, req client.GetRequest, buf *client.Buffer) delivery {
	return func(ctx context.Context, ready func(int)) error {
		tr, err := c.GetLayersInto(ctx, req, buf, descriptor.Target{})
		if err != nil {
			return err
		}
		defer tr.Close()
		for l := range req.NumLayers {
			if err := tr.WaitLayer(ctx, l); err != nil {
				return err
			}
			ready(l)
		}
		_, err = tr.Wait(ctx)
		return err
	}
}

// check gets the prefix in every way and compares every byte.
func (b *TTFT) check(ctx context.Context, p prefix, ways []way, dst []byte) error {
	bar := b.Progress(p.title("checking every byte of"), int64(len(ways)))
	defer bar.Done()
	for _, w := range ways {
		if w.transport != "" && !w.plain {
			clear(dst[:p.Payload()]) // nothing left of the way before may pass for this one's
			if err := w.deliver(ctx, func(int) {}); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if err := verifyLayers(dst, p.Geometry); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		bar.Add(1)
	}
	return nil
}

// verifyLayers compares a layer-major payload with the generator's, all cores
// at it.
func verifyLayers(dst []byte, g Geometry) error {
	var work errgroup.Group
	work.SetLimit(runtime.NumCPU())
	for l := range g.Layers {
		work.Go(func() error {
			for j := range g.Chunks {
				p := dst[(int64(l)*int64(g.Chunks)+int64(j))*g.Slice:][:g.Slice]
				if k := badByte(p, sliceSeed(uint64(j), l)); k >= 0 {
					return fmt.Errorf("wrong byte: layer %d, chunk %d, offset %d", l, j, k)
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// rounds is how often a context is played: a short prefill is over before the
// machine's mood has changed, and costs little, so it is played more often.
func (b *TTFT) rounds(context int) int { return b.Rounds * min(max(64<<10/context, 1), 5) }

// measure plays the rounds. In each, another way comes first.
func (b *TTFT) measure(ctx context.Context, p prefix, ways []way) (rounds [][]Played, err error) {
	n := b.rounds(p.Context)
	bar := b.Progress(p.title("playing"), int64(n*len(ways)))
	defer bar.Done()
	windows := make([]time.Duration, p.Layers)
	for l := range windows {
		windows[l] = p.Layer()
	}
	runtime.GC() // what came before is not to be collected during a round
	rounds = make([][]Played, len(ways))
	for r := range n {
		for k := range ways {
			i := (k + r) % len(ways)
			played, err := b.play(ctx, ways[i], windows)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", ways[i].name, r, err)
			}
			rounds[i] = append(rounds[i], played)
			bar.Add(1)
		}
	}
	return rounds, nil
}

func (b *TTFT) play(ctx context.Context, w way, windows []time.Duration) (p Played, err error) {
	if w.plain {
		windows = make([]time.Duration, len(windows))
	}
	onGPUThread(func() { p, err = play(ctx, gpuTimer{}, windows, w.deliver) })
	return p, err
}

// title is for progress bars.
func (p prefix) title(what string) string {
	return fmt.Sprintf("%s %s tokens, %v %%, G=%d", what, tokens(p.Context), p.Hit, p.g)
}

// tokens is a number of tokens for people.
func tokens(n int) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%dK", n/1024)
	}
	return fmt.Sprint(n)
}
