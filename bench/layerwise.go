// Package bench holds the workloads of `objcached bench`. Each prints its
// figures beside the machine's own limit, measured in the same run, and checks
// the bytes it was given.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/fabric"
)

// Target is the store to measure.
type Target struct {
	Endpoint  string
	AccessKey string
	SecretKey string
	Bucket    string // made if it does not exist
	PID       int    // of the server, if it was started here: its memory is reported
}

// Layerwise compares five ways to get the same bytes, or seven.
type Layerwise struct {
	Geometry
	// Shm adds delivery into shared memory, and its own limit: the store runs
	// on this host and has a socket for it. All ways then end in that memory.
	Shm bool
	// Fabric, if it has a provider, is in place of Shm: delivery over libfabric.
	Fabric      Fabric
	Rounds      int
	Concurrency int      // of the plain S3 GETs
	Dir         string   // for the bare loops' file
	Keep        bool     // leave the chunks in the bucket
	Skip        []string // keys of things to leave out
	Command     string   // for the report
	Target      Target
	// StartBare starts a BareHandler on a file in the same arrangement as the
	// server under test.
	StartBare func(ctx context.Context, file string, g Geometry) (BareServer, error)
	Progress  func(title string, total int64) Progress
}

// Progress shows how far a stage is.
type Progress interface {
	Add(n int64)
	Done()
}

// Sample is one run of one thing.
type Sample struct {
	Layer0, Total  time.Duration
	Client, Server time.Duration // processor time of the two processes
}

// thing is one of them.
type thing struct {
	key, name  string
	chunkMajor bool   // where the bytes end up in memory
	limit      string // key of the thing that is its own limit, if not the first two
	pid        int    // of the server that works for it; 0: none, or not to be told
	mem        []byte // where they end up if not in dst
	run        func(ctx context.Context, dst []byte) (Sample, error)
}

// Run runs it all. Every thing is first run once with every byte checked, then
// Rounds times, the things taking turns so that the machine's moods hit all of them.
func (b *Layerwise) Run(ctx context.Context) (_ *LayerwiseReport, err error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	d, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	report := &LayerwiseReport{
		Command: b.Command, Machine: ThisMachine(), Geometry: b.Geometry, Rounds: b.Rounds, Concurrency: b.Concurrency,
		PayloadBytes: b.Payload(), BareWriteBytes: d.bare.write, MarkedWriteBytes: d.marked.write,
	}
	things := []thing{
		{key: "memory", name: "bare limit in memory: pread + CRC32C", run: d.file.memory},
		{key: "bare-http", name: "bare limit over loopback HTTP", pid: d.server.PID, run: d.bare.get},
		{key: "bare-http-marked", name: "the same, the reader with a low-water mark", pid: d.server.PID, run: d.marked.get},
		{key: "layerwise", name: "layer-major body, client.GetLayers", limit: "bare-http-marked", pid: b.Target.PID, run: func(ctx context.Context, dst []byte) (Sample, error) {
			return b.layerwise(ctx, d.c, d.keys, dst, report)
		}},
		{key: "whole", name: "whole-object GETs, minio-go", chunkMajor: true, pid: b.Target.PID, run: d.whole},
		{key: "ranged", name: "ranged GETs per (layer, chunk), minio-go", pid: b.Target.PID, run: func(ctx context.Context, dst []byte) (Sample, error) {
			return b.ranged(ctx, d.core, d.keys, dst)
		}},
	}
	if d.shared != nil {
		limits := d.limitThings()
		into := thing{key: "layerwise-shm", name: "into shared memory, client.GetLayersInto", limit: limits[len(limits)-1].key, pid: b.Target.PID, run: d.agg}
		if d.fabric != nil {
			into.key, into.name = "layerwise-fabric", "over "+b.Fabric.Provider+", client.GetLayersInto"
		}
		things = append(append(things, limits...), into)
	}
	// The first two are what the table compares with.
	things = append(things[:2], slices.DeleteFunc(things[2:], func(t thing) bool { return slices.Contains(b.Skip, t.key) })...)
	if err := b.checkAll(ctx, things, d.dst); err != nil {
		return nil, err
	}
	watch := watchMemory(b.Target.PID)
	defer watch.stop()
	samples, err := b.measure(ctx, things, d.dst)
	if err != nil {
		return nil, err
	}
	report.ServerRSSAnonPeak = watch.stop()
	report.fill(things, samples)
	return report, nil
}

// threadsThing is the limit of what goes into shared memory.
func (d *bed) threadsThing() thing {
	n := runtime.NumCPU()
	return thing{key: "memory-threads", name: fmt.Sprintf("bare limit of shared memory: pread + CRC32C, %d threads", n),
		run: func(_ context.Context, dst []byte) (Sample, error) { return d.file.threads(dst, n) }}
}

