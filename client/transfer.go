package client

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/objcached/objcached/descriptor"
)

// Transfer is a prefix on its way into a Buffer. Its methods may be called
// concurrently.
type Transfer struct {
	b      *Buffer
	desc   descriptor.Descriptor
	slot   int
	cancel context.CancelFunc
	tag    atomic.Int64 // of the latest attempt

	done  chan struct{}
	sum   descriptor.Summary // these three after done
	ready int
	err   error
}

// GetLayersInto asks for a prefix to be put into b and returns at once, or when
// one of b's transfers has ended if there are as many as the store allows.
// When ctx ends, the transfer breaks off.
//
// place says where the layers go; its Handle and Tag are filled in. The zero
// place is the start of the buffer, layer by layer as GetLayers' Into has it,
// with n of the chunks asked for: byte k of chunk j of layer l (counted from
// FirstLayer) at (l*len(Keys)+j)*S+k. A Length of 0 is all of the buffer from
// Offset on. req.Into must be nil.
func (c *Client) GetLayersInto(ctx context.Context, req GetRequest, b *Buffer, place descriptor.Target) (*Transfer, error) {
	switch {
	case req.Into != nil:
		return nil, invalid("Into", "and a Buffer")
	case b.c.base != c.base || b.c.cfg.AccessKey != c.cfg.AccessKey:
		return nil, invalid("rdma_target", "the buffer was registered with another store or another key")
	}
	place.Handle = b.handle
	if place.Length == 0 {
		place.Length = max(0, b.n-max(0, place.Offset))
	}
	if place.LayerStride == 0 && !place.Paged() {
		// Known before the store has counted the chunks.
		place.LayerStride = int64(len(req.Keys)) * max(req.PerLayerChunkBytes, place.ChunkStride)
	}
	t := &Transfer{b: b, done: make(chan struct{}), desc: descriptor.Descriptor{
		ChunkKeys: req.Keys, NumLayers: req.NumLayers, ChunkTokens: req.ChunkTokens, PerLayerChunkBytes: req.PerLayerChunkBytes,
		Layout: req.Layout, Delivery: req.Delivery, FirstLayer: req.FirstLayer, LayerCount: req.LayerCount, OnMissing: req.OnMissing,
		LayerComputeMicros: req.LayerComputeMicros, Target: &place,
	}}
	if err := t.desc.Validate(); err != nil {
		var f *descriptor.FieldError
		errors.As(err, &f) // Validate returns nothing else
		return nil, invalid(f.Field, "%s", f.Reason)
	}
	if place.Offset+place.Length > b.n {
		return nil, invalid("rdma_target.length", "the window ends past the buffer's %d bytes", b.n)
	}
	ctx, slot, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	t.slot = slot
	ctx, t.cancel = context.WithCancel(ctx)
	t.tag.Store(-1)
	go func() { done(t.run(ctx)) }()
	return t, nil
}

// run sends the request until it has an answer. It reports whether nothing
// more is written under its tag, so that another may use the slot.
func (t *Transfer) run(ctx context.Context) bool {
	answered := true
	for attempt := 0; ; attempt++ {
		tag := t.b.nextTag(t.slot)
		if tag > t.b.mem.lastTag() {
			t.err = errNoTags()
			break
		}
		t.tag.Store(tag)
		var wait time.Duration
		var e *Error
		answered, wait, e = t.send(ctx, tag)
		if e == nil {
			if e = t.b.arrived(tag); e == nil {
				break
			}
			answered = false
		}
		t.err = e
		t.b.refused(e)
		if !answered || e.StatusCode != http.StatusServiceUnavailable || e.LayersReady > 0 || !t.b.c.again(ctx, attempt, e, wait) {
			break
		}
		t.err = nil
	}
	reusable := answered || t.tag.Load() < 0 || t.b.overSoon(t.tag.Load())
	if tag := t.tag.Load(); tag >= 0 {
		for t.ready < t.desc.LayerCount && t.b.mem.Wait(tag, t.ready, 0) {
			t.ready++
		}
	}
	if e, ok := t.err.(*Error); ok {
		e.LayersReady = t.ready
		if t.b.lost() {
			e.letGo()
		}
	}
	t.cancel()
	close(t.done)
	return reusable
}

// send sends one attempt. answered: the store has said that it is over.
func (t *Transfer) send(ctx context.Context, tag int64) (answered bool, wait time.Duration, _ *Error) {
	d := t.desc
	target := *d.Target
	target.Tag = tag
	d.Target = &target
	body, err := descriptor.Marshal(descriptor.JSON, &d)
	if err != nil {
		return true, 0, &Error{Code: "InvalidArgument", Matched: -1, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return true, 0, networkError(err) // nothing was asked
	}
	ctx, stop := t.watch(ctx, tag)
	defer stop()
	resp, err := t.b.c.sendOnce(ctx, call{method: http.MethodPost, query: "kv-get", body: body, into: true,
		header: map[string]string{"Content-Type": "application/json"}}, sha256Hex(body), "")
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoLayer) {
			err = errNoLayer
		}
		return false, 0, networkError(err)
	}
	if resp.StatusCode != http.StatusOK {
		wait = retryAfter(resp)
		e := answerError(resp)
		return e.ends(), wait, e
	}
	defer drain(resp.Body)
	if err := readJSON(resp, &t.sum); err != nil {
		var e *Error
		errors.As(err, &e) // readJSON returns nothing else
		return false, 0, e
	}
	return true, 0, nil
}

var errNoLayer = errors.New("no layer became ready for too long")

// watch ends the context it returns when no layer has become ready for
// HeaderTimeout: how long all of them may take, nobody knows. The caller calls
// stop when it has its answer.
func (t *Transfer) watch(ctx context.Context, tag int64) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if t.b.c.ownConn != nil { // as with HeaderTimeout for all other requests
		go func() {
			tick := time.NewTicker(t.b.c.cfg.HeaderTimeout)
			defer tick.Stop()
			for ready, before := 0, -1; ready > before; {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				for before = ready; ready < t.desc.LayerCount && t.b.mem.Wait(tag, ready, 0); {
					ready++
				}
			}
			cancel(errNoLayer)
		}()
	}
	return ctx, func() { cancel(nil) }
}

// waitSlice bounds one sleep on a word, and so how late an end is noticed that
// does not show in the words.
const waitSlice = 20 * time.Millisecond

// WaitLayer returns when every byte of a layer (the model's, as in
// Layer.Index) is in the buffer. If the transfer fails before, or ctx ends, it
// returns the error. With no chunk matched every layer is ready and empty.
func (t *Transfer) WaitLayer(ctx context.Context, layer int) error {
	i := layer - t.desc.FirstLayer
	if i < 0 || i >= t.desc.LayerCount {
		return invalid("layer", "%d is not of this transfer", layer)
	}
	for {
		tag := t.tag.Load()
		set := tag >= 0 && t.b.mem.Wait(tag, i, waitSlice)
		select {
		case <-t.done: // then the words may be another's already
			if i < t.ready {
				return nil
			}
			return t.err
		default:
		}
		if set {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return networkError(err)
		}
		if tag < 0 {
			time.Sleep(10 * time.Microsecond) // the request is being built
		}
	}
}

// Wait returns when the transfer is over, with the store's summary.
func (t *Transfer) Wait(ctx context.Context) (*descriptor.Summary, error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		return nil, networkError(ctx.Err())
	}
	if t.err != nil {
		return nil, t.err
	}
	return &t.sum, nil
}

// Close breaks the transfer off if it is not over, and returns when nothing
// more is written to its part of the buffer.
func (t *Transfer) Close() {
	t.cancel()
	<-t.done
}
