//go:build fabric && cgo

package server

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/objcached/objcached/transport/fabric"
)

// The providers that need no device.
func init() {
	for _, p := range []string{"tcp;ofi_rxm"} {
		ways = append(ways, fabricWay(p))
	}
}

func fabricWay(provider string) way {
	return way{provider, func(o *Options, _ string) {
		o.Fabric = fabric.Config{Provider: provider, Node: "127.0.0.1", Probe: 200 * time.Millisecond}
		o.FabricBytes = 8 << 20
	}, func(t *testing.T, n int64) handMemory { return newHandFabric(t, provider, n) }, false,
		func(m *memory) string {
			return fmt.Sprintf("%+v", m.transports[fabric.WireName(provider)].(fabricTransport).Stats())
		}}
}

// handFabric is memory of a fabric by hand.
type handFabric struct {
	*fabric.Memory
	provider string
}

func newHandFabric(t *testing.T, provider string, n int64) handFabric {
	t.Helper()
	m, err := fabric.NewMemory(fabric.Config{Provider: provider, Node: "127.0.0.1"}, n)
	if errors.Is(err, fabric.ErrNoProvider) {
		t.Skipf("libfabric offers no %s here: %v", provider, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(10 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return handFabric{m, provider}
}

func (m handFabric) name() string {
	a := m.Address()
	return fmt.Sprintf(`{"provider":%q,"length":%d,"address":%q,"key":%q,"base":%d}`, fabric.WireName(m.provider), a.Length,
		base64.StdEncoding.EncodeToString(a.Address), base64.StdEncoding.EncodeToString(fabric.WireKey(a.Key)), a.Base)
}

// secrets has the key in every form that a careless log line would have.
func (m handFabric) secrets() []string {
	key := m.Address().Key
	return []string{base64.StdEncoding.EncodeToString(fabric.WireKey(key)), fmt.Sprint(key), fmt.Sprintf("%x", key), fmt.Sprintf("%x", fabric.WireKey(key))}
}

func (m handFabric) attach(t *testing.T, _ string) {
	t.Helper()
	if !m.AwaitNonce(time.Minute) {
		t.Fatal("no nonce")
	}
}
