package server

import (
	"context"
	"errors"
	"io"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
)

// openObject uses up the target's tag. An object counts as one layer.
func (m *memory) openObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget) (context.Context, *registry.Grant, error) {
	return m.reg.Open(ctx, owner(who), registry.Window{Handle: t.Handle, Offset: t.Offset, Length: t.Length, Tag: t.Tag, Layers: 1})
}

// objectError says an error of a transfer in the gateway's words.
func objectError(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return memoryError("rdma_target.", err)
}

// WriteObject implements gateway.Memory.
func (m *memory) WriteObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget, obj storage.Object, off, n int64) error {
	ctx, grant, err := m.openObject(ctx, who, t)
	if err != nil {
		return objectError(err)
	}
	sink, err := grant.Sink(ctx)
	if err != nil {
		return objectError(err)
	}
	return objectError(m.data.WriteObject(ctx, obj, off, n, t.Path, sink))
}

// ReadObject implements gateway.Memory.
func (m *memory) ReadObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget) (io.ReadCloser, error) {
	ctx, grant, err := m.openObject(ctx, who, t)
	if err != nil {
		return nil, objectError(err)
	}
	src, err := grant.Source(ctx)
	if err != nil {
		return nil, objectError(err)
	}
	body, err := m.data.ReadObject(ctx, src, t.Length, t.Path)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return memoryBody{body, src}, nil
}

// memoryBody is a body that holds a transfer.
type memoryBody struct {
	io.ReadCloser
	src transport.Source
}

func (b memoryBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, objectError(err)
}

func (b memoryBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.src.Close()) }
