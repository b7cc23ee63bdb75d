package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport/fabric"
)

var _ = [1]struct{}{}[over-fabric.Over] // they are the same

// fabricMemory is memory that a store on another host writes to by RDMA.
type fabricMemory struct {
	*fabric.Memory
	wire string // the provider as the store calls it
}

// openFabric needs a build with the tag fabric.
func openFabric(c *Client, p descriptor.Provider, n int64) (memory, error) {
	provider, ok := fabric.FromWire(p.Provider)
	if !ok {
		return nil, errAnother
	}
	m, err := fabric.NewMemory(fabric.Config{Provider: provider, Interface: c.cfg.FabricInterface, Node: c.cfg.FabricNode}, n)
	if errors.Is(err, fabric.ErrNotBuilt) || errors.Is(err, fabric.ErrNoProvider) {
		return nil, fmt.Errorf("%w: %w", errNotHere, err)
	}
	if err != nil {
		return nil, err
	}
	return fabricMemory{m, p.Provider}, nil
}

func (m fabricMemory) name() *descriptor.Register {
	a := m.Address()
	return &descriptor.Register{Provider: m.wire, Length: a.Length, Address: a.Address,
		Key: fabric.WireKey(a.Key), Base: int64(a.Base)}
}

// offer waits for the nonce, which the store has sent when it answers.
func (m fabricMemory) offer(ctx context.Context, _ *descriptor.Registered) error {
	for end := time.Now().Add(settling); time.Now().Before(end); {
		if m.AwaitNonce(waitSlice) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.New("the store's first write has not arrived")
}

func (fabricMemory) lastTag() int64 { return fabric.MaxTag }
func (fabricMemory) noticed() bool  { return false } // until the store next writes, which may fail late
