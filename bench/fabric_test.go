//go:build fabric && cgo

package bench

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/internal/server"
	"github.com/objcached/objcached/transport/fabric"
)

// TestFabric adds delivery over libfabric to both comparisons, against a whole
// server, with slices that fill writes and such that do not.
func TestFabric(t *testing.T) {
	over := Fabric{Provider: "tcp;ofi_rxm", Node: "127.0.0.1"}
	s, err := server.Open(t.Context(), server.Options{Dir: filepath.Join(t.TempDir(), "store"), Listen: "127.0.0.1:0", Capacity: 64 << 20,
		VolumeSize: 32 << 20, RootAccessKey: clienttest.AccessKey, RootSecretKey: clienttest.SecretKey,
		Fabric: fabric.Config{Provider: over.Provider, Node: over.Node}, FabricBytes: 4 << 20}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, io.Discard) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, g := range []Geometry{{3, 5, 777}, {5, 3, 65_536}, {2, 2, 1_500_000}} {
		b := layerwise(t, &clienttest.Server{URL: s.URL()}, g)
		b.Fabric = over
		r, err := b.Run(t.Context())
		if err != nil {
			t.Fatalf("%+v: %v", g, err)
		}
		var keys []string
		for _, row := range r.Things {
			keys = append(keys, row.Key)
			if row.GBps <= 0 || row.Layer0 <= 0 || (row.Limit > 0) != (row.Key == "layerwise" || row.Key == "layerwise-fabric") {
				t.Errorf("%+v", row)
			}
		}
		if want := []string{limitFabricBare, limitFabric, "layerwise-fabric"}; !slices.Equal(keys[len(keys)-3:], want) {
			t.Errorf("%q", keys)
		}
		p := &Paths{Layerwise: *layerwise(t, &clienttest.Server{URL: s.URL()}, g)}
		p.Fabric = over
		pr, err := p.Run(t.Context())
		if err != nil {
			t.Fatalf("%+v: %v", g, err)
		}
		keys = nil
		for _, row := range pr.Things {
			keys = append(keys, row.Key)
			if (row.Limit > 0) == slices.Contains([]string{limitFabricBare, limitFabric, limitTCP}, row.Key) {
				t.Errorf("%+v", row)
			}
		}
		want := []string{limitFabricBare, limitFabric, limitTCP, pathTCP, pathBuffer, pathDirect, pathBatch, pathDirectSlices, pathAgg}
		if !slices.Equal(keys, want) {
			t.Errorf("%q", keys)
		}
	}
}
