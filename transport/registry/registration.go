package registry

import (
	"context"
	"io"
	"time"
)

// Registration is one client's memory, from Reserve until it is released.
// Everything but what is set at Reserve is guarded by the registry's mutex.
type Registration struct {
	g        *Registry
	owner    Owner
	provider string
	length   int64
	id       string

	attaching bool   // a transport is getting the memory; nobody else may, nor release
	mem       Memory // nil: not attached, or released
	nonce     [NonceBytes]byte
	handle    string // empty: not confirmed
	deadline  time.Time
	revoked   bool

	used     [Slots]uint32 // the last generation of each slot
	busy     [Slots]bool
	grants   map[*Grant]struct{}
	released chan struct{} // closed when nothing is held and counted any more
}

// Attach gives a reserved id of the same provider its memory: get returns it,
// for the length that was reserved, and then the nonce is written. An error of
// get (which then has let go of everything) or of the writing ends the
// registration and is returned as it is; the other error is ErrID. ctx bounds
// the writing alone.
func (g *Registry) Attach(ctx context.Context, id, provider string, get func(length int64) (Memory, error)) (*Registration, error) {
	g.mu.Lock()
	r := g.ids[id]
	if r == nil || r.provider != provider || r.attaching || r.mem != nil || !g.cfg.Now().Before(r.deadline) {
		g.mu.Unlock()
		return nil, ErrID
	}
	r.attaching = true
	g.mu.Unlock()

	mem, err := get(r.length)
	if err == nil {
		if _, err = io.ReadFull(g.cfg.Rand, r.nonce[:]); err == nil {
			err = mem.WriteNonce(ctx, r.nonce[:])
		}
		if err != nil {
			mem.Release()
			mem = nil
		}
	}

	g.mu.Lock()
	r.attaching = false
	r.mem = mem
	dead := r.revoked // while we were at it
	if err != nil || dead {
		r.revokeLocked()
		g.mu.Unlock()
		r.release()
		if err == nil {
			err = ErrID
		}
		return nil, err
	}
	g.mu.Unlock()
	return r, nil
}

// Released is closed when the registration is over: no delivery is under way
// and its memory is released.
func (r *Registration) Released() <-chan struct{} { return r.released }

// Revoke ends a registration: its handle works no more, its deliveries are
// told, and it is released when the last of them has ended. It may be called
// more than once.
func (r *Registration) Revoke() {
	r.g.mu.Lock()
	release := r.revokeLocked()
	r.g.mu.Unlock()
	if release {
		r.release()
	}
}

// revokeLocked reports whether the caller must release r once it has let go of
// the mutex; else whoever still uses r does.
func (r *Registration) revokeLocked() (release bool) {
	if r.revoked {
		return false
	}
	r.revoked = true
	g := r.g
	if r.handle == "" {
		delete(g.ids, r.id)
		g.total.Pending--
		g.tenant(r.owner.Tenant).Pending--
	} else {
		delete(g.handles, r.handle)
		g.ending[r.handle] = r
	}
	for t := range r.grants {
		t.revoked.Store(true)
		t.cancel(ErrRevoked)
	}
	return len(r.grants) == 0 && !r.attaching
}

// release lets go of a revoked registration that nobody uses. It is called
// once, without the mutex: a transport may take its time.
func (r *Registration) release() {
	if r.mem != nil {
		r.mem.Release()
	}
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	r.mem = nil
	for _, h := range [...]*Stats{&g.total, g.tenant(r.owner.Tenant)} {
		h.Bytes -= r.length
		h.Registrations--
	}
	delete(g.all, r)
	delete(g.ending, r.handle)
	g.forget(r.owner.Tenant)
	close(r.released)
}

// janitor ends what has expired.
func (g *Registry) janitor() {
	t := time.NewTicker(max(time.Millisecond, min(time.Second, g.cfg.PendingFor/2)))
	defer t.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-t.C:
			g.Expire()
		}
	}
}

// Expire revokes every registration whose time is over and that is not in use.
// The registry does so by itself about every second.
func (g *Registry) Expire() {
	g.mu.Lock()
	now := g.cfg.Now()
	var over []*Registration
	for r := range g.all {
		// One found revoked is being released by another already.
		if len(r.grants) == 0 && !now.Before(r.deadline) && r.revokeLocked() {
			over = append(over, r)
		}
	}
	g.mu.Unlock()
	for _, r := range over {
		r.release()
	}
}
