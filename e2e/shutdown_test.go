package e2e

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSigtermFinishesRequests: a PUT and a kv-get are half done when SIGTERM
// comes. Both end well, nobody new is let in, the exit code is 0, and the
// object is there after the next start.
func TestSigtermFinishesRequests(t *testing.T) {
	const (
		layers = 4
		slice  = 1 << 20
		chunks = 12
	)
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, data, "--capacity", "512MiB")
	c := newClient(t, p)
	c.must(t, 200, "PUT", "/end", "", nil)
	var keys []string
	for j := range chunks {
		keys = append(keys, chunkKey(j))
		c.must(t, 200, "PUT", "/end/"+chunkKey(j), "", pattern(j).bytes(layers*slice))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	// A PUT that has sent half of its body.
	content := pattern(500).bytes(6 << 20)
	pr, pw := io.Pipe()
	put, err := c.request(ctx, "PUT", "/end/slow", "", pr, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	putDone := make(chan error, 1)
	putStatus := 0
	go func() {
		resp, err := c.http.Do(put)
		if err == nil {
			putStatus = resp.StatusCode
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		putDone <- err
	}()
	if _, err := pw.Write(content[:4<<20]); err != nil {
		t.Fatal(err)
	}

	// A kv-get that has read its first layer.
	desc := descriptor(keys, layers, slice)
	get, err := c.request(ctx, "POST", "/end", "kv-get=", bytes.NewReader(desc), int64(len(desc)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(get)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, chunks*slice)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}

	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Wait until the server has stopped listening: from then on it is ending.
	for {
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			break
		}
		_ = conn.Close()
		if ctx.Err() != nil {
			t.Fatal("the server still listens after SIGTERM")
		}
		time.Sleep(5 * time.Millisecond) // the server decides when
	}
	if _, err := pw.Write(content[4<<20:]); err != nil {
		t.Errorf("rest of the PUT: %v", err)
	}
	_ = pw.Close()
	if err := <-putDone; err != nil || putStatus != 200 {
		t.Errorf("the PUT in flight ended with %d, %v", putStatus, err)
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("the kv-get in flight: %v", err)
	}
	want := make([]byte, layers*chunks*slice)
	for l := range layers {
		for j := range chunks {
			pattern(j).fill(want[(l*chunks+j)*slice:][:slice], int64(l)*slice)
		}
	}
	if !bytes.Equal(append(first, rest...), want) {
		t.Error("the kv-get in flight gave other bytes")
	}
	if err := p.Wait(time.Minute); err != nil {
		t.Error(err)
	}

	p = start(t, data, "--capacity", "512MiB")
	c = newClient(t, p)
	if a := c.must(t, 200, "GET", "/end/slow", "", nil); !bytes.Equal(a.body, content) {
		t.Error("the object of the PUT in flight is not whole")
	}
	stop(t, p)
}
