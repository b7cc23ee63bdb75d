package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/registry"
)

// Buffer is memory that the store writes layers to. It may be used
// concurrently: as many transfers as the store allows, into parts of it that do
// not overlap.
type Buffer struct {
	c      *Client
	mem    memory
	n      int64
	handle string
	ctx    context.Context // ends at Close; transfers and renewals live under it
	cancel context.CancelFunc
	work   sync.WaitGroup

	slots chan int      // free
	doubt chan struct{} // the store is to be asked whether it knows the handle
	mu    sync.Mutex
	gens  [registry.Slots]int64 // generations used of each slot
	ended bool
}

// letGo is how long a store may take to let go of memory that is withdrawn. One
// that takes longer hangs, and is left to itself: it cannot harm, for the pages
// it holds are no one else's once the Buffer is closed.
const letGo = 5 * time.Second

// Register makes n bytes of memory and lets the store write to them: shared
// memory where the store runs on this host and has a socket for it (serve
// --shm-listen), else by another of the providers that the store offers. If
// there is none that can be used from here, the error is an *Error with code
// NotImplemented. ctx bounds the registration, not the Buffer's life; Close ends
// that.
func (c *Client) Register(ctx context.Context, n int64) (*Buffer, error) {
	if n <= 0 {
		return nil, invalid("length", "is %d", n)
	}
	mem, a, err := c.register(ctx, n)
	if err != nil {
		return nil, err
	}
	b := &Buffer{c: c, mem: mem, n: n, handle: a.Handle, slots: make(chan int, registry.Slots), doubt: make(chan struct{}, 1)}
	for s := range registry.Slots {
		b.slots <- s
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.work.Go(func() { b.renew(time.Duration(a.ExpiresInMillis) * time.Millisecond) })
	return b, nil
}

// maxJSON is as much of a JSON answer as is read: 1024 layers take 20 KB.
const maxJSON = 1 << 20

func readJSON(resp *http.Response, v any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON))
	if err != nil {
		return networkError(err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return &Error{Code: "InvalidResponse", StatusCode: resp.StatusCode, RequestID: resp.Header.Get("X-Amz-Request-Id"), Matched: -1, Err: err}
	}
	return nil
}

// renew keeps the handle of an idle buffer alive, and takes the memory back when
// the store no longer knows it or cannot be asked for as long as handles live.
func (b *Buffer) renew(expires time.Duration) {
	if expires <= 0 {
		return
	}
	t := time.NewTicker(max(expires/3, time.Second))
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.mem.Gone():
			return
		case <-t.C:
		case <-b.doubt:
		}
		err := b.c.kvRegister(b.ctx, &descriptor.Register{Handle: b.handle}, new(descriptor.Registered))
		if err == nil {
			last = time.Now()
			continue
		}
		if b.ctx.Err() != nil {
			return
		}
		b.c.log.WarnContext(b.ctx, "renewing registered memory", "error", err)
		var e *Error
		if errors.As(err, &e) && e.Field == "handle" || time.Since(last) > expires {
			b.mem.Withdraw(letGo)
			return
		}
	}
}

// refused notes that the store has refused the handle: it may know it no more.
func (b *Buffer) refused(e *Error) {
	if e.Field == "rdma_target.handle" {
		select {
		case b.doubt <- struct{}{}:
		default: // it is being asked
		}
	}
}

// Bytes is the memory, n bytes, zero at first. It must not be touched after
// Close. Parts that a transfer goes to hold anything until their layer is ready.
func (b *Buffer) Bytes() []byte { return b.mem.Bytes()[:b.n:b.n] }

// Lost is closed when the store no longer holds the memory: it has ended, the
// registration expired, or a transfer was given up without an answer. Nobody
// else writes to it any more. Transfers into a lost buffer fail.
//
// Shared memory shows the end of a store at once. Over a fabric a transfer shows
// it, which fails when its connection does and at the latest after
// Config.HeaderTimeout, or the handle's renewal: a buffer that nobody uses is lost
// when no answer came for as long as a handle lives. A store that hangs cannot be
// made to let go; this side then closes the region and its endpoint, after which
// the device refuses whatever is written.
func (b *Buffer) Lost() <-chan struct{} { return b.mem.Gone() }

// Close ends the transfers under way, withdraws the memory and unmaps it.
func (b *Buffer) Close() error {
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return nil
	}
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	b.work.Wait()
	if !b.mem.noticed() {
		b.tell()
	}
	return b.mem.Close(letGo)
}

// tell tells the store that the memory is taken back, so that it no longer
// counts. A store that does not answer finds out when the handle expires.
func (b *Buffer) tell() {
	select {
	case <-b.mem.Gone():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), letGo)
	defer cancel()
	if err := b.c.kvRegister(ctx, &descriptor.Register{Handle: b.handle, Withdraw: true}, new(descriptor.Registered)); err != nil {
		b.c.log.DebugContext(ctx, "withdrawing registered memory", "error", err)
	}
}

// nextTag is a new tag of a slot that the caller has.
func (b *Buffer) nextTag(slot int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	tag := b.gens[slot]*registry.Slots + int64(slot)
	b.gens[slot]++
	return tag
}
