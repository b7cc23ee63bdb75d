package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/descriptor"
)

// at is byte k of the slice that layer l delivers of chunk j.
func at(j, l, k int) byte { return byte(j*131 + l*29 + k*7 + k>>8 + (j*l*k)>>4) }

// chunkObject is chunk j as it is stored.
func chunkObject(j, layers, slice int, layout descriptor.Layout) []byte {
	b := make([]byte, layers*slice)
	for l := range layers {
		for k := range slice {
			off := l*slice + k
			if half := slice / 2; layout == descriptor.TwoLTD {
				if off = l*half + k; k >= half {
					off = layers*half + l*half + k - half
				}
			}
			b[off] = at(j, l, k)
		}
	}
	return b
}

func key(j int) string { return fmt.Sprintf("model/ü %d+", j) }

func keys(n int) []string {
	out := make([]string, n)
	for j := range out {
		out[j] = key(j)
	}
	return out
}

func newServer(t testing.TB, edit func(*clienttest.Server)) *clienttest.Server {
	t.Helper()
	s := clienttest.New()
	t.Cleanup(s.Close)
	if edit != nil {
		edit(s)
	}
	return s
}

func newClient(t testing.TB, s *clienttest.Server, edit func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{
		Endpoint: s.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
	if edit != nil {
		edit(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func fill(s *clienttest.Server, n, layers, slice int, layout descriptor.Layout) {
	for j := range n {
		s.Put(key(j), chunkObject(j, layers, slice, layout))
	}
}

// check iterates and compares every byte with at.
func check(t *testing.T, ls *client.Layers, req client.GetRequest, n int) {
	t.Helper()
	count := req.LayerCount
	if count == 0 {
		count = req.NumLayers - req.FirstLayer
	}
	if n == 0 {
		count = 0
	}
	slice := int(req.PerLayerChunkBytes)
	next := 0
	for ly, err := range ls.All() {
		if err != nil {
			t.Fatal(err)
		}
		if ly.Index != req.FirstLayer+next || len(ly.Data) != n*slice {
			t.Fatalf("layer %d with %d bytes, want layer %d with %d", ly.Index, len(ly.Data), req.FirstLayer+next, n*slice)
		}
		if req.Into != nil && &ly.Data[0] != &req.Into[next*n*slice] {
			t.Fatalf("layer %d does not lie in Into", ly.Index)
		}
		for j := range n {
			for k, b := range ly.Chunk(j) {
				if b != at(j, ly.Index, k) {
					t.Fatalf("layer %d chunk %d byte %d is %#x, want %#x", ly.Index, j, k, b, at(j, ly.Index, k))
				}
			}
		}
		next++
	}
	if next != count {
		t.Fatalf("%d layers, want %d", next, count)
	}
}

func TestGetLayersEveryByte(t *testing.T) {
	type geometry struct{ n, layers, slice int }
	for _, g := range []geometry{{1, 1, 1}, {3, 5, 7}, {5, 4, 1000}, {2, 5, 60_000}, {9, 12, 64}} {
		for _, layout := range []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD} {
			if layout == descriptor.TwoLTD && g.slice%2 != 0 {
				continue
			}
			for _, plain := range []bool{false, true} {
				t.Run(fmt.Sprintf("n%d-L%d-S%d-%s-plain=%v", g.n, g.layers, g.slice, layout, plain), func(t *testing.T) {
					t.Parallel()
					s := newServer(t, func(s *clienttest.Server) { s.Plain = plain })
					fill(s, g.n, g.layers, g.slice, layout)
					c := newClient(t, s, nil)
					for _, mode := range []descriptor.Mode{"", descriptor.Auto, descriptor.Layer, descriptor.Chunk} {
						for _, w := range [][2]int{{0, 0}, {g.layers - 1, 1}, {g.layers / 2, 0}, {0, (g.layers + 1) / 2}} {
							for _, into := range []bool{false, true} {
								req := client.GetRequest{
									Keys: keys(g.n), NumLayers: g.layers, PerLayerChunkBytes: int64(g.slice), ChunkTokens: 16,
									Layout: layout, Delivery: mode, FirstLayer: w[0], LayerCount: w[1], LayerComputeMicros: 12.5,
								}
								if into {
									req.Into = bytes.Repeat([]byte{0xee}, g.n*g.layers*g.slice)
								}
								ls, err := c.GetLayers(t.Context(), req)
								if err != nil {
									t.Fatal(err)
								}
								if ls.Native() == plain || ls.Matched() != g.n {
									t.Fatalf("Native %v, Matched %d", ls.Native(), ls.Matched())
								}
								if want := descriptor.Chunk; mode == want && w[1] != 1 && g.layers-w[0] > 1 && ls.Mode() != want {
									t.Fatalf("mode %q", ls.Mode())
								}
								check(t, ls, req, g.n)
							}
						}
					}
				})
			}
		}
	}
}

func TestGetLayersMissing(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			t.Parallel()
			const n, layers, slice = 6, 4, 100
			s := newServer(t, func(s *clienttest.Server) { s.Plain = plain })
			fill(s, n, layers, slice, descriptor.L2TD)
			c := newClient(t, s, nil)
			req := client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice}
			for _, missing := range []int{5, 3, 0} {
				s.Delete(key(missing)) // later keys stay: a prefix ends at the first hole
				req.OnMissing = descriptor.Fail
				_, err := c.GetLayers(t.Context(), req)
				var e *client.Error
				if !errors.As(err, &e) || !client.IsNoSuchKey(err) || e.Key != key(missing) || e.Matched != missing || e.StatusCode != 404 {
					t.Fatalf("missing %d: %v", missing, err)
				}
				req.OnMissing = descriptor.Truncate
				ls, err := c.GetLayers(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if ls.Matched() != missing {
					t.Fatalf("matched %d, want %d", ls.Matched(), missing)
				}
				check(t, ls, req, missing)
				if got, err := c.Match(t.Context(), req.Keys); err != nil || got != missing {
					t.Fatalf("Match %d, %v; want %d", got, err, missing)
				}
			}
			s.Put(key(0), []byte("short"))
			for _, om := range []descriptor.OnMissing{descriptor.Fail, descriptor.Truncate} {
				req.OnMissing, req.Keys = om, keys(1)
				_, err := c.GetLayers(t.Context(), req)
				var e *client.Error
				if !errors.As(err, &e) || e.Code != "InvalidArgument" || e.Key != key(0) || e.Field != "chunk_keys" {
					t.Fatalf("wrong size: %v", err)
				}
			}
		})
	}
}

