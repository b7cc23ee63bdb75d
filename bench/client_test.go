package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// kvBare answers the KV requests with a BareHandler's body: a server with no
// cost of its own, so that what is left to compare is the two clients.
type kvBare struct{ *BareHandler }

func (h kvBare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		h.BareHandler.ServeHTTP(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // a descriptor, whatever it says
	if r.URL.Query().Has("kv-match") {
		_, _ = io.WriteString(w, `{"matched": 1}`)
		return
	}
	w.Header().Set("X-Kv-Mode", "layer")
	w.Header().Set("X-Kv-Matched", strconv.Itoa(h.file.g.Chunks))
	r.URL.RawQuery = "write=524288"
	h.BareHandler.ServeHTTP(w, r)
}

// GetLayers must cost no more than the bare reading loop against the same
// server, and the loop's own low-water mark shows what that is worth.
func BenchmarkReading(b *testing.B) {
	g := Geometry{Chunks: 64, Layers: 16, Slice: 64 << 10}
	file := b.TempDir() + "/chunks"
	if err := writeChunkFile(file, g, func(int64) {}); err != nil {
		b.Fatal(err)
	}
	h, err := NewBareHandler(file, g)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	srv := httptest.NewServer(kvBare{h})
	defer srv.Close()
	dst := make([]byte, g.Payload())
	clear(dst)
	for _, marked := range []bool{false, true} {
		b.Run("bare/marked="+strconv.FormatBool(marked), func(b *testing.B) {
			c := &bareClient{http: &http.Client{Transport: newBareTransport(marked)}, url: srv.URL, g: g, write: 512 << 10}
			b.SetBytes(g.Payload())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.get(b.Context(), dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, into := range []bool{true, false} {
		b.Run("GetLayers/into="+strconv.FormatBool(into), func(b *testing.B) {
			c, err := client.New(client.Config{Endpoint: srv.URL, AccessKey: "a", SecretKey: "b", Bucket: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			keys := make([]string, g.Chunks)
			for j := range keys {
				keys[j] = "bench/0123456789abcdef0123456789abcdef0123456789abcdef" + strconv.Itoa(j)
			}
			req := client.GetRequest{Keys: keys, NumLayers: g.Layers, PerLayerChunkBytes: g.Slice, Delivery: descriptor.Layer}
			if into {
				req.Into = dst
			}
			b.SetBytes(g.Payload())
			b.ReportAllocs()
			for b.Loop() {
				ls, err := c.GetLayers(b.Context(), req)
				if err != nil {
					b.Fatal(err)
				}
				for _, err := range ls.All() {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
