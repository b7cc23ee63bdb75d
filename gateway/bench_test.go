package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// BenchmarkGetHTTP is a whole-object GET over a loopback connection, with a
// reader that only counts.
func BenchmarkGetHTTP(b *testing.B) {
	h := newHarness(b)
	h.bucket(b, "box")
	body := content(1, 16<<20)
	h.put(b, "/box/k", body)
	c, err := net.Dial("tcp", h.server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	r := h.request(b, wireRequest{method: "GET", target: "/box/k"})
	br := bufio.NewReaderSize(c, 256<<10)
	buf := make([]byte, 256<<10)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Write(c); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(br, r)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			m, err := resp.Body.Read(buf)
			n += m
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if n != len(body) {
			b.Fatalf("%d bytes, status %d", n, resp.StatusCode)
		}
	}
}
