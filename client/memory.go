package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/registry"
)

// memory is a Buffer's memory as its transport sees it. It may be used
// concurrently, but for name and offer coming first.
type memory interface {
	// Bytes is all of it: what was asked for, and up to where the transport can
	// register it.
	Bytes() []byte
	// name is the request that names the memory to the store.
	name() *descriptor.Register
	// offer does what is to be done between the store's answer to that and the
	// nonce being at the memory's start, which it is on return.
	offer(ctx context.Context, a *descriptor.Registered) error
	// lastTag is the last tag that the transport can announce.
	lastTag() int64
	// noticed reports whether the store notices by itself that the memory is
	// withdrawn. If not, it is told by a request.
	noticed() bool
	// Wait waits until a layer of the window, counted from 0, or the delivery
	// itself (layer over) with this tag is announced, for at most d, and reports
	// whether it is.
	Wait(tag int64, layer int, d time.Duration) bool
	// Gone is closed when nobody else writes to the memory any more.
	Gone() <-chan struct{}
	// Withdraw takes the memory back. It waits, at most d, until nobody else
	// writes to it, and reports whether that is so. It may be called again.
	Withdraw(d time.Duration) bool
	// Close withdraws the memory and lets go of it.
	Close(d time.Duration) error
}

// over is Wait's layer for the end of a delivery.
const over = -1

// openFunc makes n bytes of memory, or a little more, for a provider that a
// store offers. The error is errAnother if it is of another kind, and wraps
// errNotHere if this host or build cannot use it.
type openFunc func(c *Client, p descriptor.Provider, n int64) (memory, error)

// transports are those that a client has.
var transports = []openFunc{openShm, openFabric}

var (
	errAnother = errors.New("unknown to this client")
	errNotHere = errors.New("not possible here")
)

// openMemory makes memory by the transport that knows the provider.
func (c *Client) openMemory(p descriptor.Provider, n int64) (memory, error) {
	for _, open := range c.transports {
		if m, err := open(c, p, n); !errors.Is(err, errAnother) {
			return m, err
		}
	}
	return nil, errAnother
}

// register makes memory that the store may write to, by the first provider of
// the store's that works from here.
func (c *Client) register(ctx context.Context, n int64) (memory, *descriptor.Registered, error) {
	offered := new(descriptor.Providers)
	if err := c.kvRegister(ctx, &descriptor.Register{Providers: true}, offered); err != nil {
		return nil, nil, err
	}
	none := &Error{Code: "NotImplemented", Field: "provider", Message: "the store takes no memory", Matched: -1}
	for _, p := range offered.Providers {
		if c.cfg.MemoryProvider != "" && c.cfg.MemoryProvider != p.Provider {
			none.Message = "the store does not offer " + c.cfg.MemoryProvider
			continue
		}
		m, err := c.openMemory(p, n)
		if err == nil {
			var a *descriptor.Registered
			if a, err = c.registerMemory(ctx, m); err == nil {
				return m, a, nil
			}
			_ = m.Close(letGo) // the registration's error counts
		}
		var e *Error
		if errors.As(err, &e) && e.StatusCode != 0 {
			return nil, nil, err // the store's own word
		}
		if ctx.Err() != nil {
			return nil, nil, networkError(err)
		}
		if !errors.Is(err, errAnother) && !errors.Is(err, errNotHere) {
			none.Code = "Memory" // it is here, and fails
		}
		none.Message = "by no provider that the store offers"
		none.Err = errors.Join(none.Err, fmt.Errorf("%s: %w", p.Provider, err))
	}
	return nil, nil, none
}

// registerMemory goes through the steps that package registry describes.
func (c *Client) registerMemory(ctx context.Context, m memory) (*descriptor.Registered, error) {
	a := new(descriptor.Registered)
	if err := c.kvRegister(ctx, m.name(), a); err != nil {
		return nil, err
	}
	if a.NonceBytes != registry.NonceBytes {
		return nil, &Error{Code: "InvalidResponse", Message: fmt.Sprintf("a nonce of %d bytes", a.NonceBytes), Matched: -1}
	}
	// A store that hangs must not keep the caller: the id is good for so long.
	short, cancel := context.WithTimeout(ctx, time.Duration(a.ExpiresInMillis)*time.Millisecond)
	defer cancel()
	if err := m.offer(short, a); err != nil {
		return nil, err
	}
	proof := &descriptor.Register{ID: a.ID, Nonce: append([]byte(nil), m.Bytes()[:registry.NonceBytes]...)}
	a = new(descriptor.Registered)
	if err := c.kvRegister(ctx, proof, a); err != nil {
		return nil, err
	}
	if a.Handle == "" || a.Slots != registry.Slots || a.MaxLayers != registry.MaxLayers {
		return nil, &Error{Code: "InvalidResponse", Message: "the store's memory protocol is of another version", Matched: -1}
	}
	clear(m.Bytes()[:registry.NonceBytes])
	return a, nil
}

// kvRegister sends one registration request and reads the answer into a.
func (c *Client) kvRegister(ctx context.Context, q *descriptor.Register, a any) error {
	body, err := descriptor.MarshalRegister(q)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, call{method: http.MethodPost, query: "kv-register", body: body,
		header: map[string]string{"Content-Type": "application/json"}})
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	return readJSON(resp, a)
}