// The body is cut at every k-th byte: exactly the layers that were whole
// before it are yielded, with the right bytes, and then one error.
func TestGetLayersCutAtEveryByte(t *testing.T) {
	const n, layers, slice = 2, 3, 5
	for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var cut int64
			s := newServer(t, func(s *clienttest.Server) {
				s.Inject = func(name string, _ *http.Request) *clienttest.Fault {
					if name != "kv-get" {
						return nil
					}
					return &clienttest.Fault{Cut: cut}
				}
			})
			fill(s, n, layers, slice, descriptor.L2TD)
			c := newClient(t, s, nil)
			for cut = 0; cut < n*layers*slice; cut++ {
				ls, err := c.GetLayers(t.Context(), client.GetRequest{
					Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice, Delivery: mode,
				})
				if err != nil {
					t.Fatal(err)
				}
				whole := int(cut) / (n * slice)
				if mode == descriptor.Chunk {
					whole = 0
				}
				got, failed := 0, false
				for ly, err := range ls.All() {
					if failed {
						t.Fatal("something came after the error")
					}
					if err != nil {
						var e *client.Error
						if !errors.As(err, &e) || e.LayersReady != whole || e.Code != "ShortBody" || !errors.Is(err, io.ErrUnexpectedEOF) {
							t.Fatalf("cut %d: %v", cut, err)
						}
						failed = true
						continue
					}
					for j := range n {
						for k, b := range ly.Chunk(j) {
							if b != at(j, ly.Index, k) {
								t.Fatalf("cut %d: wrong byte", cut)
							}
						}
					}
					got++
				}
				if got != whole || !failed {
					t.Fatalf("cut %d: %d layers, want %d; failed %v", cut, got, whole, failed)
				}
			}
		})
	}
}

