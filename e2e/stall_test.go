package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// The stalled reader: a client asks for bytes and stops reading, the bytes'
// owner is deleted, and others take its space. Whatever the reader gets when
// it goes on is the old bytes, or the connection breaks.

const (
	stallLayers = 8
	stallSlice  = 512 << 10
	stallChunk  = stallLayers * stallSlice // 4 MiB
	stallChunks = 12                       // 48 MiB in all, far more than sockets hold
)

// stalledRequest is one way of asking for all bytes of the owner.
type stalledRequest struct {
	name string
	put  func(t *testing.T, c *client, seed pattern) // the owner's objects
	drop func(t *testing.T, c *client)
	ask  func(t *testing.T, c *client) net.Conn
	// want is byte i of the answer, as 8-byte words.
	want func(seed pattern) []byte
}

func chunkKey(j int) string { return fmt.Sprintf("chunk/%02d", j) }

func stalledRequests() []stalledRequest {
	const total = stallChunks * stallChunk
	var keys []string
	for j := range stallChunks {
		keys = append(keys, chunkKey(j))
	}
	return []stalledRequest{
		{
			name: "GET",
			put: func(t *testing.T, c *client, seed pattern) {
				c.must(t, 200, "PUT", "/stall/whole", "", seed.bytes(total))
			},
			drop: func(t *testing.T, c *client) { c.must(t, 204, "DELETE", "/stall/whole", "", nil) },
			ask:  func(t *testing.T, c *client) net.Conn { return dialRaw(t, c, "GET", "/stall/whole", "", nil) },
			want: func(seed pattern) []byte { return seed.bytes(total) },
		},
		{
			name: "kv-get",
			put: func(t *testing.T, c *client, seed pattern) {
				for j := range stallChunks {
					c.must(t, 200, "PUT", "/stall/"+chunkKey(j), "", (seed + pattern(j)).bytes(stallChunk))
				}
			},
			drop: func(t *testing.T, c *client) {
				for j := range stallChunks {
					c.must(t, 204, "DELETE", "/stall/"+chunkKey(j), "", nil)
				}
			},
			ask: func(t *testing.T, c *client) net.Conn {
				return dialRaw(t, c, "POST", "/stall", "kv-get=", descriptor(keys, stallLayers, stallSlice))
			},
			want: func(seed pattern) []byte {
				out := make([]byte, total)
				for l := range stallLayers {
					for j := range stallChunks {
						(seed + pattern(j)).fill(out[(l*stallChunks+j)*stallSlice:][:stallSlice], int64(l)*stallSlice)
					}
				}
				return out
			},
		},
	}
}

// readOn reads the rest of an answer and compares it. It returns how many
// bytes of the body came.
func readOn(t *testing.T, conn net.Conn, want []byte) int {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0 // broken before the first byte is allowed
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength != int64(len(want)) {
		t.Errorf("status %d, Content-Length %d; want 200, %d", resp.StatusCode, resp.ContentLength, len(want))
		return 0
	}
	got, err := io.ReadAll(resp.Body)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the connection neither gave bytes nor broke")
	}
	if !bytes.Equal(got, want[:min(len(got), len(want))]) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		t.Errorf("byte %d of %d is not the old object's", i, len(got))
	}
	if err == nil && len(got) != len(want) {
		t.Errorf("the answer ended in order after %d of %d bytes", len(got), len(want))
	}
	return len(got)
}

// TestStalledReaderGoesOn: the owner is deleted and the rest of the store is
// churned while the reader stalls; when it goes on in time, it gets every byte
// as it was.
func TestStalledReaderGoesOn(t *testing.T) {
	for _, q := range stalledRequests() {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, filepath.Join(t.TempDir(), "data"), "--capacity", "128MiB", "--volume-size", "128MiB", "--stall-timeout", "5m")
			c := newClient(t, p)
			c.must(t, 200, "PUT", "/stall", "", nil)
			q.put(t, c, 1000)
			conn := q.ask(t, c)
			awaitHeader(t, conn)
			q.drop(t, c)
			// Overwrites go through whatever space is free, several times over.
			for i := range 20 {
				putUntilRoom(t, c, fmt.Sprintf("/stall/churn/%d", i%4), pattern(5000+i).bytes(8<<20))
			}
			want := q.want(1000)
			if n := readOn(t, conn, want); n != len(want) {
				t.Errorf("got %d of %d bytes", n, len(want))
			}
			stop(t, p)
		})
	}
}

// TestStalledReaderIsCutOff: the store is so small that the owner's space must
// be reused. The reader is dropped after the stall timeout, the space goes to
// others, and what the reader still finds in its socket is the old object's.
func TestStalledReaderIsCutOff(t *testing.T) {
	for _, q := range stalledRequests() {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, filepath.Join(t.TempDir(), "data"), "--capacity", "64MiB", "--volume-size", "64MiB", "--stall-timeout", "2s")
			c := newClient(t, p)
			c.must(t, 200, "PUT", "/stall", "", nil)
			q.put(t, c, 1000)
			next := pattern(7000).bytes(40 << 20)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if a, err := c.do(ctx, "PUT", "/stall/next", "", next); err != nil || a.status < 400 {
				t.Fatalf("a store of 64 MiB took 48 and 40 MiB: %d, %v", a.status, err)
			}
			conn := q.ask(t, c)
			awaitHeader(t, conn)
			q.drop(t, c)
			// The space comes free only once the reader is gone.
			putUntilRoom(t, c, "/stall/next", next)
			want := q.want(1000)
			if n := readOn(t, conn, want); n == len(want) {
				t.Error("the reader got everything: it never stalled")
			}
			if got := c.must(t, 200, "GET", "/stall/next", "", nil); !bytes.Equal(got.body, next) {
				t.Error("the new owner's bytes are not its own")
			}
			stop(t, p)
		})
	}
}

// putUntilRoom puts until the store has room: it frees space in the background.
func putUntilRoom(t *testing.T, c *client, path string, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		a, err := c.do(ctx, "PUT", path, "", body)
		if err != nil {
			t.Fatalf("the space was not given out again: %v", err)
		}
		if a.status == 200 {
			return
		}
		if a.status != 503 && a.status != 507 {
			t.Fatalf("PUT %s: %d %s", path, a.status, a.code())
		}
		time.Sleep(50 * time.Millisecond) // not a measurement: the server decides when
	}
}

// awaitHeader waits until the answer has begun to arrive, without taking
// anything of it.
func awaitHeader(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var n int
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		n, peekErr = peek(int(fd))
		return !again(peekErr)
	})
	if err != nil || peekErr != nil || n == 0 {
		t.Fatalf("no answer: %v, %v, %d bytes", err, peekErr, n)
	}
}
