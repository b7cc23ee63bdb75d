package gateway

import (
	"context"
	"io"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
)

// Deliverer turns a validated descriptor into bytes. Package deliver
// implements it; the gateway knows only this.
type Deliverer interface {
	// Prepare opens every chunk once and checks that each is num_layers *
	// per_layer_chunk_bytes long, and admits the delivery as one of who's
	// tenant. Its errors are *descriptor.FieldError,
	// *descriptor.MissingError, *descriptor.ChunkSizeError, *descriptor.BusyError
	// or those of package storage.
	Prepare(ctx context.Context, who *tenant.Identity, bucket string, d *descriptor.Descriptor) (Delivery, error)
}

// Delivery is one prepared delivery. It holds pins until Close.
type Delivery interface {
	Matched() int // chunks that will be served
	Mode() string // "layer" or "chunk"
	Size() int64  // bytes that WriteTo will write
	// GrantedRate is the rate planned for the delivery, in bytes per second;
	// 0: it is not paced, or there is no plan yet.
	GrantedRate() float64
	// WriteTo writes the whole payload to w in delivery order. After an error
	// the payload is short and must be shown to the client as broken.
	WriteTo(ctx context.Context, w io.Writer) error
	Close() error
}

// Memory is clients' own memory as a place for deliveries. Its errors about
// what a client sent are *descriptor.FieldError and *descriptor.BusyError.
type Memory interface {
	// Providers lists what a registration may name, the preferred one first.
	Providers() []descriptor.Provider
	// Register answers kv-register, in all forms but the one that asks for
	// Providers. A provider that it names is one of them.
	Register(ctx context.Context, who *tenant.Identity, q *descriptor.Register) (*descriptor.Registered, error)
	// Deliver writes a prepared delivery of d to d.Target and says which layers
	// are ready as they become so. It returns when nothing more will be
	// written. The summary is never nil; after an error it says how far it came.
	Deliver(ctx context.Context, who *tenant.Identity, y Delivery, d *descriptor.Descriptor) (*descriptor.Summary, error)
	// WriteObject writes the n bytes at off of obj, no more than t.Length, to
	// the start of t's window. It returns when nothing more will be written.
	WriteObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget, obj storage.Object, off, n int64) error
	// ReadObject gives the t.Length bytes of t's window. Each is taken from the
	// client's memory once. Read fails when ctx ends or the client withdraws
	// the memory; nothing is read from it after Close.
	ReadObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget) (io.ReadCloser, error)
}
