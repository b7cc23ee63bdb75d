package server

import (
	"context"
	"errors"
	"log/slog"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/shm"
)

// shmTransport is shared memory, whose clients come to a Unix socket.
type shmTransport struct{ *shm.Server }

func openShm(path string) OpenTransport {
	return func(reg *registry.Registry, log *slog.Logger) (Transport, error) {
		s, err := shm.Listen(path, reg, log)
		if err != nil {
			return nil, err
		}
		return shmTransport{s}, nil
	}
}

// Provider implements Transport.
func (t shmTransport) Provider() descriptor.Provider {
	return descriptor.Provider{Provider: descriptor.ProviderShm, Socket: t.Path()}
}

// Register implements Transport: the memory itself comes later, at the socket.
func (t shmTransport) Register(_ context.Context, who registry.Owner, q *descriptor.Register) (*descriptor.Registered, error) {
	id, expires, err := t.Reserve(who, q.Length)
	if errors.Is(err, shm.ErrLength) {
		return nil, &descriptor.FieldError{Field: "length", Reason: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	return &descriptor.Registered{ID: id, Socket: t.Path(), ExpiresInMillis: expires.Milliseconds()}, nil
}
