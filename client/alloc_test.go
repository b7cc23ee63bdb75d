package client_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/objcached/objcached/client"
)

// zeros answers kv-match and kv-get out of nothing: what is left is the client.
func zeros(payload int64, n int) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		resp := &http.Response{
			StatusCode: 200, Header: http.Header{}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"matched": 1}`)), ContentLength: -1,
		}
		if r.URL.Query().Has("kv-get") {
			resp.Header.Set("X-Kv-Mode", "layer")
			resp.Header.Set("X-Kv-Matched", strconv.Itoa(n))
			resp.ContentLength = payload
			resp.Body = io.NopCloser(io.LimitReader(zeroReader{}, payload))
		}
		return resp, nil
	})
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { return len(p), nil }

func zeroClient(t testing.TB, payload int64, n int) *client.Client {
	c, err := client.New(client.Config{
		Endpoint: "http://none.invalid", AccessKey: "a", SecretKey: "b", Bucket: "chunks", Transport: zeros(payload, n),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t testing.TB, c *client.Client, req client.GetRequest) {
	ls, err := c.GetLayers(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range ls.All() {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A layer costs no allocation, and a chunk none but its share of the
// descriptor: what a request allocates depends on neither L nor N.
func TestGetLayersAllocs(t *testing.T) {
	measure := func(n, layers int) float64 {
		req := client.GetRequest{Keys: keys(n), NumLayers: layers, PerLayerChunkBytes: 4096}
		c := zeroClient(t, int64(n*layers*4096), n)
		get(t, c, req)
		return testing.AllocsPerRun(20, func() { get(t, c, req) })
	}
	base := measure(2, 2)
	for _, g := range [][2]int{{2, 64}, {64, 2}, {64, 64}} {
		if got := measure(g[0], g[1]); got > base+6 {
			t.Errorf("%d chunks of %d layers: %v allocations, %v for 2 of 2", g[0], g[1], got, base)
		}
	}
}

func BenchmarkGetLayersClientSide(b *testing.B) {
	for _, n := range []int{224, 3584} {
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			req := client.GetRequest{Keys: keys(n), NumLayers: 32, PerLayerChunkBytes: 1024}
			c := zeroClient(b, int64(n*32*1024), n)
			b.ReportAllocs()
			for b.Loop() {
				get(b, c, req)
			}
		})
	}
}
