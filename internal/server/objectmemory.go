package server

import (
	"context"
	"errors"
	"io"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
	"github.com/objcached/objcached/transport/shm"
)

// objectMemory is memory with the transfers of single objects.
type objectMemory struct {
	memory
	data *deliver.Deliverer
}

// open uses up the target's tag. An object counts as one layer.
func (m objectMemory) open(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget) (context.Context, *shm.Transfer, error) {
	ctx, tr, err := m.shm.Open(ctx, owner(who), shm.Window{Handle: t.Handle, Offset: t.Offset, Length: t.Length, Tag: t.Tag, Layers: 1})
	if err != nil {
		return nil, nil, memoryError("rdma_target.", err)
	}
	return ctx, tr, nil
}

// withdrawn says in the gateway's words that a transfer lost its memory.
func withdrawn(err error) error {
	if errors.Is(err, shm.ErrRevoked) {
		return &descriptor.FieldError{Field: "rdma_target.handle", Reason: "the memory was withdrawn"}
	}
	return err
}

// WriteObject implements gateway.Memory.
func (m objectMemory) WriteObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget, obj storage.Object, off, n int64) error {
	ctx, tr, err := m.open(ctx, who, t)
	if err != nil {
		return err
	}
	return withdrawn(m.data.WriteObject(ctx, obj, off, n, t.Path, tr))
}

// ReadObject implements gateway.Memory.
func (m objectMemory) ReadObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget) (io.ReadCloser, error) {
	ctx, tr, err := m.open(ctx, who, t)
	if err != nil {
		return nil, err
	}
	body, err := m.data.ReadObject(ctx, tr, t.Length, t.Path)
	if err != nil {
		return nil, errors.Join(err, tr.Close())
	}
	return memoryBody{body, tr}, nil
}

// memoryBody is a body that holds a transfer.
type memoryBody struct {
	io.ReadCloser
	tr *shm.Transfer
}

func (b memoryBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, withdrawn(err)
}

func (b memoryBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.tr.Close()) }
