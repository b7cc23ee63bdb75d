// Package e2e holds tests of the built binary from outside: crashes, stalled
// and hostile clients, overload, memory. Each is bounded in time and size; the
// environment variables of knob make them longer.
package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/objcached/objcached/internal/serverproc"
)

// bin is the server, built once without cgo, as users get it.
var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "objcached-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin, err = serverproc.Build(dir, false)
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir) // a temporary folder that stays is no failure
	os.Exit(code)
}

// knob is a number that the environment may change.
func knob(t *testing.T, name string, def int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, s)
	}
	return n
}

const (
	rootKey    = "AKIAE2E"
	rootSecret = "e2e-secret"
)

// start starts a server on a data folder. Quiet logs keep the pipe out of the way.
func start(t *testing.T, data string, args ...string) *serverproc.Proc {
	t.Helper()
	p, err := serverproc.Start(serverproc.Config{
		Bin: bin, Data: data, AccessKey: rootKey, SecretKey: rootSecret,
		LogFile: filepath.Join(t.TempDir(), "log"), Args: append([]string{"--log-level", "warn"}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// stop ends a server in order.
func stop(t *testing.T, p *serverproc.Proc) {
	t.Helper()
	if err := p.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	if strings.Contains(p.Log(), "panic") {
		t.Errorf("the server printed a panic:\n%s", p.Tail())
	}
}

// client sends signed requests to one server.
type client struct {
	base string
	http *http.Client
}

func newClient(t *testing.T, p *serverproc.Proc) *client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024}
	t.Cleanup(tr.CloseIdleConnections)
	return &client{p.URL, &http.Client{Transport: tr}}
}

// request makes a signed request. The body is not hashed: what is under test
// is the store.
func (c *client) request(ctx context.Context, method, path, query string, body io.Reader, size int64) (*http.Request, error) {
	u := c.base + path
	if query != "" {
		u += "?" + query
	}
	r, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = size
	if size == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	return sign(r), nil
}

func sign(r *http.Request) *http.Request {
	return signer.SignV4(*r, rootKey, rootSecret, "", "us-east-1")
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() string {
	var e struct{ Code string }
	_ = xml.Unmarshal(a.body, &e) // no code then
	return e.Code
}

func (c *client) do(ctx context.Context, method, path, query string, body []byte) (answer, error) {
	r, err := c.request(ctx, method, path, query, bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b}, err
}

// must is do that fails the test unless the answer has this status.
func (c *client) must(t *testing.T, status int, method, path, query string, body []byte) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := c.do(ctx, method, path, query, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status != status {
		t.Fatalf("%s %s?%s: %d %s, want %d", method, path, query, a.status, a.code(), status)
	}
	return a
}

// list returns every key of a bucket.
func (c *client) list(t *testing.T, bucket string) map[string]int64 {
	t.Helper()
	keys := map[string]int64{}
	token := ""
	for {
		q := "list-type=2"
		if token != "" {
			q = "continuation-token=" + url.QueryEscape(token) + "&" + q
		}
		var page struct {
			Contents []struct {
				Key  string
				Size int64
			}
			NextContinuationToken string
		}
		if err := xml.Unmarshal(c.must(t, 200, "GET", "/"+bucket, q, nil).body, &page); err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Contents {
			keys[o.Key] = o.Size
		}
		if token = page.NextContinuationToken; token == "" {
			return keys
		}
	}
}

// descriptor is a layerwise GET as it goes over the wire.
func descriptor(keys []string, layers, slice int) []byte {
	b, err := json.Marshal(map[string]any{"chunk_keys": keys, "num_layers": layers, "chunk_tokens": 16, "per_layer_chunk_bytes": slice})
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// pattern gives the bytes of one version of one object: any run of them can be
// made again from (seed, offset), and no two seeds share a word.
type pattern uint64

func (p pattern) word(i uint64) uint64 {
	// SplitMix64: a bijection of its counter, so words differ along a stream.
	z := uint64(p)*0xd1342543de82ef95 + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill writes the bytes from off on, off a multiple of 8, into b.
func (p pattern) fill(b []byte, off int64) {
	i := uint64(off) / 8
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, p.word(i))
		b, i = b[8:], i+1
	}
	if len(b) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], p.word(i))
		copy(b, w[:])
	}
}

func (p pattern) bytes(n int) []byte {
	b := make([]byte, n)
	p.fill(b, 0)
	return b
}

// dialRaw sends a signed request over a connection of its own with a small
// receive buffer, and leaves the answer unread.
func dialRaw(t *testing.T, c *client, method, path, query string, body []byte) net.Conn {
	t.Helper()
	r, err := c.request(context.Background(), method, path, query, bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	return conn
}
