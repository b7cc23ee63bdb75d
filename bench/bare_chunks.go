package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// eachChunk runs f for every chunk, in order of start, by n threads.
func (g Geometry) eachChunk(n int, f func(thread, j int) error) (Sample, error) {
	var next atomic.Int64
	var eg errgroup.Group
	start := time.Now()
	for t := range n {
		eg.Go(func() error {
			for j := next.Add(1) - 1; j < int64(g.Chunks); j = next.Add(1) - 1 {
				if err := f(t, int(j)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := eg.Wait()
	total := time.Since(start)
	return Sample{Layer0: total, Total: total}, err // layer 0 is complete at the end
}

// readChunk is the unavoidable work for one chunk: pread and CRC of its slices.
func (b *bareFile) readChunk(p []byte, j int) error {
	for l := range b.g.Layers {
		if err := b.read(p[int64(l)*b.g.Slice:][:b.g.Slice], j, l); err != nil {
			return err
		}
	}
	return nil
}

// chunks is the limit of what moves whole objects straight to their place.
func (b *bareFile) chunks(dst []byte, threads int) (Sample, error) {
	return b.g.eachChunk(threads, func(_, j int) error {
		return b.readChunk(dst[b.g.offset(j, 0):][:b.g.ChunkBytes()], j)
	})
}

// stagedChunks is chunks by way of a buffer of each thread, which holds one.
func (b *bareFile) stagedChunks(dst []byte, threads int) (Sample, error) {
	stages := make([][]byte, threads)
	for i := range stages {
		stages[i] = make([]byte, b.g.ChunkBytes())
		for k := 0; k < len(stages[i]); k += 4096 {
			stages[i][k] = 1 // its pages are in place
		}
	}
	return b.g.eachChunk(threads, func(t, j int) error {
		if err := b.readChunk(stages[t], j); err != nil {
			return err
		}
		copy(dst[b.g.offset(j, 0):], stages[t])
		return nil
	})
}

// serveChunk answers GET /?chunk=J: one chunk as it is stored.
func (h *BareHandler) serveChunk(w http.ResponseWriter, v string) {
	g := h.file.g
	j, err := strconv.Atoi(v)
	if err != nil || j < 0 || j >= g.Chunks {
		http.Error(w, "chunk must be the number of a chunk", http.StatusBadRequest)
		return
	}
	buf := h.buffer(g.ChunkBytes())
	defer h.bufs.Put(buf)
	p := (*buf)[:g.ChunkBytes()]
	if err := h.file.readChunk(p, j); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Length", strconv.FormatInt(g.ChunkBytes(), 10))
	_, _ = w.Write(p) // the client may have left
}

// chunks gets every chunk from a BareHandler, some at a time.
func (c *bareClient) chunks(ctx context.Context, dst []byte, threads int) (Sample, error) {
	return c.g.eachChunk(threads, func(_, j int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/?chunk="+strconv.Itoa(j), nil)
		if err != nil {
			return err
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the bare server answers %s", resp.Status)
		}
		_, err = io.ReadFull(resp.Body, dst[c.g.offset(j, 0):][:c.g.ChunkBytes()])
		return err
	})
}
