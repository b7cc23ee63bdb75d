//go:build linux

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/shm"
)

// Buffer is memory that the store writes layers to. It may be used
// concurrently: as many transfers as the store allows, into parts of it that do
// not overlap.
type Buffer struct {
	c      *Client
	mem    *shm.Memory
	n      int64
	handle string
	ctx    context.Context // ends at Close; transfers and renewals live under it
	cancel context.CancelFunc
	work   sync.WaitGroup

	slots chan int // free
	mu    sync.Mutex
	gens  [registry.Slots]int64 // generations used of each slot
	ended bool
}

// letGo is how long a store may take to let go of memory that is withdrawn. One
// that takes longer hangs, and is left to itself: it cannot harm, for the pages
// it holds are no one else's once the Buffer is closed.
const letGo = 5 * time.Second

// Register makes n bytes of memory and lets the store write to them. The store
// must run on this host with a socket for it (serve --shm-listen), else the
// error is an *Error with code NotImplemented. ctx bounds the registration, not
// the Buffer's life; Close ends that.
func (c *Client) Register(ctx context.Context, n int64) (*Buffer, error) {
	if n <= 0 {
		return nil, invalid("length", "is %d", n)
	}
	mem, err := shm.NewMemory(n)
	if err != nil {
		return nil, &Error{Code: "SharedMemory", Matched: -1, Err: err}
	}
	b := &Buffer{c: c, mem: mem, n: n, slots: make(chan int, registry.Slots)}
	expires, err := b.register(ctx)
	if err != nil {
		_ = mem.Close(letGo) // the registration's error counts
		return nil, err
	}
	for s := range registry.Slots {
		b.slots <- s
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.work.Go(func() { b.renew(expires) })
	return b, nil
}

// register goes through the steps that transport/shm describes.
func (b *Buffer) register(ctx context.Context) (expires time.Duration, err error) {
	a, err := b.c.kvRegister(ctx, &descriptor.Register{Provider: descriptor.ProviderShm, Length: int64(len(b.mem.Bytes()))})
	if err != nil {
		return 0, err
	}
	socket := b.c.cfg.ShmSocket
	if socket == "" {
		socket = a.Socket
	}
	if a.NonceBytes != registry.NonceBytes {
		return 0, &Error{Code: "InvalidResponse", Message: fmt.Sprintf("a nonce of %d bytes", a.NonceBytes), Matched: -1}
	}
	if err := b.mem.Offer(ctx, socket, a.ID); err != nil {
		return 0, &Error{Code: "SharedMemory", Matched: -1, Err: err}
	}
	if a, err = b.c.kvRegister(ctx, &descriptor.Register{ID: a.ID, Nonce: b.mem.Nonce()}); err != nil {
		return 0, err
	}
	if a.Handle == "" || a.Slots != registry.Slots || a.MaxLayers != registry.MaxLayers {
		return 0, &Error{Code: "InvalidResponse", Message: "the store's shared memory is of another version", Matched: -1}
	}
	clear(b.mem.Bytes()[:registry.NonceBytes])
	b.handle = a.Handle
	return time.Duration(a.ExpiresInMillis) * time.Millisecond, nil
}

// kvRegister sends one registration request.
func (c *Client) kvRegister(ctx context.Context, q *descriptor.Register) (*descriptor.Registered, error) {
	body, err := descriptor.MarshalRegister(q)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, call{method: http.MethodPost, query: "kv-register", body: body,
		header: map[string]string{"Content-Type": "application/json"}})
	if err != nil {
		return nil, err
	}
	defer drain(resp.Body)
	a := new(descriptor.Registered)
	if err := readJSON(resp, a); err != nil {
		return nil, err
	}
	return a, nil
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

// renew keeps the handle of an idle buffer alive.
func (b *Buffer) renew(expires time.Duration) {
	if expires <= 0 {
		return
	}
	t := time.NewTicker(max(expires/3, time.Second))
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.mem.Gone():
			return
		case <-t.C:
			if _, err := b.c.kvRegister(b.ctx, &descriptor.Register{Handle: b.handle}); err != nil && b.ctx.Err() == nil {
				b.c.log.WarnContext(b.ctx, "renewing registered memory", "error", err)
			}
		}
	}
}

// Bytes is the memory, n bytes, zero at first. It must not be touched after
// Close. Parts that a transfer goes to hold anything until their layer is ready.
func (b *Buffer) Bytes() []byte { return b.mem.Bytes()[:b.n:b.n] }

// Lost is closed when the store no longer holds the memory: it has ended, the
// registration expired, or a transfer was given up without an answer. Nobody
// else writes to it any more. Transfers into a lost buffer fail.
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
	return b.mem.Close(letGo)
}

// nextTag is a new tag of a slot that the caller has.
func (b *Buffer) nextTag(slot int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	tag := b.gens[slot]*registry.Slots + int64(slot)
	b.gens[slot]++
	return tag
}
