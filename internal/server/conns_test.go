package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestConnectionsAreBounded: whoever can reach the port, with or without
// credentials, can open only so many connections; the next ones are told so
// and do not hang, and there is room again when one closes.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 3
	r := start(t, Options{MaxConnections: most})
	addr := strings.TrimPrefix(r.url, "http://")
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // only a hang runs into it
		return c
	}
	// ask sends a request without credentials and returns its status.
	ask := func(c net.Conn) (*http.Response, error) {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		return resp, err
	}
	var open []net.Conn
	for range most {
		c := dial()
		if resp, err := ask(c); err != nil || resp.StatusCode != 403 {
			t.Fatalf("within the bound: %v, %v", resp, err)
		}
		open = append(open, c)
	}
	resp, err := http.ReadResponse(bufio.NewReader(dial()), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "<Code>SlowDown</Code>") {
		t.Errorf("over the bound: %d %v %q, %v", resp.StatusCode, resp.Header, body, err)
	}
	_ = open[0].Close()
	for i := 0; ; i++ {
		resp, err := ask(dial())
		if err == nil && resp.StatusCode == 403 {
			break
		}
		if i == 1000 {
			t.Fatalf("no room after a connection closed: %v, %v", resp, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestDefaultConnections: the default leaves descriptors for the store.
func TestDefaultConnections(t *testing.T) {
	if n := maxConnections(7); n != 7 {
		t.Errorf("asked for 7, got %d", n)
	}
	if n := maxConnections(0); n < 1 || n > DefaultMaxConnections {
		t.Errorf("by default %d", n)
	}
}
