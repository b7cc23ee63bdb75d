package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway"
	"github.com/objcached/objcached/tenant"
	"github.com/objcached/objcached/transport/registry"
)

// Transport reaches clients' memory by one provider. One of shared memory is
// here; another is one line in Options.
type Transport interface {
	// Provider is the name by which a registration asks for it, and what a
	// client needs to know to do so.
	Provider() descriptor.Provider
	// Register answers a kv-register that names memory of this provider: it
	// reserves an id in the registry that the transport was opened with, and
	// attaches the memory to it, now or when the client hands it over. Only the
	// id, the socket and the expiry need be set. Its errors about what the client
	// sent are *descriptor.FieldError and those of package registry; keys are in none.
	Register(ctx context.Context, who registry.Owner, q *descriptor.Register) (*descriptor.Registered, error)
	// Close withdraws the memory that came through it and waits until the
	// deliveries into it have ended.
	Close() error
}

// OpenTransport opens a transport whose memory goes to reg.
type OpenTransport func(reg *registry.Registry, log *slog.Logger) (Transport, error)

// memory is clients' memory, whatever transport reaches it: the gateway's view.
type memory struct {
	reg        *registry.Registry
	offered    []descriptor.Provider
	transports map[string]Transport // by provider
	data       *deliver.Deliverer   // for single objects
}

// memoryLimits adds to what clients may register that no tenant can take all of
// it from the others, as with the slots of requests.
func memoryLimits(o Options, cfg registry.Config) registry.Config {
	if o.Credentials != "" {
		cfg.TenantBytes = max(1, cfg.Bytes/4*3)
	}
	return cfg
}

// openMemory opens all transports over one registry: its limits are for all of
// them together.
func openMemory(cfg registry.Config, open []OpenTransport, log *slog.Logger) (_ *memory, err error) {
	m := &memory{reg: registry.New(cfg), transports: map[string]Transport{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	for _, f := range open {
		t, err := f(m.reg, log)
		if err != nil {
			return nil, err
		}
		p := t.Provider()
		if m.transports[p.Provider] != nil {
			return nil, errors.Join(fmt.Errorf("two transports are called %q", p.Provider), t.Close())
		}
		m.transports[p.Provider] = t
		m.offered = append(m.offered, p)
	}
	return m, nil
}

// Close ends the deliveries that are under way.
func (m *memory) Close() error {
	var errs []error
	for _, t := range m.transports {
		errs = append(errs, t.Close())
	}
	return errors.Join(append(errs, m.reg.Close())...)
}

func owner(who *tenant.Identity) registry.Owner {
	return registry.Owner{Tenant: who.Tenant, AccessKey: who.AccessKey}
}

// Providers implements gateway.Memory.
func (m *memory) Providers() []descriptor.Provider { return m.offered }

// withdrawal bounds how long a withdrawal waits for the deliveries to end.
const withdrawal = 10 * time.Second

// Register implements gateway.Memory.
func (m *memory) Register(ctx context.Context, who *tenant.Identity, q *descriptor.Register) (a *descriptor.Registered, err error) {
	var expires time.Duration
	a = new(descriptor.Registered)
	switch {
	case q.Withdraw:
		ctx, cancel := context.WithTimeout(ctx, withdrawal)
		defer cancel()
		if err = m.reg.Withdraw(ctx, owner(who), q.Handle); errors.Is(err, context.DeadlineExceeded) {
			err = &descriptor.BusyError{Limit: "time for the deliveries into the memory to end"}
		}
	case q.Handle != "":
		expires, err = m.reg.Renew(owner(who), q.Handle)
		a.ExpiresInMillis = expires.Milliseconds()
	case q.ID != "":
		a.Handle, expires, err = m.reg.Confirm(owner(who), q.ID, q.Nonce)
		a.Slots, a.MaxLayers, a.ExpiresInMillis = registry.Slots, registry.MaxLayers, expires.Milliseconds()
	default:
		t := m.transports[q.Provider]
		if t == nil { // the gateway has asked Providers
			return nil, fmt.Errorf("no transport %q", q.Provider)
		}
		if a, err = t.Register(ctx, owner(who), q); err == nil {
			a.NonceBytes = registry.NonceBytes
		}
	}
	if err != nil {
		return nil, memoryError("", err)
	}
	return a, nil
}

// Deliver implements gateway.Memory.
func (m *memory) Deliver(ctx context.Context, who *tenant.Identity, y gateway.Delivery, d *descriptor.Descriptor) (*descriptor.Summary, error) {
	sum := &descriptor.Summary{Mode: y.Mode(), Matched: y.Matched(), PerLayerMicros: []int64{}}
	prepared, ok := y.(*deliver.Delivery)
	if !ok {
		return sum, fmt.Errorf("a delivery of type %T", y) // wired wrongly
	}
	t := d.Target
	ctx, grant, err := m.reg.Open(ctx, owner(who), registry.Window{Handle: t.Handle, Offset: t.Offset, Length: t.Length,
		Tag: t.Tag, FirstLayer: d.FirstLayer, Layers: d.LayerCount})
	if err != nil {
		return sum, memoryError("rdma_target.", err)
	}
	sink, err := grant.Sink(ctx)
	if err != nil {
		return sum, memoryError("rdma_target.", err)
	}
	res, err := prepared.DeliverInto(ctx, sink)
	sum.Bytes, sum.GrantedRate = res.Bytes, res.GrantedRate
	for _, took := range res.Layers {
		sum.PerLayerMicros = append(sum.PerLayerMicros, took.Microseconds())
	}
	if err != nil {
		err = memoryError("rdma_target.", err)
	}
	return sum, err
}

// memoryFields says which field an error is about.
var memoryFields = []struct {
	err   error
	field string
}{
	{registry.ErrHandle, "handle"}, {registry.ErrID, "id"}, {registry.ErrNoPeer, "id"}, {registry.ErrNonce, "nonce"}, {registry.ErrTag, "tag"},
	{registry.ErrWindow, "length"}, {registry.ErrLength, "length"}, {registry.ErrRevoked, "handle"}, {registry.ErrNoSource, "handle"},
}

// memoryError says an error of package registry in the gateway's words.
func memoryError(prefix string, err error) error {
	var busy *registry.BusyError
	switch {
	case errors.As(err, &busy):
		return &descriptor.BusyError{Limit: busy.Limit}
	case errors.Is(err, registry.ErrLayers):
		return &descriptor.FieldError{Field: "layer_count", Reason: fmt.Sprintf("over the limit of %d layers into memory", registry.MaxLayers)}
	}
	for _, f := range memoryFields {
		if errors.Is(err, f.err) {
			return &descriptor.FieldError{Field: prefix + f.field, Reason: f.err.Error()}
		}
	}
	return err
}
