package client

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/shm"
)

var _ = [1]struct{}{}[over-shm.Over] // they are the same

// shmMemory is memory shared with a store on this host.
type shmMemory struct {
	*shm.Memory
	socket string
}

func openShm(c *Client, p descriptor.Provider, n int64) (memory, error) {
	if p.Provider != descriptor.ProviderShm {
		return nil, errAnother
	}
	m := shmMemory{socket: cmp.Or(c.cfg.ShmSocket, p.Socket)}
	fi, err := os.Stat(m.socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotHere, err) // the store is on another host
	}
	if fi.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%w: %s is no socket", errNotHere, m.socket)
	}
	if m.Memory, err = shm.NewMemory(n); err != nil {
		return nil, err
	}
	return m, nil
}

func (m shmMemory) name() *descriptor.Register {
	return &descriptor.Register{Provider: descriptor.ProviderShm, Length: int64(len(m.Bytes()))}
}

func (m shmMemory) offer(ctx context.Context, a *descriptor.Registered) error {
	return m.Offer(ctx, m.socket, a.ID)
}

func (shmMemory) lastTag() int64 { return registry.MaxTag }
func (shmMemory) noticed() bool  { return true } // its connection ends
