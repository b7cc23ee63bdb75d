// Package registry holds the rules by which clients' memory is lent to
// deliveries, whatever transport reaches that memory: remote memory is a
// capability, proven before use.
//
//  1. Reserve: a client names a provider and a length and gets an id, good for a
//     short time.
//  2. Attach: the provider's transport gives the id its Memory, and a random
//     nonce is written at that memory's start.
//  3. Confirm: the client returns the nonce, which only one who reads that
//     memory can know, and gets a handle.
//  4. Open: a delivery names the handle, a window of the memory and a tag, and
//     gets a Grant. Each (handle, tag) works once.
//
// A handle works for the tenant and access key that reserved it, until it is
// revoked (by its client, by its transport, by Close) or has not been used for
// Config.Idle; use and Renew start that time anew. A Memory is released only
// after the last delivery into it has ended.
//
// One Registry serves all transports of a server, so that its limits hold for
// all of them together.
package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/objcached/objcached/transport"
)

// Sizes and counts that hold for every transport, and that clients are told.
const (
	NonceBytes = 32
	Slots      = 16   // deliveries into one memory at a time
	MaxLayers  = 1024 // of one delivery

	// MaxTag is the last tag whose generation fits 32 bits.
	MaxTag = Slots*(math.MaxUint32-1) + Slots - 1

	idBytes = 24 // of randomness in an id or a handle
)

// Slot is where a delivery with this tag is announced; deliveries into one
// memory that are under way at one time have different slots.
func Slot(tag int64) int { return int(tag % Slots) }

// Generation tells the deliveries of one slot apart: it starts at 1 and rises
// with the tag.
func Generation(tag int64) uint32 { return uint32(tag/Slots + 1) }

// Errors of a Registry. None of them holds a handle, an id or a nonce.
var (
	ErrHandle   = errors.New("memory: the handle is unknown, expired, closed or another's")
	ErrID       = errors.New("memory: the id is unknown, expired, already used or another's")
	ErrNoPeer   = errors.New("memory: it has not been handed over yet")
	ErrNonce    = errors.New("memory: the nonce is wrong")
	ErrTag      = errors.New("memory: the tag is used up or out of range")
	ErrWindow   = errors.New("memory: the window lies outside of it")
	ErrLayers   = errors.New("memory: too many layers for one delivery")
	ErrLength   = errors.New("memory: the length is not positive, or over the limit of one registration")
	ErrRevoked  = errors.New("memory: withdrawn by its client, or lost")
	ErrNoSource = errors.New("memory: its transport writes to it and cannot read from it")
	ErrClosed   = errors.New("memory: the server is ending")
)

// BusyError says that a limit is reached; try again later.
type BusyError struct{ Limit string }

func (e *BusyError) Error() string { return "memory: over the limit of " + e.Limit }

// Owner is who a registration belongs to.
type Owner struct{ Tenant, AccessKey string }

// Memory is one client's memory as its transport reaches it.
type Memory interface {
	// WriteNonce writes the nonce at the memory's first byte. It is called
	// once, before anything else, and returns when the client can read it.
	WriteNonce(ctx context.Context, nonce []byte) error
	// Sink lends the grant's window to one delivery. The sink owns the grant
	// and closes it when nothing more can be written; after an error it is the
	// caller's still. ctx is the delivery's, see Registry.Open. An error that
	// wraps one of this package's is the client's fault, as it is from Open.
	// Sinks with different grants are used at the same time.
	Sink(ctx context.Context, g *Grant) (transport.Sink, error)
	// Release lets go of the memory, and then tells the client so if the
	// transport can. It is called once, also after a WriteNonce that failed,
	// when no sink is open and none will be.
	Release()
}

// SourceMemory is a Memory that can be read from too.
type SourceMemory interface {
	Memory
	// Source lends the grant's window to one transfer out of the client's
	// memory. The source owns the grant as a sink does.
	Source(ctx context.Context, g *Grant) (transport.Source, error)
}

