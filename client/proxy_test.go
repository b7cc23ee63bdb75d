package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/objcached/objcached/descriptor"
)

// TestAnswerOfAProxy: a proxy that gives up on the store answers in its place.
// The store may be writing still, so the memory is taken back before the caller
// hears of the error.
func TestAnswerOfAProxy(t *testing.T) {
	for _, status := range []int{502, 504, 403} {
		for name, move := range map[string]func(*Client, *Buffer) error{
			"layers": func(c *Client, b *Buffer) error {
				tr, err := c.GetLayersInto(t.Context(), ramGet, b, descriptor.Target{})
				if err == nil {
					_, err = tr.Wait(t.Context())
				}
				return err
			},
			"object": func(c *Client, b *Buffer) error {
				_, err := c.GetObjectInto(t.Context(), ObjectRequest{Key: "k"}, b)
				return err
			},
		} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				t.Parallel()
				m := &ramMemory{}
				c := startRAM(t, &ramStore{layers: 2}, m)
				store, err := url.Parse(c.cfg.Endpoint)
				if err != nil {
					t.Fatal(err)
				}
				forward := httputil.NewSingleHostReverseProxy(store)
				p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !r.URL.Query().Has("kv-register") {
						http.Error(w, "<html>upstream timed out</html>", status)
						return
					}
					forward.ServeHTTP(w, r)
				}))
				t.Cleanup(p.Close)
				c.base.Host = p.Listener.Addr().String()
				buf, err := c.Register(t.Context(), 4000)
				if err != nil {
					t.Fatal(err)
				}
				if err := move(c, buf); err == nil {
					t.Error("no error")
				}
				select {
				case <-buf.Lost():
				default:
					t.Error("the store may still write to the memory")
				}
				if err := buf.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
