// Package bench holds the workloads of `objcached bench`. Each prints its
// figures beside the machine's own limit, measured in the same run, and checks
// the bytes it was given.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
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
	Shm         bool
	Rounds      int
	Concurrency int    // of the plain S3 GETs
	Dir         string // for the bare loops' file
	Keep        bool   // leave the chunks in the bucket
	Command     string // for the report
	Target      Target
	// StartBare starts a BareHandler on a file in the same arrangement as the
	// server under test, and returns its URL.
	StartBare func(ctx context.Context, file string, g Geometry) (url string, stop func() error, err error)
	Progress  func(title string, total int64) Progress
}

// Progress shows how far a stage is.
type Progress interface {
	Add(n int64)
	Done()
}

// Sample is one run of one thing.
type Sample struct {
	Layer0, Total time.Duration
}

// thing is one of them.
type thing struct {
	key, name  string
	chunkMajor bool   // where the bytes end up in memory
	limit      string // key of the thing that is its own limit, if not the first two
	run        func(ctx context.Context, dst []byte) (Sample, error)
}

// Run runs it all. Every thing is first run once with every byte checked, then
// Rounds times, the things taking turns so that the machine's moods hit all of them.
func (b *Layerwise) Run(ctx context.Context) (_ *LayerwiseReport, err error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	cleanup := func(f func() error) { err = errors.Join(err, f()) }

	c, plain, err := b.clients()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	keys, err := b.keys()
	if err != nil {
		return nil, err
	}
	if !b.Keep {
		defer cleanup(func() error { return removeAll(c, keys) })
	}
	if err := b.fill(ctx, c, keys); err != nil {
		return nil, err
	}
	file := filepath.Join(b.Dir, "bare-chunks")
	bar := b.Progress("writing the bare loops' file", int64(b.Chunks))
	err = writeChunkFile(file, b.Geometry, bar.Add)
	bar.Done()
	defer cleanup(func() error { return os.Remove(file) })
	if err != nil {
		return nil, err
	}
	mem, err := openBareFile(file, b.Geometry)
	if err != nil {
		return nil, err
	}
	defer cleanup(mem.Close)
	url, stop, err := b.StartBare(ctx, file, b.Geometry)
	if err != nil {
		return nil, err
	}
	defer cleanup(stop)

	dst, shared, free, err := b.memory(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("memory for %s of payload: %w", byteSize(b.Payload()), err)
	}
	defer cleanup(free)

	bar = b.Progress("finding the bare loops' best write sizes", int64(2*3*len(writeSizes)))
	defer bar.Done()
	var bare [2]*bareClient
	for i := range bare {
		tr := newBareTransport(i == 1)
		defer tr.CloseIdleConnections()
		bare[i] = &bareClient{http: &http.Client{Transport: tr}, url: url, g: b.Geometry}
		if err := bare[i].bestWrite(ctx, dst, 3, bar.Add); err != nil {
			return nil, err
		}
	}
	bar.Done()

	core := minio.Core{Client: plain}
	report := &LayerwiseReport{
		Command: b.Command, Machine: ThisMachine(), Geometry: b.Geometry, Rounds: b.Rounds, Concurrency: b.Concurrency,
		PayloadBytes: b.Payload(), BareWriteBytes: bare[0].write, MarkedWriteBytes: bare[1].write,
	}
	things := []thing{
		{key: "memory", name: "bare limit in memory: pread + CRC32C", run: mem.memory},
		{key: "bare-http", name: "bare limit over loopback HTTP", run: bare[0].get},
		{key: "bare-http-marked", name: "the same, the reader with a low-water mark", run: bare[1].get},
		{key: "layerwise", name: "layer-major body, client.GetLayers", limit: "bare-http-marked", run: func(ctx context.Context, dst []byte) (Sample, error) {
			return b.layerwise(ctx, c, keys, dst, report)
		}},
		{key: "whole", name: "whole-object GETs, minio-go", chunkMajor: true, run: func(ctx context.Context, dst []byte) (Sample, error) {
			return b.whole(ctx, core, keys, dst)
		}},
		{key: "ranged", name: "ranged GETs per (layer, chunk), minio-go", run: func(ctx context.Context, dst []byte) (Sample, error) {
			return b.ranged(ctx, core, keys, dst)
		}},
	}
	if shared != nil {
		things = append(things,
			thing{key: "memory-threads", name: fmt.Sprintf("bare limit of shared memory: pread + CRC32C, %d threads", runtime.NumCPU()),
				run: func(_ context.Context, dst []byte) (Sample, error) { return mem.threads(dst, runtime.NumCPU()) }},
			thing{key: "layerwise-shm", name: "into shared memory, client.GetLayersInto", limit: "memory-threads",
				run: func(ctx context.Context, _ []byte) (Sample, error) { return b.intoShared(ctx, c, keys, shared) }})
	}
	if err := b.checkAll(ctx, things, dst); err != nil {
		return nil, err
	}
	watch := watchMemory(b.Target.PID)
	defer watch.stop()
	samples, err := b.measure(ctx, things, dst)
	if err != nil {
		return nil, err
	}
	report.ServerRSSAnonPeak = watch.stop()
	report.fill(things, samples)
	return report, nil
}