// Config bounds what clients may hold. A zero field means its default.
type Config struct {
	Bytes       int64 // registered or about to be, of all clients; default 1 GiB
	TenantBytes int64 // of one tenant; default Bytes

	Registrations       int // of all clients; default 1024
	TenantRegistrations int // of one tenant; default 256
	Pending             int // of them not confirmed; default 64
	TenantPending       int // of one tenant; default 16
	Transfers           int // deliveries under way; default 1024
	TenantTransfers     int // of one tenant; default 256

	PendingFor time.Duration // how long an id is good for, and a second more per GiB; default 5 s
	Idle       time.Duration // how long an unused handle is; default 10 min

	Now  func() time.Time // default time.Now
	Rand io.Reader        // default crypto/rand
}

func (c *Config) setDefaults() {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	c.Bytes = cmp.Or(max(c.Bytes, 0), 1<<30)
	c.TenantBytes = cmp.Or(max(c.TenantBytes, 0), c.Bytes)
	def(&c.Registrations, 1024)
	def(&c.TenantRegistrations, 256)
	def(&c.Pending, 64)
	def(&c.TenantPending, 16)
	def(&c.Transfers, 1024)
	def(&c.TenantTransfers, 256)
	c.PendingFor = cmp.Or(max(c.PendingFor, 0), 5*time.Second)
	c.Idle = cmp.Or(max(c.Idle, 0), 10*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
}

// Stats is what a Registry holds now.
type Stats struct {
	Bytes                             int64 // reserved or attached
	Registrations, Pending, Transfers int
}

// Registry lends clients' memory to deliveries. It may be used concurrently.
type Registry struct {
	cfg  Config
	stop chan struct{}
	work sync.WaitGroup // the janitor

	mu      sync.Mutex
	closed  bool
	ids     map[string]*Registration // reserved, not confirmed
	handles map[string]*Registration
	ending  map[string]*Registration // by handle: revoked, not released
	all     map[*Registration]struct{}
	total   Stats
	tenants map[string]*Stats
}

// New makes an empty registry. The caller closes it.
func New(cfg Config) *Registry {
	cfg.setDefaults()
	g := &Registry{cfg: cfg, stop: make(chan struct{}), ids: map[string]*Registration{}, handles: map[string]*Registration{}, ending: map[string]*Registration{},
		all: map[*Registration]struct{}{}, tenants: map[string]*Stats{}}
	g.work.Go(g.janitor)
	return g
}

// Close revokes every registration and waits until all are released, which is
// when the deliveries into them have ended.
func (g *Registry) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	var all []*Registration
	for r := range g.all {
		all = append(all, r)
	}
	g.mu.Unlock()
	if first {
		close(g.stop)
	}
	for _, r := range all {
		r.Revoke()
	}
	for _, r := range all {
		<-r.released
	}
	g.work.Wait()
	return nil
}

// Stats returns what is held now.
func (g *Registry) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// tenant returns a tenant's holding; the caller holds g.mu.
func (g *Registry) tenant(name string) *Stats {
	h := g.tenants[name]
	if h == nil {
		h = new(Stats)
		g.tenants[name] = h
	}
	return h
}

// forget drops a tenant's holding if it is empty; the caller holds g.mu.
func (g *Registry) forget(name string) {
	if h := g.tenants[name]; h != nil && *h == (Stats{}) {
		delete(g.tenants, name)
	}
}

