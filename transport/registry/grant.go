package registry

import (
	"context"
	"sync/atomic"

	"github.com/objcached/objcached/transport"
)

// Window says where a delivery goes.
type Window struct {
	Handle         string
	Offset, Length int64 // bytes
	Tag            int64
	FirstLayer     int // the first layer that will be announced
	Layers         int
}

// Grant is the right of one delivery to write to a window of a client's memory.
// Until Close the memory stays attached, also after the client has gone.
type Grant struct {
	Offset, Length     int64 // of the window, in the memory
	FirstLayer, Layers int
	Tag                int64
	Slot               int    // of the tag, see Slot
	Generation         uint32 // of the tag, see Generation

	r       *Registration
	cancel  context.CancelCauseFunc
	revoked atomic.Bool
	closed  atomic.Bool
}

// Open begins a delivery and uses up its tag. The context it returns ends when
// the registration is revoked (its cause is ErrRevoked then), and with ctx; the
// caller stops then. It closes the grant in any case, or the sink that it made
// of it. The errors are ErrHandle, ErrWindow, ErrLayers, ErrTag and *BusyError;
// after any of them the tag is as it was.
func (g *Registry) Open(ctx context.Context, owner Owner, w Window) (context.Context, *Grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.find(owner, w.Handle)
	if err != nil {
		return nil, nil, err
	}
	h := g.tenant(owner.Tenant)
	slot, gen := Slot(w.Tag), Generation(w.Tag)
	switch {
	case w.Offset < 0 || w.Length <= 0 || w.Offset > r.length || w.Length > r.length-w.Offset:
		return nil, nil, ErrWindow
	case w.Layers <= 0 || w.Layers > MaxLayers:
		return nil, nil, ErrLayers
	case w.Tag < 0 || w.Tag > MaxTag || gen <= r.used[slot]:
		return nil, nil, ErrTag
	case r.busy[slot]:
		return nil, nil, &BusyError{"deliveries into one memory with tags of one slot"}
	case g.total.Transfers >= g.cfg.Transfers:
		return nil, nil, &BusyError{"deliveries into memory"}
	case h.Transfers >= g.cfg.TenantTransfers:
		return nil, nil, &BusyError{"deliveries into memory of this tenant"}
	}
	r.used[slot], r.busy[slot] = gen, true
	g.total.Transfers++
	h.Transfers++
	ctx, cancel := context.WithCancelCause(ctx)
	t := &Grant{Offset: w.Offset, Length: w.Length, FirstLayer: w.FirstLayer, Layers: w.Layers, Tag: w.Tag, Slot: slot, Generation: gen, r: r, cancel: cancel}
	r.grants[t] = struct{}{}
	return ctx, t, nil
}

// Sink is the window as its transport writes to it; closing it closes the
// grant. After an error the grant is closed too. ctx is the one of Open.
func (t *Grant) Sink(ctx context.Context) (transport.Sink, error) {
	s, err := t.r.mem.Sink(ctx, t) // mem is released after the last grant only
	if err != nil {
		t.Close()
		return nil, err
	}
	return s, nil
}

// Source is the window as its transport reads from it, for a memory that is a
// SourceMemory; else the error is ErrNoSource. It is Sink's twin in all else.
func (t *Grant) Source(ctx context.Context) (transport.Source, error) {
	m, ok := t.r.mem.(SourceMemory)
	if !ok {
		t.Close()
		return nil, ErrNoSource
	}
	s, err := m.Source(ctx, t)
	if err != nil {
		t.Close()
		return nil, err
	}
	return s, nil
}

// Revoked reports whether the registration has been revoked.
func (t *Grant) Revoked() bool { return t.revoked.Load() }

// Close says that nothing more will be written under the grant. If it is the
// last one of a registration that was revoked, the memory is released before it
// returns. It may be called more than once.
func (t *Grant) Close() {
	if t.closed.Swap(true) {
		return
	}
	t.cancel(nil)
	r, g := t.r, t.r.g
	g.mu.Lock()
	delete(r.grants, t)
	r.busy[t.Slot] = false
	r.deadline = g.cfg.Now().Add(g.cfg.Idle)
	g.total.Transfers--
	g.tenant(r.owner.Tenant).Transfers--
	release := r.revoked && len(r.grants) == 0
	g.mu.Unlock()
	if release {
		r.release()
	}
}