// Requests of the fallback fail one after the other, the k-th time each: it
// must come through (retries) with the right bytes.
func TestFallbackFailsAtEveryRequest(t *testing.T) {
	const n, layers, slice = 2, 4, 66_000 // two groups
	for _, f := range []clienttest.Fault{{Status: 503, Code: "SlowDown"}, {Cut: 1000}} {
		for k := 1; ; k++ {
			seen, fired := 0, false
			s := clienttest.New()
			s.Plain = true
			s.Inject = func(name string, r *http.Request) *clienttest.Fault {
				if name != http.MethodGet && (name != http.MethodHead || f.Status == 0) {
					return nil
				}
				if seen++; seen == k {
					fired = true
					return &f
				}
				return nil
			}
			fill(s, n, layers, slice, descriptor.L2TD)
			c := newClient(t, s, func(cfg *client.Config) { cfg.Concurrency = 1 })
			req := client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice}
			ls, err := c.GetLayers(t.Context(), req)
			if err != nil {
				t.Fatalf("k=%d: %v", k, err)
			}
			check(t, ls, req, n)
			c.Close()
			s.Close()
			if !fired {
				if k < 3 {
					t.Fatal("nothing was injected")
				}
				break
			}
		}
	}
}

func TestFallbackSeesOverwrite(t *testing.T) {
	const n, layers, slice = 2, 3, 100_000
	s := newServer(t, func(s *clienttest.Server) { s.Plain = true })
	fill(s, n, layers, slice, descriptor.L2TD)
	c := newClient(t, s, nil)
	ls, err := c.GetLayers(t.Context(), client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice})
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	var last error
	for _, err := range ls.All() {
		if err != nil {
			last = err
			break
		}
		ready++
		s.Put(key(1), make([]byte, layers*slice))
	}
	var e *client.Error
	if !errors.As(last, &e) || e.Code != "PreconditionFailed" || e.Key != key(1) || e.LayersReady != 1 || ready != 1 {
		t.Fatalf("%d layers, then %v", ready, last)
	}
}

func TestFallbackRequests(t *testing.T) {
	for _, c := range []struct {
		name                 string
		n, layers, slice     int
		delivery             descriptor.Mode
		layout               descriptor.Layout
		first, count, wantGE int
	}{
		{name: "small objects whole", n: 7, layers: 8, slice: 1024, wantGE: 7},
		{name: "chunk mode whole", n: 3, layers: 8, slice: 65536, delivery: descriptor.Chunk, wantGE: 3},
		{name: "layer 0, then megabytes", n: 3, layers: 32, slice: 65536, wantGE: 3 * (1 + 2)},
		{name: "a window small per chunk", n: 3, layers: 32, slice: 65536, first: 4, count: 4, wantGE: 3},
		{name: "2ltd needs two ranges", n: 2, layers: 32, slice: 65536, layout: descriptor.TwoLTD, wantGE: 2 * (2 + 2)},
		{name: "2ltd whole needs one", n: 2, layers: 4, slice: 1024, layout: descriptor.TwoLTD, wantGE: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(s *clienttest.Server) { s.Plain = true })
			fill(s, c.n, c.layers, c.slice, c.layout)
			cl := newClient(t, s, nil)
			req := client.GetRequest{
				Keys: keys(c.n), NumLayers: c.layers, PerLayerChunkBytes: int64(c.slice), Delivery: c.delivery, Layout: c.layout,
				FirstLayer: c.first, LayerCount: c.count,
			}
			ls, err := cl.GetLayers(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			check(t, ls, req, c.n)
			if gets, heads := s.Count("GET"), s.Count("HEAD"); gets != c.wantGE || heads != c.n {
				t.Errorf("%d GETs and %d HEADs, want %d and %d", gets, heads, c.wantGE, c.n)
			}
		})
	}
}

