package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/fabric"
	"github.com/objcached/objcached/transport/registry"
)

// fabricTransport is memory of clients on other hosts, reached by RDMA.
type fabricTransport struct{ *fabric.Server }

// fabricBytes is what the staging memory has by default.
const fabricBytes = 64 << 20

// fabricConfig fills in what other options say: writes are as large as what
// is gathered at a time.
func fabricConfig(cfg fabric.Config, aggSize, bytes int64) fabric.Config {
	if cfg.WriteBytes == 0 && aggSize > 0 {
		cfg.WriteBytes = int(min(max(aggSize, fabric.PageSize), 8<<20) &^ (fabric.PageSize - 1))
	}
	if cfg.Buffers == 0 {
		size := int64(cmp.Or(cfg.WriteBytes, 1<<20))
		cfg.Buffers = int(max(1, cmp.Or(bytes, fabricBytes)/size))
	}
	return cfg
}

func openFabric(cfg fabric.Config, opened func(stats func() fabric.Stats)) OpenTransport {
	return func(reg *registry.Registry, log *slog.Logger) (Transport, error) {
		s, err := fabric.Serve(cfg, reg, log)
		if err != nil {
			return nil, err
		}
		opened(s.Stats)
		return fabricTransport{s}, nil
	}
}

// Provider implements Transport.
func (t fabricTransport) Provider() descriptor.Provider {
	return descriptor.Provider{Provider: t.Server.Provider()}
}

// Register implements Transport: on return the nonce is in the client's memory.
func (t fabricTransport) Register(ctx context.Context, who registry.Owner, q *descriptor.Register) (*descriptor.Registered, error) {
	key, ok := fabric.Key(q.Key)
	switch {
	case !ok:
		return nil, &descriptor.FieldError{Field: "key", Reason: "must have 8 bytes"}
	case q.Length%fabric.PageSize != 0:
		return nil, &descriptor.FieldError{Field: "length", Reason: "must be a multiple of 4096"}
	}
	id, expires, err := t.Server.Register(ctx, who, fabric.Address{Address: q.Address, Key: key, Base: uint64(q.Base), Length: q.Length})
	switch {
	case errors.Is(err, fabric.ErrAddress):
		return nil, &descriptor.FieldError{Field: "address", Reason: err.Error()}
	case errors.Is(err, fabric.ErrGone):
		return nil, &descriptor.FieldError{Field: "address", Reason: "nothing can be written to memory there"}
	case err != nil:
		return nil, err
	}
	return &descriptor.Registered{ID: id, ExpiresInMillis: expires.Milliseconds()}, nil
}