// checkAll runs everything once and compares every byte.
func (b *Layerwise) checkAll(ctx context.Context, things []thing, dst []byte) error {
	bar := b.Progress("checking every byte", int64(len(things)))
	defer bar.Done()
	for _, t := range things {
		mem := dst
		if t.mem != nil {
			mem = t.mem
		}
		clear(mem) // nothing left of the thing before may pass for this one's
		if _, err := t.run(ctx, dst); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := b.verify(mem, t.chunkMajor); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		bar.Add(1)
	}
	return nil
}

// measure runs the rounds. In each, another thing comes first.
func (b *Layerwise) measure(ctx context.Context, things []thing, dst []byte) ([][]Sample, error) {
	bar := b.Progress("measuring", int64(b.Rounds*len(things)))
	defer bar.Done()
	samples := make([][]Sample, len(things))
	for r := range b.Rounds {
		for k := range things {
			i := (k + r) % len(things)
			runtime.GC() // nobody pays for what another left
			cpu := startCPU(things[i].pid)
			s, err := things[i].run(ctx, dst)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", things[i].name, r, err)
			}
			if client, server := cpu.stop(); s.Client == 0 { // else it knows better
				s.Client, s.Server = client, server
			}
			samples[i] = append(samples[i], s)
			bar.Add(1)
		}
	}
	return samples, nil
}

// agg is the layerwise GET into shared memory.
func (d *bed) agg(ctx context.Context, _ []byte) (Sample, error) {
	return d.layersInto(ctx, descriptor.Layer, descriptor.Target{})
}

// layersInto gets the prefix into shared memory.
func (d *bed) layersInto(ctx context.Context, mode descriptor.Mode, place descriptor.Target) (Sample, error) {
	var s Sample
	start := time.Now()
	tr, err := d.c.GetLayersInto(ctx, client.GetRequest{
		Keys: d.keys, NumLayers: d.b.Layers, PerLayerChunkBytes: d.b.Slice, Delivery: mode,
	}, d.shared, place)
	if err != nil {
		return s, err
	}
	defer tr.Close()
	for l := range d.b.Layers {
		if err := tr.WaitLayer(ctx, l); err != nil {
			return s, err
		}
		if l == 0 {
			s.Layer0 = time.Since(start)
		}
	}
	s.Total = time.Since(start)
	_, err = tr.Wait(ctx)
	return s, err
}

func (b *Layerwise) validate() error {
	if err := b.Geometry.validate(); err != nil {
		return err
	}
	if b.Rounds <= 0 || b.Concurrency <= 0 {
		return fmt.Errorf("rounds and concurrency must be positive, not %d and %d", b.Rounds, b.Concurrency)
	}
	return nil
}

func (b *Layerwise) clients() (*client.Client, *minio.Client, error) {
	t := b.Target
	c, err := client.New(client.Config{Endpoint: t.Endpoint, AccessKey: t.AccessKey, SecretKey: t.SecretKey, Bucket: t.Bucket,
		MemoryProvider: fabric.WireName(b.Fabric.Provider), FabricNode: b.Fabric.Node})
	if err != nil {
		return nil, nil, err
	}
	host, secure := strings.CutPrefix(t.Endpoint, "https://")
	plain, err := minio.New(strings.TrimPrefix(host, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(t.AccessKey, t.SecretKey, ""), Secure: secure, Region: "us-east-1",
	})
	return c, plain, err
}

// keys are real chunk keys of a prompt of N chunks: the geometry is part of
// the root, so runs of different geometry never meet.
func (b *Layerwise) keys() ([]string, error) {
	root := descriptor.Root{
		Model: "bench-layerwise", Revision: "pattern-1", DType: "bytes", NumLayers: b.Layers, PerLayerChunkBytes: b.Slice,
		Layout: descriptor.L2TD, ChunkTokens: 1, TPSize: 1, KeyPrefix: "bench/",
	}
	tokens := make([]uint32, b.Chunks)
	for j := range tokens {
		tokens[j] = uint32(j)
	}
	return root.Keys(tokens)
}

// makeBucket makes the target's bucket unless it is there.
func makeBucket(ctx context.Context, c *client.Client) error {
	err := c.S3().MakeBucket(ctx, c.Bucket(), minio.MakeBucketOptions{})
	if code := minio.ToErrorResponse(err).Code; err != nil && code != "BucketAlreadyOwnedByYou" && code != "BucketAlreadyExists" {
		return fmt.Errorf("make bucket %s: %w", c.Bucket(), err)
	}
	return nil
}