// checkAll runs everything once and compares every byte.
func (b *Layerwise) checkAll(ctx context.Context, things []thing, dst []byte) error {
	bar := b.Progress("checking every byte", int64(len(things)))
	defer bar.Done()
	for _, t := range things {
		clear(dst) // nothing left of the thing before may pass for this one's
		if _, err := t.run(ctx, dst); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := b.verify(dst, t.chunkMajor); err != nil {
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
	runtime.GC() // what came before is not to be collected during a round
	samples := make([][]Sample, len(things))
	for r := range b.Rounds {
		for k := range things {
			i := (k + r) % len(things)
			s, err := things[i].run(ctx, dst)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", things[i].name, r, err)
			}
			samples[i] = append(samples[i], s)
			bar.Add(1)
		}
	}
	return samples, nil
}

// memory makes the memory that everything ends in, with its pages in place: a
// registered buffer if shared memory is measured.
func (b *Layerwise) memory(ctx context.Context, c *client.Client) (dst []byte, shared *client.Buffer, free func() error, err error) {
	if b.Shm {
		if shared, err = c.Register(ctx, b.Payload()); err != nil {
			return nil, nil, nil, err
		}
		return shared.Bytes(), shared, shared.Close, nil
	}
	dst, err = unix.Mmap(-1, 0, int(b.Payload()), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	return dst, nil, func() error { return unix.Munmap(dst) }, err
}

// intoShared is the layerwise GET into shared memory.
func (b *Layerwise) intoShared(ctx context.Context, c *client.Client, keys []string, buf *client.Buffer) (Sample, error) {
	var s Sample
	start := time.Now()
	tr, err := c.GetLayersInto(ctx, client.GetRequest{
		Keys: keys, NumLayers: b.Layers, PerLayerChunkBytes: b.Slice, Delivery: descriptor.Layer,
	}, buf, descriptor.Target{})
	if err != nil {
		return s, err
	}
	defer tr.Close()
	for l := range b.Layers {
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
	c, err := client.New(client.Config{Endpoint: t.Endpoint, AccessKey: t.AccessKey, SecretKey: t.SecretKey, Bucket: t.Bucket})
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
func (b *Layerwise) whole(ctx context.Context, core minio.Core, keys []string, dst []byte) (Sample, error) {
	start := time.Now()
	err := b.workers(ctx, len(keys), func(ctx context.Context, j int) error {
		return getObject(ctx, core, b.Target.Bucket, keys[j], minio.GetObjectOptions{}, dst[b.offset(j, 0):][:b.ChunkBytes()])
	})
	total := time.Since(start)
	return Sample{Layer0: total, Total: total}, err // with whole objects, layer 0 is complete at the end
}

// ranged gets each slice by a request of its own, in layer order.
func (b *Layerwise) ranged(ctx context.Context, core minio.Core, keys []string, dst []byte) (Sample, error) {
	var s Sample
	var done atomic.Int64
	start := time.Now()
	err := b.workers(ctx, len(keys)*b.Layers, func(ctx context.Context, i int) error {
		l, j := i/len(keys), i%len(keys)
		var o minio.GetObjectOptions
		if err := o.SetRange(int64(l)*b.Slice, int64(l+1)*b.Slice-1); err != nil {
			return err
		}
		if err := getObject(ctx, core, b.Target.Bucket, keys[j], o, dst[int64(i)*b.Slice:][:b.Slice]); err != nil {
			return err
		}
		if l == 0 && done.Add(1) == int64(len(keys)) {
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
