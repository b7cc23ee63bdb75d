package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
)

// KeyBytes is the size of a region's key on the wire: a uint64, little endian.
const KeyBytes = 8

// registering bounds how long a client may take to receive its nonce.
const registering = 5 * time.Second

// Server gives the memory of clients that a device reaches to a registry. It may
// be used concurrently.
type Server struct {
	d        *Domain
	reg      *registry.Registry
	log      *slog.Logger
	provider string
	probe    time.Duration
	work     sync.WaitGroup // watches

	mu     sync.Mutex
	closed bool
}

// Serve opens the device; cfg.Provider must be set. The registry stays the caller's. A nil log is none.
// Its errors are ErrUnknown, ErrNotBuilt, ErrNoProvider, and the device's.
func Serve(cfg Config, reg *registry.Registry, log *slog.Logger) (*Server, error) {
	if !slices.Contains(Providers, cfg.Provider) {
		return nil, fmt.Errorf("%w %q: it is one of %q", ErrUnknown, cfg.Provider, Providers)
	}
	d, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{d: d, reg: reg, log: log, provider: WireName(cfg.Provider), probe: cfg.Probe}
	if s.probe == 0 {
		s.probe = 5 * time.Second
	}
	log.Info("delivery over libfabric", "provider", d.Provider(), "ordered", d.Ordered(), "buffer_bytes", int64(d.Stats().Buffers)*int64(d.Stats().BufferBytes))
	return s, nil
}

// Provider is what kv-register calls the device's provider.
func (s *Server) Provider() string { return s.provider }

// Stats returns what is held now.
func (s *Server) Stats() Stats { return s.d.Stats() }

// Register reserves an id for the memory that a names, whose provider is not
// looked at, and writes the nonce into it. When the client is gone, which is
// looked after also while nothing is delivered, the registration is revoked. The
// errors are ErrAddress, ErrGone for one that takes nothing, those of
// Registry.Reserve and Attach, and the device's.
func (s *Server) Register(ctx context.Context, who registry.Owner, a Address) (id string, expires time.Duration, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", 0, registry.ErrClosed
	}
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()
	a.Provider = s.d.Provider()
	if id, expires, err = s.reg.Reserve(who, s.provider, a.Length); err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, registering, ErrGone)
	defer cancel()
	var r *Remote
	g, err := s.reg.Attach(ctx, id, s.provider, func(int64) (registry.Memory, error) {
		if r, err = s.d.Remote(a); err != nil {
			return nil, err
		}
		return lent{r}, nil
	})
	switch {
	case errors.Is(err, ErrBusy):
		return "", 0, &registry.BusyError{Limit: "clients of the fabric"}
	case err != nil:
		return "", 0, err
	}
	s.work.Go(func() { s.watch(r, g) })
	return id, expires, nil
}

// watch revokes a registration whose client is gone, and returns when it is released.
func (s *Server) watch(r *Remote, g *registry.Registration) {
	t := time.NewTicker(s.probe)
	defer t.Stop()
	for {
		select {
		case <-g.Released():
			return
		case <-r.Gone():
			if err := r.Err(); !errors.Is(err, ErrClosed) {
				s.log.Info("a client of the fabric is gone", "cause", err)
			}
			g.Revoke()
			<-g.Released()
			return
		case <-t.C:
			_ = r.Probe(context.Background()) // if it fails the client is gone, or was closed
		}
	}
}

// Close drops every client, waits until the deliveries into their memory have
// ended, and closes the device.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.d.Close()
	s.work.Wait()
	return err
}

// Key is a region's key from its form on the wire.
func Key(wire []byte) (key uint64, ok bool) {
	if len(wire) != KeyBytes {
		return 0, false
	}
	return binary.LittleEndian.Uint64(wire), true
}

// WireKey is Key's inverse.
func WireKey(key uint64) []byte { return binary.LittleEndian.AppendUint64(nil, key) }

// lent is a client's memory as a registry has it.
type lent struct{ *Remote }

var _ registry.SourceMemory = lent{}

// Sink implements registry.Memory.
func (m lent) Sink(ctx context.Context, g *registry.Grant) (transport.Sink, error) {
	t, err := m.Open(ctx, Window{Offset: g.Offset, Length: g.Length, Tag: g.Tag, FirstLayer: g.FirstLayer, Layers: g.Layers})
	if err != nil {
		return nil, err
	}
	return &granted{t, g}, nil
}

// Source implements registry.SourceMemory.
func (m lent) Source(ctx context.Context, g *registry.Grant) (transport.Source, error) {
	s, err := m.OpenSource(ctx, Window{Offset: g.Offset, Length: g.Length, Tag: g.Tag, FirstLayer: g.FirstLayer, Layers: g.Layers})
	if err != nil {
		return nil, err
	}
	return &grantedSource{s, g}, nil
}

// Release implements registry.Memory. The client is not told: only a probe of
// its own, or the answer to its next request, shows that it is dropped.
func (m lent) Release() { _ = m.Remote.Close() }

// granted is a delivery under a grant.
type granted struct {
	*Transfer
	grant *registry.Grant
}

// Close ends the delivery, and then the grant: nothing is written any more.
func (s *granted) Close() error {
	err := s.Transfer.Close()
	s.grant.Close()
	return err
}

// grantedSource is a transfer out of memory under a grant.
type grantedSource struct {
	*Source
	grant *registry.Grant
}

// Close ends the transfer, and then the grant.
func (s *grantedSource) Close() error {
	err := s.Source.Close()
	s.grant.Close()
	return err
}
