//go:build !fabric || !cgo

package server

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/objcached/objcached/transport/fabric"
)

// TestFabricNotBuilt: a server that cannot do what it is told to does not start,
// and says why.
func TestFabricNotBuilt(t *testing.T) {
	for provider, want := range map[string]error{"tcp;ofi_rxm": fabric.ErrNotBuilt, "pigeon": fabric.ErrUnknown} {
		o := Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Capacity: 64 << 20, RootAccessKey: rootKey, RootSecretKey: rootSecret,
			Fabric: fabric.Config{Provider: provider}}
		if _, err := Open(context.Background(), o, io.Discard); !errors.Is(err, want) {
			t.Errorf("%s: %v", provider, err)
		}
	}
}