func TestGetRequestValidation(t *testing.T) {
	s := newServer(t, nil)
	c := newClient(t, s, nil)
	for _, tc := range []struct {
		field string
		edit  func(*client.GetRequest)
	}{
		{"chunk_keys", func(r *client.GetRequest) { r.Keys = nil }},
		{"num_layers", func(r *client.GetRequest) { r.NumLayers = 0 }},
		{"per_layer_chunk_bytes", func(r *client.GetRequest) { r.PerLayerChunkBytes = -1 }},
		{"per_layer_chunk_bytes", func(r *client.GetRequest) { r.PerLayerChunkBytes = 1 << 60 }},
		{"chunk_tokens", func(r *client.GetRequest) { r.ChunkTokens = -1 }},
		{"first_layer", func(r *client.GetRequest) { r.FirstLayer = 4 }},
		{"first_layer", func(r *client.GetRequest) { r.FirstLayer = -1 }},
		{"layer_count", func(r *client.GetRequest) { r.FirstLayer, r.LayerCount = 2, 3 }},
		{"layer_count", func(r *client.GetRequest) { r.LayerCount = -1 }},
		{"layout", func(r *client.GetRequest) { r.Layout = "x" }},
		{"layout", func(r *client.GetRequest) { r.Layout, r.PerLayerChunkBytes = descriptor.TwoLTD, 3 }},
		{"delivery", func(r *client.GetRequest) { r.Delivery = "x" }},
		{"on_missing", func(r *client.GetRequest) { r.OnMissing = "x" }},
		{"layer_compute_us", func(r *client.GetRequest) { r.LayerComputeMicros = -1 }},
		{"Into", func(r *client.GetRequest) { r.Into = make([]byte, 2*4*10-1) }},
	} {
		req := client.GetRequest{Keys: keys(2), NumLayers: 4, PerLayerChunkBytes: 10}
		tc.edit(&req)
		_, err := c.GetLayers(t.Context(), req)
		var e *client.Error
		if !errors.As(err, &e) || e.Field != tc.field || e.Code != "InvalidArgument" {
			t.Errorf("%s: %v", tc.field, err)
		}
	}
	if got := s.Count("kv-get") + s.Count("kv-match"); got != 0 {
		t.Errorf("%d requests for bad input", got)
	}
}

// Leaving the iteration early or never starting it frees the answer; the
// client goes on working.
func TestLayersClose(t *testing.T) {
	const n, layers, slice = 2, 3, 100_000
	for _, plain := range []bool{false, true} {
		s := newServer(t, func(s *clienttest.Server) { s.Plain = plain })
		fill(s, n, layers, slice, descriptor.L2TD)
		c := newClient(t, s, nil)
		req := client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice}
		for i := range 6 {
			ls, err := c.GetLayers(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			switch i % 3 {
			case 0:
				ls.Close()
				ls.Close()
			case 1:
				for range ls.All() {
					break
				}
			case 2:
				check(t, ls, req, n)
			}
			for range ls.All() {
				t.Fatal("a closed answer yields layers")
			}
		}
	}
}

func TestGetLayersContext(t *testing.T) {
	const n, layers, slice = 2, 4, 2_000_000 // more than sockets hold
	for _, plain := range []bool{false, true} {
		s := newServer(t, func(s *clienttest.Server) { s.Plain = plain })
		fill(s, n, layers, slice, descriptor.L2TD)
		c := newClient(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ls, err := c.GetLayers(ctx, client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice})
		if err != nil {
			t.Fatal(err)
		}
		var last error
		ready := 0
		for _, err := range ls.All() {
			if last = err; err == nil {
				ready++
				cancel()
			}
		}
		var e *client.Error
		if !errors.As(last, &e) || !errors.Is(last, context.Canceled) || e.LayersReady != ready || ready == layers {
			t.Errorf("plain=%v: %d layers, then %v", plain, ready, last)
		}
		if _, err := c.GetLayers(ctx, client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: slice}); !errors.Is(err, context.Canceled) {
			t.Errorf("plain=%v: with a dead context: %v", plain, err)
		}
		cancel()
	}
}

func TestGetLayersBadAnswers(t *testing.T) {
	for name, h := range map[string]map[string]string{
		"mode":    {"X-Kv-Mode": "sideways", "X-Kv-Matched": "2"},
		"matched": {"X-Kv-Mode": "layer", "X-Kv-Matched": "3"},
		"fewer":   {"X-Kv-Mode": "layer", "X-Kv-Matched": "1"},
		"no n":    {"X-Kv-Mode": "layer"},
		"length":  {"X-Kv-Mode": "layer", "X-Kv-Matched": "2", "Content-Length": "0"},
	} {
		s := newServer(t, func(s *clienttest.Server) {
			s.Inject = func(name string, _ *http.Request) *clienttest.Fault {
				if name != "kv-get" {
					return nil
				}
				return &clienttest.Fault{Status: 200, Header: h}
			}
		})
		fill(s, 2, 2, 10, descriptor.L2TD)
		c := newClient(t, s, nil)
		_, err := c.GetLayers(t.Context(), client.GetRequest{Keys: keys(2), NumLayers: 2, PerLayerChunkBytes: 10})
		var e *client.Error
		if !errors.As(err, &e) || e.Code != "InvalidResponse" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
