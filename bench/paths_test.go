package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/internal/server"
)

// shmServer runs a whole server with a socket for memory.
func shmServer(t *testing.T, dir string, agg int64) (url string, stop func() error) {
	t.Helper()
	s, err := server.Open(t.Context(), server.Options{Dir: filepath.Join(dir, "store"), Listen: "127.0.0.1:0", Capacity: 64 << 20, VolumeSize: 32 << 20,
		RootAccessKey: clienttest.AccessKey, RootSecretKey: clienttest.SecretKey, ShmListen: filepath.Join(dir, "s"), AggSize: agg}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, io.Discard) }()
	return s.URL(), func() error { cancel(); return <-done }
}

// TestPaths runs the five paths and the sweep against whole servers.
func TestPaths(t *testing.T) {
	for _, g := range []Geometry{{3, 5, 777}, {5, 3, 65_536}} {
		dir := t.TempDir()
		url, stop := shmServer(t, dir, 0)
		b := &Paths{Layerwise: *layerwise(t, &clienttest.Server{URL: url}, g), Puts: true, Sweep: []int64{1, 1 << 20}}
		var asked []int64
		b.Restart = func(_ context.Context, size int64) (Target, error) {
			err := stop()
			asked = append(asked, size)
			target := b.Target
			target.Endpoint, stop = shmServer(t, dir, size)
			return target, err
		}
		r, err := b.Run(t.Context())
		if err != nil {
			t.Fatalf("%+v: %v", g, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		var keys []string
		limits := 0
		for _, row := range r.Things {
			keys = append(keys, row.Key)
			if row.GBps <= 0 || row.Layer0 <= 0 || row.Total < row.Layer0 || len(row.Raw) != 3 || row.Client <= 0 {
				t.Errorf("%+v", row)
			}
			if row.Limit == 0 {
				limits++
			}
		}
		want := []string{limitTCP, pathTCP, limitStaged, pathBuffer, limitChunks, pathDirect, pathBatch, limitSlices, pathDirectSlices, pathAgg}
		if !slices.Equal(keys, want) || limits != 4 {
			t.Errorf("%q, %d without a limit", keys, limits)
		}
		for i, key := range []string{limitPut, putTCP, putBuffer, putDirect} {
			if len(r.Puts) != 4 || r.Puts[i].Key != key || r.Puts[i].GBps <= 0 || (r.Puts[i].Limit > 0) != (i > 0) {
				t.Errorf("%+v", r.Puts)
			}
		}
		if !slices.Equal(asked, b.Sweep) || len(r.Sweep) != 2 || r.Sweep[0].Slices != 1 || r.Sweep[1].AggBytes != 1<<20 || r.Sweep[1].Limit <= 0 {
			t.Errorf("asked for %v: %+v", asked, r.Sweep)
		}
		if r.AggOverChunks <= 0 || r.AggOverSlices <= 0 {
			t.Errorf("%+v", r)
		}
		var table, js bytes.Buffer
		if err := errors.Join(r.WriteTable(&table), WriteJSON(&js, r)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"S3TCP", "S3RDMA Buffer", "S3RDMA Direct", "S3RDMA Batch", "S3RDMA Agg is", "by aggregation size", "1 MiB, ", "Storing the chunks"} {
			if !strings.Contains(table.String(), s) {
				t.Errorf("no %q in\n%s", s, table.String())
			}
		}
		var back PathsReport
		if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Chunks != g.Chunks || len(back.Sweep) != 2 || len(back.Things) != 10 {
			t.Errorf("JSON does not read back: %v", err)
		}
	}
	b := &Paths{Layerwise: *layerwise(t, clienttest.New(), Geometry{1, 1, 1})}
	if _, err := b.Run(t.Context()); err == nil {
		t.Error("a store without shared memory was measured")
	}
	b.Sweep = []int64{0}
	if _, err := b.Run(t.Context()); err == nil {
		t.Error("a size of nothing was taken")
	}
	if gathered(1<<20, Geometry{224, 32, 64 << 10}, 2) != 16 || gathered(8<<20, Geometry{14, 32, 1 << 20}, 2) != 7 || gathered(1, Geometry{1, 1, 10}, 4) != 1 {
		t.Error("gathered")
	}
}

// TestPathsSeeWrongBytes: a store with another chunk is found out by the first
// path that reads it.
func TestPathsSeeWrongBytes(t *testing.T) {
	dir := t.TempDir()
	url, stop := shmServer(t, dir, 0)
	g := Geometry{Chunks: 4, Layers: 3, Slice: 1000}
	b := &Paths{Layerwise: *layerwise(t, &clienttest.Server{URL: url}, g)}
	b.Keep = true
	keys, err := b.keys()
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := b.clients()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := makeBucket(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	wrong := make([]byte, g.ChunkBytes())
	g.fillChunk(wrong, 2)
	wrong[1500] ^= 1
	if _, err := c.S3().PutObject(t.Context(), c.Bucket(), keys[2], bytes.NewReader(wrong), int64(len(wrong)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "wrong byte") || !strings.Contains(err.Error(), "S3TCP") {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestSkip: a row that was left out is not said to have failed.
func TestSkip(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	b := layerwise(t, s, Geometry{3, 2, 100})
	b.Skip = []string{"layerwise", "ranged"}
	r, err := b.Run(t.Context())
	if err != nil || len(r.Things) != 4 || r.Things[3].Key != "whole" {
		t.Fatalf("%+v, %v", r, err)
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || strings.Contains(table.String(), "has no layerwise GET") {
		t.Errorf("%s, %v", table.String(), err)
	}
}

func TestShapes(t *testing.T) {
	all, err := ParseShapes("all")
	if err != nil || len(all) != 5 || all[3].Payload() != 7516192768 {
		t.Fatalf("%v, %v", all, err)
	}
	some, err := ParseShapes("n14-s1m,n224-s16k")
	if err != nil || len(some) != 2 || some[0].Geometry != (Geometry{14, 32, 1 << 20}) || some[1].Name != "n224-s16k" {
		t.Fatalf("%v, %v", some, err)
	}
	for _, bad := range []string{"", "x", "n14-s1m,"} {
		if _, err := ParseShapes(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	s := clienttest.New()
	defer s.Close()
	b := &LayerwiseSet{Layerwise: *layerwise(t, s, Geometry{}), Shapes: []Shape{
		{"small", Geometry{3, 2, 100}}, {"huge", Geometry{1000, 1000, 1 << 20}}, {"thin", Geometry{3, 7000, 1}},
	}}
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Shapes) != 3 || r.Shapes[0].Report == nil || len(r.Shapes[0].Report.Things) != 6 || r.Shapes[1].Report != nil || r.Shapes[1].Skipped == "" {
		t.Errorf("%+v", r.Shapes)
	}
	if thin := r.Shapes[2].Report; thin == nil || len(thin.Things) != 5 {
		t.Errorf("21,000 ranged GETs were made: %+v", thin)
	}
	if s.Keys() != 0 {
		t.Errorf("%d objects were left behind", s.Keys())
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "huge: left out, it needs") || !strings.Contains(table.String(), "small: 3 chunks") {
		t.Errorf("%s, %v", table.String(), err)
	}
}
