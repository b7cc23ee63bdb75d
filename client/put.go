package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Chunk is one chunk to store.
type Chunk struct {
	Key  string
	Data []byte // L*S bytes in the layout that GetLayers will name; not kept, not changed
	// Parent is the key of the chunk before this one ("" for the first) and
	// Index its place in the chain from 0. The store keeps them: eviction
	// needs the chain. Index -1 sends neither.
	Parent string
	Index  int64
}

// Chain fills Parent and Index of chunks that follow each other, the first of
// them at place first, after the chunk with key parent ("" for the first).
func Chain(chunks []Chunk, parent string, first int64) {
	for i := range chunks {
		chunks[i].Parent, chunks[i].Index = parent, first+int64(i)
		parent = chunks[i].Key
	}
}

// PutResult counts what PutChunks did.
type PutResult struct {
	Stored   int   // written by this call
	Existing int   // were there already, and were left alone
	Bytes    int64 // of the chunks stored
}

// PutChunks stores chunks, Config.Concurrency at a time and in no order. A key
// that exists is success: keys are hashes of content. Every chunk is tried;
// the error joins one *Error per chunk that failed, each with its Key. When
// ctx ends, the chunks not yet tried fail with its error.
func (c *Client) PutChunks(ctx context.Context, chunks []Chunk) (PutResult, error) {
	var stored, existing, size atomic.Int64
	errs := make([]error, len(chunks))
	var g errgroup.Group
	g.SetLimit(c.cfg.Concurrency)
	for i := range chunks {
		g.Go(func() error {
			ch := &chunks[i]
			isNew, err := c.putChunk(ctx, ch)
			switch {
			case err != nil:
				errs[i] = err
			case isNew:
				stored.Add(1)
				size.Add(int64(len(ch.Data)))
			default:
				existing.Add(1)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return nil
	return PutResult{Stored: int(stored.Load()), Existing: int(existing.Load()), Bytes: size.Load()}, errors.Join(errs...)
}

// putChunk stores one chunk and reports whether it is new.
func (c *Client) putChunk(ctx context.Context, ch *Chunk) (bool, error) {
	if ch.Key == "" || len(ch.Data) == 0 {
		e := invalid("Key", "a chunk needs a key and bytes")
		e.Key = ch.Key
		return false, e
	}
	if err := ctx.Err(); err != nil {
		e := networkError(err)
		e.Key = ch.Key
		return false, e
	}
	k := call{
		method: http.MethodPut, key: ch.Key, body: ch.Data, bulk: true,
		header: map[string]string{"Content-Type": "application/octet-stream"},
	}
	if ch.Index >= 0 {
		k.header["X-Kv-Index"] = strconv.FormatInt(ch.Index, 10)
		if ch.Parent != "" {
			k.header["X-Kv-Parent"] = ch.Parent
		}
	}
	conditional := !c.kv.noConditionalPut.Load()
	if conditional {
		k.header["If-None-Match"] = "*"
	}
	resp, err := c.send(ctx, k)
	if conditional && hasCode(err, "NotImplemented") {
		// An older store without conditional PUT: the same bytes are written
		// again, which changes nothing but costs a write.
		c.kv.noConditionalPut.Store(true)
		c.log.InfoContext(ctx, "the store has no conditional PUT; chunks that exist are written again")
		delete(k.header, "If-None-Match")
		resp, err = c.send(ctx, k)
	}
	if hasCode(err, "PreconditionFailed") {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	drain(resp.Body)
	return true, nil
}