// fill stores the chunks, a few at a time so that memory stays small.
func (b *Layerwise) fill(ctx context.Context, c *client.Client, keys []string) error {
	if err := makeBucket(ctx, c); err != nil {
		return err
	}
	bar := b.Progress("storing the chunks", int64(b.Chunks))
	defer bar.Done()
	const batch = 8
	mem := make([]byte, batch*b.ChunkBytes())
	for lo := 0; lo < len(keys); lo += batch {
		chunks := make([]client.Chunk, min(batch, len(keys)-lo))
		for i := range chunks {
			data := mem[int64(i)*b.ChunkBytes():][:b.ChunkBytes()]
			b.fillChunk(data, lo+i)
			chunks[i] = client.Chunk{Key: keys[lo+i], Data: data}
		}
		parent := ""
		if lo > 0 {
			parent = keys[lo-1]
		}
		client.Chain(chunks, parent, int64(lo))
		if _, err := c.PutChunks(ctx, chunks); err != nil {
			return err
		}
		bar.Add(int64(len(chunks)))
	}
	return nil
}

// removeAll drops the chunks. It runs also when the benchmark was broken off.
func removeAll(c *client.Client, keys []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(8)
	for _, k := range keys {
		g.Go(func() error { return c.S3().RemoveObject(ctx, c.Bucket(), k, minio.RemoveObjectOptions{}) })
	}
	return g.Wait()
}

// verify compares every byte of the payload with the generator's.
func (b *Layerwise) verify(dst []byte, chunkMajor bool) error {
	for l := range b.Layers {
		for j := range b.Chunks {
			at := (int64(l)*int64(b.Chunks) + int64(j)) * b.Slice
			if chunkMajor {
				at = b.offset(j, l)
			}
			if k := badByte(dst[at:at+b.Slice], sliceSeed(uint64(j), l)); k >= 0 {
				return fmt.Errorf("wrong byte: layer %d, chunk %d, offset %d", l, j, k)
			}
		}
	}
	return nil
}

// layerwise is the one that all this is about.
func (b *Layerwise) layerwise(ctx context.Context, c *client.Client, keys []string, dst []byte, r *LayerwiseReport) (Sample, error) {
	var s Sample
	start := time.Now()
	ls, err := c.GetLayers(ctx, client.GetRequest{
		Keys: keys, NumLayers: b.Layers, PerLayerChunkBytes: b.Slice, Delivery: descriptor.Layer, Into: dst,
	})
	if err != nil {
		return s, err
	}
	r.Native = ls.Native()
	first := true
	for _, err := range ls.All() {
		if err != nil {
			return s, err
		}
		if first {
			s.Layer0, first = time.Since(start), false
		}
	}
	s.Total = time.Since(start)
	return s, nil
}

// whole gets the chunks as objects, each into one run of memory.
func (d *bed) whole(ctx context.Context, dst []byte) (Sample, error) {
	return d.eachChunk(ctx, func(ctx context.Context, j int) error {
		return getObject(ctx, d.core, d.b.Target.Bucket, d.keys[j], minio.GetObjectOptions{}, dst[d.b.offset(j, 0):][:d.b.ChunkBytes()])
	})
}

// eachChunk is a run that gets chunk by chunk: layer 0 is complete at the end.
func (d *bed) eachChunk(ctx context.Context, get func(ctx context.Context, j int) error) (Sample, error) {
	start := time.Now()
	err := d.b.workers(ctx, len(d.keys), get)
	total := time.Since(start)
	return Sample{Layer0: total, Total: total}, err
}

// ranged gets each slice by a request of its own, in layer order.
func (b *Layerwise) ranged(ctx context.Context, core minio.Core, keys []string, dst []byte) (Sample, error) {
	return b.eachSlice(ctx, func(ctx context.Context, j, l int) error {
		var o minio.GetObjectOptions
		if err := o.SetRange(int64(l)*b.Slice, int64(l+1)*b.Slice-1); err != nil {
			return err
		}
		return getObject(ctx, core, b.Target.Bucket, keys[j], o, dst[(int64(l)*int64(b.Chunks)+int64(j))*b.Slice:][:b.Slice])
	})
}

// eachSlice is a run that gets slice by slice, in layer order.
func (b *Layerwise) eachSlice(ctx context.Context, get func(ctx context.Context, j, l int) error) (Sample, error) {
	var s Sample
	var done atomic.Int64
	start := time.Now()
	err := b.workers(ctx, b.Chunks*b.Layers, func(ctx context.Context, i int) error {
		l, j := i/b.Chunks, i%b.Chunks
		if err := get(ctx, j, l); err != nil {
			return err
		}
		if l == 0 && done.Add(1) == int64(b.Chunks) {
			s.Layer0 = time.Since(start)
		}
		return nil
	})
	s.Total = time.Since(start)
	return s, err
}

func getObject(ctx context.Context, core minio.Core, bucket, key string, o minio.GetObjectOptions, p []byte) error {
	body, _, _, err := core.GetObject(ctx, bucket, key, o)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.ReadFull(body, p); err != nil {
		return fmt.Errorf("get %s: %w", key, err)
	}
	return nil
}

// workers calls f(0), f(1), ... f(n-1) from Concurrency goroutines, in order of start.
func (b *Layerwise) workers(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range b.Concurrency {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(ctx, int(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
