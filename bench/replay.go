package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// Verify says how much of what arrives is compared with the generator.
type Verify string

// The choices.
const (
	VerifySample Verify = "sample" // three words of each slice
	VerifyFull   Verify = "full"   // every byte
	VerifyOff    Verify = "off"
)

// Replay replays a trace against a store the way prefill workers would: each
// request matches its prefix, gets what is there layer by layer and puts what
// it missed. One chunk per hash id; its key is the chain hash over the ids.
type Replay struct {
	Target      Target
	Trace       []TraceRequest
	Layers      int
	Slice       int64   // bytes of one layer of one chunk
	Concurrency int     // requests under way
	Speed       float64 // 0: as fast as possible; 1: by the timestamps; 10: ten times as fast
	Salt        string  // runs with another salt find nothing of each other
	Verify      Verify
	Command     string
	Progress    func(title string, total int64) Progress

	// Now and Sleep are the clock, as in client.Config.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// sliceOfModel is what a layer of a 512-token block takes in Llama 3.1 8B
// (8 KV heads of 128 values of 2 bytes, K and V): what Slice is scaled from.
const sliceOfModel = 2 << 20

// outcome is what came of one request.
type outcome struct {
	matched                  int
	matchTime, layer0, total time.Duration // layer0 and total from the request's start; only if matched
	putTime                  time.Duration
	got                      int64
	put                      client.PutResult
	lag                      time.Duration // how much later than by the trace it began
	err                      error
}

// Run replays the trace. Requests that fail are counted and described in the
// report; they end nothing.
func (b *Replay) Run(ctx context.Context) (*ReplayReport, error) {
	if b.Layers <= 0 || b.Slice <= 0 || b.Concurrency <= 0 || b.Speed < 0 || len(b.Trace) == 0 {
		return nil, errors.New("layers, slice and concurrency must be positive, speed not negative, and the trace not empty")
	}
	if b.Verify != VerifyFull && b.Verify != VerifySample && b.Verify != VerifyOff {
		return nil, fmt.Errorf("verify is %q, must be full, sample or off", b.Verify)
	}
	t := b.Target
	c, err := client.New(client.Config{Endpoint: t.Endpoint, AccessKey: t.AccessKey, SecretKey: t.SecretKey, Bucket: t.Bucket})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	root := b.root()
	if err := root.Validate(); err != nil {
		return nil, err
	}
	if err := makeBucket(ctx, c); err != nil {
		return nil, err
	}
	bar := b.Progress("replaying", int64(len(b.Trace)))
	defer bar.Done()
	watch := watchMemory(t.PID)
	defer watch.stop()

	outcomes := make([]outcome, len(b.Trace))
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range b.Concurrency {
		workers.Go(func() {
			w := replayWorker{b: b, c: c, root: root}
			for i := range jobs {
				lag := outcomes[i].lag
				outcomes[i] = w.serve(ctx, &b.Trace[i])
				outcomes[i].lag = lag
				bar.Add(1)
			}
		})
	}
	start := b.Now()
	begun := 0
	for i := range b.Trace {
		if b.Speed > 0 {
			due := time.Duration(float64(b.Trace[i].At-b.Trace[0].At) / b.Speed)
			if wait := due - b.Now().Sub(start); wait > 0 {
				if err := b.Sleep(ctx, wait); err != nil {
					break
				}
			}
			outcomes[i].lag = max(0, b.Now().Sub(start)-due)
		}
		select {
		case jobs <- i:
			begun++
			continue
		case <-ctx.Done():
		}
		break
	}
	close(jobs)
	workers.Wait()
	elapsed := b.Now().Sub(start)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.report(outcomes[:begun], elapsed, watch.stop()), nil
}

// root makes keys of hash ids: one id stands for its 512 tokens.
func (b *Replay) root() descriptor.Root {
	return descriptor.Root{
		Model: "bench-replay", Revision: "pattern-1", DType: "bytes", NumLayers: b.Layers, PerLayerChunkBytes: b.Slice,
		Layout: descriptor.L2TD, ChunkTokens: 1, TPSize: 1, TenantSalt: b.Salt, KeyPrefix: "replay/",
	}
}

// replayWorker serves requests one after the other; its memory is used again.
type replayWorker struct {
	b     *Replay
	c     *client.Client
	root  descriptor.Root
	mem   []byte
	seeds []uint64
}

// putBatch bounds the memory of a worker's puts, in chunks.
const putBatch = 64

func (w *replayWorker) serve(ctx context.Context, r *TraceRequest) (o outcome) {
	keys, err := w.root.Keys(r.Blocks)
	if err != nil {
		o.err = err
		return o
	}
	w.seeds = w.seeds[:0]
	for _, k := range keys {
		w.seeds = append(w.seeds, keySeed(k))
	}
	now := w.b.Now
	start := now()
	n, err := w.c.Match(ctx, keys)
	o.matchTime = now().Sub(start)
	if err != nil {
		o.err = fmt.Errorf("match: %w", err)
		return o
	}
	if n > 0 {
		if o.err = w.get(ctx, keys[:n], start, &o); o.err != nil {
			return o
		}
	}
	o.err = w.put(ctx, keys, &o)
	return o
}

// get takes the prefix layer by layer. What the store has dropped since the
// match is a shorter prefix, not an error.
func (w *replayWorker) get(ctx context.Context, keys []string, start time.Time, o *outcome) error {
	b := w.b
	ls, err := w.c.GetLayers(ctx, client.GetRequest{
		Keys: keys, NumLayers: b.Layers, PerLayerChunkBytes: b.Slice, ChunkTokens: BlockTokens, OnMissing: descriptor.Truncate,
	})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	layers := 0
	for ly, err := range ls.All() {
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		if layers == 0 {
			o.layer0 = b.Now().Sub(start)
		}
		layers++
		if err := w.check(ly, ls.Matched()); err != nil {
			return err
		}
		o.got += int64(len(ly.Data))
	}
	o.total = b.Now().Sub(start)
	if o.matched = ls.Matched(); o.matched > 0 && layers != b.Layers {
		return fmt.Errorf("get: %d layers, want %d", layers, b.Layers)
	}
	return nil
}

func (w *replayWorker) check(ly client.Layer, n int) error {
	bad := badSample
	switch w.b.Verify {
	case VerifyFull:
		bad = badByte
	case VerifyOff:
		return nil
	}
	for j := range n {
		if k := bad(ly.Chunk(j), sliceSeed(w.seeds[j], ly.Index)); k >= 0 {
			return &wrongByteError{ly.Index, j, k}
		}
	}
	return nil
}

// wrongByteError is the one failure that a store must never show.
type wrongByteError struct{ layer, chunk, offset int }

func (e *wrongByteError) Error() string {
	return fmt.Sprintf("wrong byte: layer %d, chunk %d, offset %d", e.layer, e.chunk, e.offset)
}

// put stores what the store did not have.
func (w *replayWorker) put(ctx context.Context, keys []string, o *outcome) error {
	size := int64(w.b.Layers) * w.b.Slice
	for lo := o.matched; lo < len(keys); lo += putBatch {
		hi := min(lo+putBatch, len(keys))
		if need := int64(hi-lo) * size; int64(cap(w.mem)) < need {
			w.mem = make([]byte, need)
		}
		chunks := make([]client.Chunk, hi-lo)
		for i := range chunks {
			data := w.mem[:cap(w.mem)][int64(i)*size:][:size]
			for l := range w.b.Layers {
				fillSlice(data[int64(l)*w.b.Slice:][:w.b.Slice], sliceSeed(w.seeds[lo+i], l))
			}
			chunks[i] = client.Chunk{Key: keys[lo+i], Data: data}
		}
		parent := ""
		if lo > 0 {
			parent = keys[lo-1]
		}
		client.Chain(chunks, parent, int64(lo))
		start := w.b.Now()
		res, err := w.c.PutChunks(ctx, chunks)
		o.putTime += w.b.Now().Sub(start)
		o.put.Stored += res.Stored
		o.put.Existing += res.Existing
		o.put.Bytes += res.Bytes
		if err != nil {
			return fmt.Errorf("put: %w", err)
		}
	}
	return nil
}

// keySeed makes a chunk's bytes a function of its key, so that a chunk given
// under another's key is seen.
func keySeed(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash does not fail
	return h.Sum64()
}
