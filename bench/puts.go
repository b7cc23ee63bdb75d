package bench

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// The keys of the rows that store the chunks.
const (
	limitPut  = "limit-put"
	putTCP    = "s3tcp-put"
	putBuffer = "s3rdma-buffer-put"
	putDirect = "s3rdma-direct-put"
)

// puts measures the paths of a PUT: each chunk is stored from the shared memory
// under a key of its own.
func (b *Paths) puts(ctx context.Context, d *bed) (things []thing, samples [][]Sample, err error) {
	keys := make([]string, len(d.keys))
	for j, k := range d.keys {
		keys[j] = "put-" + k
	}
	if !b.Keep {
		defer func() { err = errors.Join(err, removeAll(d.c, keys)) }()
	}
	scratch, err := os.Create(filepath.Join(b.Dir, "bare-put"))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close(), os.Remove(scratch.Name())) }()
	memory := func(path descriptor.Path) func(context.Context, []byte) (Sample, error) {
		return func(ctx context.Context, _ []byte) (Sample, error) {
			return d.eachChunk(ctx, func(ctx context.Context, j int) error {
				_, err := d.c.PutObjectFrom(ctx, client.PutRequest{Key: keys[j], At: b.offset(j, 0), Count: b.ChunkBytes(), Path: path}, d.shared)
				return err
			})
		}
	}
	things = []thing{
		{key: limitPut, name: fmt.Sprintf("bare limit of a PUT: copy + CRC32C + MD5 + pwrite + fdatasync, %d threads", runtime.NumCPU()),
			run: func(_ context.Context, dst []byte) (Sample, error) { return b.barePut(scratch, dst, runtime.NumCPU()) }},
		{key: putTCP, name: "S3TCP: a PUT of each chunk, minio-go", pid: b.Target.PID, limit: limitPut,
			run: func(ctx context.Context, dst []byte) (Sample, error) {
				return d.eachChunk(ctx, func(ctx context.Context, j int) error {
					chunk := dst[b.offset(j, 0):][:b.ChunkBytes()]
					_, err := d.core.Client.PutObject(ctx, b.Target.Bucket, keys[j], bytes.NewReader(chunk), int64(len(chunk)),
						minio.PutObjectOptions{DisableMultipart: true})
					return err
				})
			}},
		{key: putBuffer, name: "S3RDMA Buffer: a PutObjectFrom of each chunk", pid: b.Target.PID, limit: limitPut, run: memory(descriptor.Buffer)},
		{key: putDirect, name: "S3RDMA Direct: a PutObjectFrom of each chunk", pid: b.Target.PID, limit: limitPut, run: memory(descriptor.Direct)},
	}
	if err := b.checkPuts(ctx, d, things[1:], keys); err != nil {
		return nil, nil, err
	}
	b.fillAll(d.dst)
	samples, err = b.measure(ctx, things, d.dst)
	return things, samples, err
}

// fillAll writes the chunks, one after the other.
func (g Geometry) fillAll(dst []byte) {
	for j := range g.Chunks {
		g.fillChunk(dst[g.offset(j, 0):][:g.ChunkBytes()], j)
	}
}

// checkPuts runs each thing once, gets back what it has stored by plain GETs and
// compares every byte.
func (b *Paths) checkPuts(ctx context.Context, d *bed, things []thing, keys []string) error {
	bar := b.Progress("checking every byte stored", int64(len(things)))
	defer bar.Done()
	for _, t := range things {
		b.fillAll(d.dst)
		if _, err := t.run(ctx, d.dst); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		clear(d.dst)
		if err := b.workers(ctx, len(keys), func(ctx context.Context, j int) error {
			return getObject(ctx, d.core, b.Target.Bucket, keys[j], minio.GetObjectOptions{}, d.dst[b.offset(j, 0):][:b.ChunkBytes()])
		}); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := b.verify(d.dst, true); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		// What the next one stores must be its own.
		if err := removeAll(d.c, keys); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		bar.Add(1)
	}
	return nil
}

// barePut is the unavoidable work of storing the chunks: a copy out of memory
// that another may change, the CRC of each block, the ETag, the write, and that
// it is durable in the end.
func (g Geometry) barePut(f *os.File, src []byte, threads int) (Sample, error) {
	bufs := make([][]byte, threads)
	for i := range bufs {
		bufs[i] = make([]byte, g.ChunkBytes())
	}
	sums := make([]uint32, threads) // so that no sum is left out
	return g.eachChunk(threads, func(t, j int) error {
		p := bufs[t]
		copy(p, src[g.offset(j, 0):])
		for q := p; len(q) > 0; q = q[min(crcBlock, len(q)):] {
			sums[t] ^= crc32.Checksum(q[:min(crcBlock, len(q))], castagnoli)
		}
		sum := md5.Sum(p)
		sums[t] ^= uint32(sum[0])
		if _, err := f.WriteAt(p, g.offset(j, 0)); err != nil {
			return err
		}
		return unix.Fdatasync(int(f.Fd())) // each is acknowledged by itself
	})
}