// Reserve begins a registration of length bytes that the named provider's
// transport will attach. Its errors are ErrLength, ErrClosed and *BusyError.
func (g *Registry) Reserve(owner Owner, provider string, length int64) (id string, expires time.Duration, err error) {
	if length <= 0 || length > g.cfg.Bytes || length > g.cfg.TenantBytes {
		return "", 0, ErrLength
	}
	if id, err = g.token(); err != nil {
		return "", 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.tenant(owner.Tenant)
	defer g.forget(owner.Tenant)
	switch {
	case g.closed:
		return "", 0, ErrClosed
	case g.total.Bytes > g.cfg.Bytes-length:
		return "", 0, &BusyError{"registered bytes"}
	case h.Bytes > g.cfg.TenantBytes-length:
		return "", 0, &BusyError{"registered bytes of this tenant"}
	case g.total.Registrations >= g.cfg.Registrations:
		return "", 0, &BusyError{"registrations"}
	case h.Registrations >= g.cfg.TenantRegistrations:
		return "", 0, &BusyError{"registrations of this tenant"}
	case g.total.Pending >= g.cfg.Pending:
		return "", 0, &BusyError{"registrations not confirmed"}
	case h.Pending >= g.cfg.TenantPending:
		return "", 0, &BusyError{"registrations of this tenant not confirmed"}
	}
	expires = g.cfg.PendingFor + MapTime(length)
	r := &Registration{g: g, owner: owner, provider: provider, length: length, id: id, released: make(chan struct{}),
		deadline: g.cfg.Now().Add(expires), grants: map[*Grant]struct{}{}}
	g.ids[id], g.all[r] = r, struct{}{}
	for _, h := range [...]*Stats{&g.total, h} {
		h.Bytes += length
		h.Registrations++
		h.Pending++
	}
	return id, expires, nil
}

// MapTime is what a transport may take to map or pin so many bytes, besides the
// time that a short step takes: some 0.1 s per GiB are usual.
func MapTime(length int64) time.Duration { return time.Duration(length>>30) * time.Second }

// token makes an id or a handle.
func (g *Registry) token() (string, error) {
	var b [idBytes]byte
	if _, err := io.ReadFull(g.cfg.Rand, b[:]); err != nil {
		return "", fmt.Errorf("memory: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// Confirm ends a registration and gives its handle. A wrong nonce ends it too,
// without one: there is one guess. Its errors are ErrID, ErrNoPeer and ErrNonce.
func (g *Registry) Confirm(owner Owner, id string, nonce []byte) (handle string, expires time.Duration, err error) {
	if handle, err = g.token(); err != nil {
		return "", 0, err
	}
	g.mu.Lock()
	r := g.ids[id]
	switch {
	case r == nil || r.owner != owner || !g.cfg.Now().Before(r.deadline):
		err = ErrID
	case r.mem == nil:
		err = ErrNoPeer
	case subtle.ConstantTimeCompare(nonce, r.nonce[:]) != 1:
		err = ErrNonce
	default:
		delete(g.ids, id)
		g.total.Pending--
		g.tenant(owner.Tenant).Pending--
		r.handle = handle
		r.deadline = g.cfg.Now().Add(g.cfg.Idle)
		g.handles[handle] = r
	}
	g.mu.Unlock()
	if errors.Is(err, ErrNonce) {
		r.Revoke()
	}
	if err != nil {
		return "", 0, err
	}
	return handle, g.cfg.Idle, nil
}

// Renew keeps a handle from expiring for another Config.Idle. Its error is ErrHandle.
func (g *Registry) Renew(owner Owner, handle string) (expires time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.find(owner, handle)
	if err != nil {
		return 0, err
	}
	r.deadline = g.cfg.Now().Add(g.cfg.Idle)
	return g.cfg.Idle, nil
}

// Withdraw revokes a handle's registration and returns when it is released:
// nothing is written to the memory any more. If ctx ends before, it returns the
// context's error; the handle is as dead, and Withdraw may be called again until
// the release. The other error is ErrHandle.
func (g *Registry) Withdraw(ctx context.Context, owner Owner, handle string) error {
	g.mu.Lock()
	r := g.handles[handle]
	if r == nil {
		r = g.ending[handle]
	}
	g.mu.Unlock()
	if r == nil || r.owner != owner {
		return ErrHandle
	}
	r.Revoke()
	select {
	case <-r.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find returns the registration of a handle; the caller holds g.mu.
func (g *Registry) find(owner Owner, handle string) (*Registration, error) {
	r := g.handles[handle]
	if r == nil || r.owner != owner || len(r.grants) == 0 && !g.cfg.Now().Before(r.deadline) {
		return nil, ErrHandle
	}
	return r, nil
}
