package lowwater

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// pair is a connection of ours and its other end.
func pair(t *testing.T, prepare func(c *net.TCPConn)) (ours net.Conn, peer *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil && prepare != nil {
			prepare(c.(*net.TCPConn))
		}
		return c, err
	})
	if ours, err = dial(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if peer, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), peer.Close() })
	if err := ours.SetDeadline(time.Now().Add(time.Minute)); err != nil { // a hang fails the test
		t.Fatal(err)
	}
	return ours, peer
}

// Reads of all sizes see every byte, whatever the pieces they come in.
func TestBytes(t *testing.T) {
	ours, peer := pair(t, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, 24<<20)
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	go func() {
		rng := rand.New(rand.NewPCG(3, 4))
		for p := want; len(p) > 0; {
			n := min(len(p), 1+rng.IntN(1<<uint(rng.IntN(21))))
			if _, err := peer.Write(p[:n]); err != nil {
				return
			}
			p = p[n:]
		}
	}()
	got := make([]byte, len(want))
	for at := 0; at < len(got); {
		n := min(len(got)-at, 1+rng.IntN(1<<uint(rng.IntN(23))))
		if _, err := io.ReadFull(ours, got[at:at+n]); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if !bytes.Equal(got, want) {
		t.Fatal("other bytes")
	}
}

// A large read returns with the last byte it can get, be that the last it asked
// for or the last before the end.
func TestLastByte(t *testing.T) {
	ours, peer := pair(t, nil)
	sent := make([]byte, 300<<10)
	read := make(chan error)
	buf := make([]byte, len(sent))
	go func() {
		_, err := io.ReadFull(ours, buf)
		read <- err
	}()
	for p := sent; len(p) > 0; p = p[min(len(p), 100<<10):] {
		if _, err := peer.Write(p[:min(len(p), 100<<10)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-read; err != nil { // the connection stays open
		t.Fatal(err)
	}
	go func() {
		n, err := io.ReadFull(ours, make([]byte, 4<<20))
		if n != 1000 {
			err = fmt.Errorf("%d bytes, %w", n, err)
		}
		read <- err
	}()
	if _, err := peer.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
}

// A small read after a large one does not wait for more than one byte.
func TestSmallAfterLarge(t *testing.T) {
	ours, peer := pair(t, nil)
	for range 3 {
		if _, err := peer.Write(make([]byte, 2<<20)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ours, make([]byte, 2<<20)); err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			n, err := ours.Read(make([]byte, 4096))
			if n != 1 {
				err = fmt.Errorf("%d bytes, %w", n, err)
			}
			read <- err
		}()
		if _, err := peer.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
	}
}

// The mark may be more than the socket holds: the reader is woken when it is full.
func TestTinyReceiveBuffer(t *testing.T) {
	ours, peer := pair(t, func(c *net.TCPConn) {
		if err := c.SetReadBuffer(64 << 10); err != nil {
			t.Error(err)
		}
	})
	go func() { _, _ = peer.Write(make([]byte, 3<<20)) }() // a failure shows in the read
	if _, err := io.ReadFull(ours, make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
}

// A read that waits for its mark ends with its deadline and with Close.
func TestGivingUp(t *testing.T) {
	ours, peer := pair(t, nil)
	if _, err := peer.Write([]byte("too few")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(ours, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if err := ours.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Read(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := ours.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := ours.Read(make([]byte, 1<<20))
		read <- err
	}()
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// Over net/http bodies of every framing come whole, one after the other on one
// connection, also to a reader whose memory is larger than they are.
func TestHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", fmt.Sprint(n))
		}
		for n > 0 {
			k := min(n, 700<<10)
			if _, err := w.Write(make([]byte, k)); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			n -= k
		}
	}))
	defer srv.Close()
	tr := &http.Transport{DialContext: Dialer(new(net.Dialer).DialContext), ReadBufferSize: 64 << 10, MaxConnsPerHost: 1}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: time.Minute}
	mem := make([]byte, 8<<20)
	for _, framing := range []string{"", "&length"} {
		for _, n := range []int{0, 1, 70_000, 3 << 20, 5, 1 << 20, 100} {
			resp, err := c.Get(fmt.Sprintf("%s/?n=%d%s", srv.URL, n, framing))
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for err == nil {
				var k int
				k, err = resp.Body.Read(mem)
				got += k
			}
			_ = resp.Body.Close()
			if got != n || err != io.EOF {
				t.Fatalf("%d bytes of %d%s: %v", got, n, framing, err)
			}
		}
	}
}
