package bench

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/internal/server"
)

// TestLayerwiseShm adds shared memory to the comparison, against a whole server.
func TestLayerwiseShm(t *testing.T) {
	dir := t.TempDir()
	s, err := server.Open(t.Context(), server.Options{Dir: filepath.Join(dir, "store"), Listen: "127.0.0.1:0", Capacity: 64 << 20, VolumeSize: 32 << 20,
		RootAccessKey: clienttest.AccessKey, RootSecretKey: clienttest.SecretKey, ShmListen: filepath.Join(dir, "s")}, io.Discard)
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
	for _, g := range []Geometry{{3, 5, 777}, {5, 3, 65_536}} {
		b := layerwise(t, &clienttest.Server{URL: s.URL()}, g)
		b.Shm = true
		r, err := b.Run(t.Context())
		if err != nil {
			t.Fatalf("%+v: %v", g, err)
		}
		if len(r.Things) != 8 || r.Things[6].Key != "memory-threads" || r.Things[7].Key != "layerwise-shm" {
			t.Fatalf("%+v", r.Things)
		}
		for _, row := range r.Things {
			if row.GBps <= 0 || row.Layer0 <= 0 || row.Total < row.Layer0 || (row.Limit > 0) != (row.Key == "layerwise" || row.Key == "layerwise-shm") {
				t.Errorf("%+v", row)
			}
		}
		var table bytes.Buffer
		if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "of its own limit") {
			t.Errorf("%s, %v", table.String(), err)
		}
	}
	b := layerwise(t, clienttest.New(), Geometry{1, 1, 1})
	b.Shm = true
	if _, err := b.Run(t.Context()); err == nil {
		t.Error("a store without shared memory was measured")
	}
}
