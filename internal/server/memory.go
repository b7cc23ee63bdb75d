package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway"
	"github.com/objcached/objcached/tenant"
	"github.com/objcached/objcached/transport/shm"
)

// memory is the gateway's view of shared memory.
type memory struct{ shm *shm.Server }

func owner(who *tenant.Identity) shm.Owner {
	return shm.Owner{Tenant: who.Tenant, AccessKey: who.AccessKey}
}

// Register implements gateway.Memory.
func (m memory) Register(_ context.Context, who *tenant.Identity, q *descriptor.Register) (*descriptor.Registered, error) {
	a := new(descriptor.Registered)
	switch {
	case q.Handle != "":
		expires, err := m.shm.Renew(owner(who), q.Handle)
		if err != nil {
			return nil, memoryError("", err)
		}
		a.ExpiresInMillis = expires.Milliseconds()
	case q.ID != "":
		handle, expires, err := m.shm.Confirm(owner(who), q.ID, q.Nonce)
		if err != nil {
			return nil, memoryError("", err)
		}
		a.Handle, a.Slots, a.MaxLayers, a.ExpiresInMillis = handle, shm.Slots, shm.MaxLayers, expires.Milliseconds()
	default:
		id, expires, err := m.shm.Reserve(owner(who), q.Length)
		if err != nil {
			return nil, memoryError("", err)
		}
		a.ID, a.Socket, a.NonceBytes, a.ExpiresInMillis = id, m.shm.Path(), shm.NonceBytes, expires.Milliseconds()
	}
	return a, nil
}

// Deliver implements gateway.Memory.
func (m memory) Deliver(ctx context.Context, who *tenant.Identity, y gateway.Delivery, d *descriptor.Descriptor) (*descriptor.Summary, error) {
	sum := &descriptor.Summary{Mode: y.Mode(), Matched: y.Matched(), PerLayerMicros: []int64{}}
	prepared, ok := y.(*deliver.Delivery)
	if !ok {
		return sum, fmt.Errorf("a delivery of type %T", y) // wired wrongly
	}
	t := d.Target
	ctx, sink, err := m.shm.Open(ctx, owner(who), shm.Window{Handle: t.Handle, Offset: t.Offset, Length: t.Length,
		Tag: t.Tag, FirstLayer: d.FirstLayer, Layers: d.LayerCount})
	if err != nil {
		return sum, memoryError("rdma_target.", err)
	}
	res, err := prepared.DeliverInto(ctx, sink)
	sum.Bytes, sum.GrantedRate = res.Bytes, res.GrantedRate
	for _, took := range res.Layers {
		sum.PerLayerMicros = append(sum.PerLayerMicros, took.Microseconds())
	}
	if errors.Is(err, shm.ErrRevoked) {
		err = &descriptor.FieldError{Field: "rdma_target.handle", Reason: "the memory was withdrawn"}
	}
	return sum, err
}

// memoryFields says which field an error is about.
var memoryFields = []struct {
	err   error
	field string
}{
	{shm.ErrHandle, "handle"}, {shm.ErrID, "id"}, {shm.ErrNoPeer, "id"}, {shm.ErrNonce, "nonce"}, {shm.ErrTag, "tag"},
	{shm.ErrWindow, "length"}, {shm.ErrLength, "length"},
}

// memoryError says an error of shm in the gateway's words.
func memoryError(prefix string, err error) error {
	var busy *shm.BusyError
	switch {
	case errors.As(err, &busy):
		return &descriptor.BusyError{Limit: busy.Limit}
	case errors.Is(err, shm.ErrLayers):
		return &descriptor.FieldError{Field: "layer_count", Reason: fmt.Sprintf("over the limit of %d layers into memory", shm.MaxLayers)}
	}
	for _, f := range memoryFields {
		if errors.Is(err, f.err) {
			return &descriptor.FieldError{Field: prefix + f.field, Reason: f.err.Error()}
		}
	}
	return err
}
