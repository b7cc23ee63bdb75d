package gateway

import (
	"context"
	"io"

	"github.com/objcached/objcached/descriptor"
)

// Deliverer turns a validated descriptor into bytes. Package deliver
// implements it; the gateway knows only this.
type Deliverer interface {
	// Prepare opens every chunk once and checks that each is num_layers *
	// per_layer_chunk_bytes long. Its errors are *descriptor.FieldError,
	// *descriptor.MissingError, *descriptor.ChunkSizeError, *descriptor.BusyError
	// or those of package storage.
	Prepare(ctx context.Context, bucket string, d *descriptor.Descriptor) (Delivery, error)
}

// Delivery is one prepared delivery. It holds pins until Close.
type Delivery interface {
	Matched() int // chunks that will be served
	Mode() string // "layer" or "chunk"
	Size() int64  // bytes that WriteTo will write
	// WriteTo writes the whole payload to w in delivery order. After an error
	// the payload is short and must be shown to the client as broken.
	WriteTo(ctx context.Context, w io.Writer) error
	Close() error
}
