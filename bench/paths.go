package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// Paths compares the five S3 paths of ObjectCache §4.1 over one transport, each
// beside a bare loop that does the same unavoidable work, and then sweeps the
// aggregation size (Figure A8). The fields of Layerwise that are about shared
// memory and what to skip are not used.
type Paths struct {
	Layerwise
	// Puts also measures the paths of a PUT.
	Puts bool
	// Sweep holds the aggregation sizes, in bytes. Restart starts the store anew
	// on its data with one of them; nil: no sweep.
	Sweep   []int64
	Restart func(ctx context.Context, size int64) (Target, error)
}

// The keys of the rows.
const (
	limitTCP    = "limit-http"
	limitStaged = "limit-staged"
	limitChunks = "limit-chunks"
	limitSlices = "memory-threads"

	pathTCP          = "s3tcp"
	pathBuffer       = "s3rdma-buffer"
	pathDirect       = "s3rdma-direct"
	pathDirectSlices = "s3rdma-direct-slices"
	pathBatch        = "s3rdma-batch"
	pathAgg          = "s3rdma-agg"
)

// Run runs it all, as Layerwise does.
func (b *Paths) Run(ctx context.Context) (_ *PathsReport, err error) {
	b.Shm = b.Fabric.Provider == ""
	if err := b.validate(); err != nil {
		return nil, err
	}
	for _, size := range b.Sweep {
		if size <= 0 {
			return nil, fmt.Errorf("an aggregation size of %d bytes", size)
		}
	}
	d, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r := &PathsReport{Command: b.Command, Machine: ThisMachine(), Geometry: b.Geometry, PayloadBytes: b.Payload(),
		Rounds: b.Rounds, Concurrency: b.Concurrency}
	things := d.overFabric(d.paths())
	samples, err := b.rounds(ctx, things, d.dst)
	if err != nil {
		return nil, err
	}
	r.fill(things, samples)
	if b.Puts {
		if things, samples, err = b.puts(ctx, d); err != nil {
			return nil, err
		}
		for i := range things {
			r.Puts = append(r.Puts, withLimit(things, samples, i, r.PayloadBytes))
		}
	}
	if b.Restart == nil {
		return r, nil
	}
	for _, size := range b.Sweep {
		if err := d.restart(ctx, b.Restart, size); err != nil {
			return nil, fmt.Errorf("aggregation size %s: %w", byteSize(size), err)
		}
		if d.fabric != nil {
			d.fabric.cfg.WriteBytes = int(size)
		}
		things := d.overFabric([]thing{d.threadsThing(), d.aggThing()})
		samples, err := b.rounds(ctx, things, d.dst)
		if err != nil {
			return nil, fmt.Errorf("aggregation size %s: %w", byteSize(size), err)
		}
		r.Sweep = append(r.Sweep, SweepReport{AggBytes: size, Slices: gathered(size, b.Geometry, runtime.NumCPU()),
			ThingReport: withLimit(things, samples, len(things)-1, r.PayloadBytes)})
	}
	return r, nil
}

// gathered is how many slices of a layer the store gathers with an aggregation
// size: no more than its workers, one for each core, can share.
func gathered(size int64, g Geometry, cores int) int64 {
	return max(1, min(size/g.Slice, int64(g.Chunks/cores)))
}

// rounds checks every byte of the things once and then measures them.
func (b *Paths) rounds(ctx context.Context, things []thing, dst []byte) ([][]Sample, error) {
	if err := b.checkAll(ctx, things, dst); err != nil {
		return nil, err
	}
	return b.measure(ctx, things, dst)
}

// paths are the rows: the limits and then what has them.
func (d *bed) paths() []thing {
	b, threads := d.b, runtime.NumCPU()
	object := func(path descriptor.Path) func(context.Context, []byte) (Sample, error) {
		return func(ctx context.Context, _ []byte) (Sample, error) {
			return d.eachChunk(ctx, func(ctx context.Context, j int) error {
				_, err := d.c.GetObjectInto(ctx, client.ObjectRequest{Key: d.keys[j], At: b.offset(j, 0), Room: b.ChunkBytes(), Path: path}, d.shared)
				return err
			})
		}
	}
	pid := b.Target.PID
	return []thing{
		{key: limitTCP, name: "bare limit of S3TCP: pread + CRC32C, loopback HTTP, chunk by chunk", chunkMajor: true, pid: d.server.PID,
			run: func(ctx context.Context, dst []byte) (Sample, error) { return d.bare.chunks(ctx, dst, b.Concurrency) }},
		{key: pathTCP, name: "S3TCP: a GET for each chunk, minio-go", chunkMajor: true, pid: pid, limit: limitTCP, run: d.whole},
		{key: limitStaged, name: fmt.Sprintf("bare limit of Buffer: pread + CRC32C + copy, %d threads", threads), chunkMajor: true,
			run: func(_ context.Context, dst []byte) (Sample, error) { return d.file.stagedChunks(dst, threads) }},
		{key: pathBuffer, name: "S3RDMA Buffer: a GetObjectInto for each chunk", chunkMajor: true, pid: pid, limit: limitStaged, run: object(descriptor.Buffer)},
		{key: limitChunks, name: fmt.Sprintf("bare limit of Direct and Batch: pread + CRC32C, %d threads", threads), chunkMajor: true,
			run: func(_ context.Context, dst []byte) (Sample, error) { return d.file.chunks(dst, threads) }},
		{key: pathDirect, name: "S3RDMA Direct: a GetObjectInto for each chunk", chunkMajor: true, pid: pid, limit: limitChunks, run: object(descriptor.Direct)},
		{key: pathBatch, name: "S3RDMA Batch: GetLayersInto, chunk-major", chunkMajor: true, pid: pid, limit: limitChunks,
			run: func(ctx context.Context, _ []byte) (Sample, error) {
				return d.layersInto(ctx, descriptor.Chunk, descriptor.Target{LayerStride: b.Slice, ChunkStride: b.ChunkBytes()})
			}},
		d.threadsThing(),
		{key: pathDirectSlices, name: "S3RDMA Direct by slice: a GetObjectInto for each (layer, chunk)", pid: pid, limit: limitSlices,
			run: func(ctx context.Context, _ []byte) (Sample, error) {
				return b.eachSlice(ctx, func(ctx context.Context, j, l int) error {
					_, err := d.c.GetObjectInto(ctx, client.ObjectRequest{Key: d.keys[j], First: int64(l) * b.Slice, Count: b.Slice,
						At: (int64(l)*int64(b.Chunks) + int64(j)) * b.Slice, Room: b.Slice}, d.shared)
					return err
				})
			}},
		d.aggThing(),
	}
}

func (d *bed) aggThing() thing {
	return thing{key: pathAgg, name: "S3RDMA Agg: GetLayersInto, layer-major", pid: d.b.Target.PID, limit: limitSlices, run: d.agg}
}

// restart lets the store start anew, and makes what was bound to the old one.
func (d *bed) restart(ctx context.Context, start func(context.Context, int64) (Target, error), size int64) error {
	if err := d.release(); err != nil {
		return err
	}
	t, err := start(ctx, size)
	if err != nil {
		return err
	}
	d.b.Target = t
	if err := d.b.connect(d); err != nil {
		return err
	}
	return d.memory(ctx)
}
