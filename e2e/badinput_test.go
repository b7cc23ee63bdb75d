package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBadInputStorm: many clients send nonsense at once: broken HTTP, broken
// descriptors, bodies that lie. Each gets an error and not a 5xx, good clients
// are served all the while, and in the end the store holds what it held before.
func TestBadInputStorm(t *testing.T) {
	const (
		layers  = 4
		slice   = 1000
		workers = 12
		each    = 60
	)
	p := start(t, filepath.Join(t.TempDir(), "data"), "--capacity", "256MiB", "--stall-timeout", "5s")
	c := newClient(t, p)
	c.must(t, 200, "PUT", "/bad", "", nil)
	var keys []string
	want := make([]byte, 3*layers*slice)
	for j := range 3 {
		keys = append(keys, chunkKey(j))
		c.must(t, 200, "PUT", "/bad/"+chunkKey(j), "", pattern(j).bytes(layers*slice))
		b := pattern(j).bytes(layers * slice)
		for l := range layers {
			copy(want[(l*3+j)*slice:], b[l*slice:(l+1)*slice])
		}
	}
	good := descriptor(keys, layers, slice)
	before := c.list(t, "bad")

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	storm := badInputs(good, keys)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range each {
				s := storm[(w+i)%len(storm)]
				status, err := s.send(ctx, c, rnd)
				// A server may also just hang up on what is no HTTP.
				if err == nil && (status < 400 || status >= 500 && status != 501) && !s.harmless {
					t.Errorf("%s: status %d, want 4xx", s.name, status)
				}
				if a, err := c.do(ctx, "POST", "/bad", "kv-get=", good); err != nil || a.status != 200 || !bytes.Equal(a.body, want) {
					t.Errorf("a good request beside %s: status %d, %d bytes, %v", s.name, a.status, len(a.body), err)
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("the storm did not end in time")
	}
	after := c.list(t, "bad")
	if len(after) != len(before) {
		t.Errorf("the storm left something behind: %v", after)
	}
	stop(t, p)
}

// badInput is one kind of nonsense. A harmless one may also be answered well.
type badInput struct {
	name     string
	send     func(ctx context.Context, c *client, rnd *rand.Rand) (status int, err error)
	harmless bool
}

func badInputs(good []byte, keys []string) []badInput {
	post := func(query, ctype string, body func(*rand.Rand) []byte) func(context.Context, *client, *rand.Rand) (int, error) {
		return func(ctx context.Context, c *client, rnd *rand.Rand) (int, error) {
			b := body(rnd)
			r, err := c.request(ctx, "POST", "/bad", query, bytes.NewReader(b), int64(len(b)))
			if err != nil {
				return 0, err
			}
			if ctype != "" {
				r.Header.Set("Content-Type", ctype)
			}
			return finish(c.http.Do(r))
		}
	}
	fixed := func(s string) func(*rand.Rand) []byte { return func(*rand.Rand) []byte { return []byte(s) } }
	noise := func(rnd *rand.Rand) []byte {
		b := make([]byte, 1+rnd.IntN(2000))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	rawText := func(text string) func(context.Context, *client, *rand.Rand) (int, error) {
		return func(_ context.Context, c *client, _ *rand.Rand) (int, error) {
			return sendRaw(c, []byte(text))
		}
	}
	s := string(good)
	return []badInput{
		{name: "json noise", send: post("kv-get=", "application/json", noise)},
		{name: "cbor noise", send: post("kv-get=", "application/cbor", noise)},
		{name: "json cut short", send: post("kv-get=", "", func(rnd *rand.Rand) []byte { return good[:rnd.IntN(len(good)-1)] })},
		{name: "json flipped", harmless: true, send: post("kv-get=", "", func(rnd *rand.Rand) []byte {
			b := bytes.Clone(good)
			b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
			return b
		})},
		{name: "deep json", send: post("kv-get=", "application/json", fixed(strings.Repeat(`{"a":`, 50_000)))},
		{name: "deep cbor", send: post("kv-get=", "application/cbor", fixed(strings.Repeat("\x81", 50_000)))},
		{name: "huge counts", send: post("kv-get=", "application/json", fixed(`{"chunk_keys":["a"],"num_layers":1024,"per_layer_chunk_bytes":9223372036854775807}`))},
		{name: "wrong size", send: post("kv-get=", "", fixed(strings.Replace(s, `"per_layer_chunk_bytes":1000`, `"per_layer_chunk_bytes":999`, 1)))},
		{name: "missing chunk", send: post("kv-get=", "", fixed(strings.Replace(s, keys[1], "no/such/chunk", 1)))},
		{name: "kv-match noise", send: post("kv-match=", "application/json", noise)},
		{name: "kv-put", send: post("kv-put=", "", noise)},
		{name: "delete noise", send: post("delete=", "application/xml", noise)},
		{name: "xml bomb", send: post("delete=", "application/xml", fixed(`<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><Delete><Object><Key>&b;</Key></Object></Delete>`))},
		{name: "short body", send: func(ctx context.Context, c *client, rnd *rand.Rand) (int, error) {
			r, err := c.request(ctx, "PUT", fmt.Sprintf("/bad/short-%d", rnd.Uint32()), "", nil, 0)
			if err != nil {
				return 0, err
			}
			r.Body, r.ContentLength = io.NopCloser(&cutReader{left: rnd.IntN(200_000)}), 300_000
			return finish(c.http.Do(r))
		}},
		{name: "wrong checksum", send: func(ctx context.Context, c *client, rnd *rand.Rand) (int, error) {
			b := noise(rnd)
			r, err := c.request(ctx, "PUT", fmt.Sprintf("/bad/sum-%d", rnd.Uint32()), "", bytes.NewReader(b), int64(len(b)))
			if err != nil {
				return 0, err
			}
			r.Header.Set("Content-Md5", "AAAAAAAAAAAAAAAAAAAAAA==")
			return finish(c.http.Do(r))
		}},
		{name: "bad chunk framing", send: func(ctx context.Context, c *client, rnd *rand.Rand) (int, error) {
			b := noise(rnd)
			u := fmt.Sprintf("%s/bad/frame-%d", c.base, rnd.Uint32())
			r, err := http.NewRequestWithContext(ctx, "PUT", u, bytes.NewReader(b))
			if err != nil {
				return 0, err
			}
			r.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
			r.Header.Set("Content-Encoding", "aws-chunked")
			r.Header.Set("X-Amz-Decoded-Content-Length", "1000")
			return finish(c.http.Do(sign(r)))
		}},
		{name: "no signature", send: rawText("PUT /bad/anonymous HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")},
		{name: "no http", send: rawText("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")},
		{name: "header without end", send: rawText("GET /bad HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("y", 100_000) + "\r\n\r\n")},
		{name: "two lengths", send: rawText("PUT /bad/two HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde")},
		{name: "length and chunked", send: rawText("PUT /bad/both HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n")},
		{name: "negative length", send: rawText("PUT /bad/neg HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\nabc")},
		{name: "bad escapes", send: rawText("GET /bad/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")},
		{name: "bad descriptor header", send: rawText("GET /bad/k HTTP/1.1\r\nHost: x\r\nX-Kv-Descriptor: !!!\r\nConnection: close\r\n\r\n")},
	}
}

// finish reads an answer to its end.
func finish(resp *http.Response, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// sendRaw sends bytes over a connection of its own and returns the status.
func sendRaw(c *client, text []byte) (int, error) {
	_, addr, _ := strings.Cut(c.base, "://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(text); err != nil {
		return 0, err
	}
	return finish(http.ReadResponse(bufio.NewReader(conn), nil))
}

// cutReader gives left bytes and then fails, which breaks the connection.
type cutReader struct{ left int }

func (r *cutReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.ErrClosedPipe
	}
	n := min(len(p), r.left)
	clear(p[:n])
	r.left -= n
	return n, nil
}
