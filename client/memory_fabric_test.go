package client

import (
	"strings"
	"testing"

	"github.com/objcached/objcached/transport/fabric"
)

// TestFabricUnused: a client says why it does not take a fabric that the store
// offers, and uses no other provider than the one it is told to.
func TestFabricUnused(t *testing.T) {
	c := startRAM(t, &ramStore{providers: `{"providers":[{"provider":"tcp;ofi_rxm"}]}`}, &ramMemory{})
	if !fabric.Built {
		if _, err := c.Register(t.Context(), 10); !hasCode(err, "NotImplemented") || !strings.Contains(err.Error(), "make build-fabric") {
			t.Errorf("%v", err)
		}
	}
	m := &ramMemory{}
	c = startRAM(t, &ramStore{}, m)
	c.cfg.MemoryProvider = "efa"
	if _, err := c.Register(t.Context(), 10); !hasCode(err, "NotImplemented") || !strings.Contains(err.Error(), "does not offer efa") {
		t.Errorf("%v", err)
	}
	c.cfg.MemoryProvider = "ram;test"
	buf, err := c.Register(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
}
