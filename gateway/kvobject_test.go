package gateway

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
)

// ram is one registered memory of one access key.
type ram struct {
	handle, owner string
	mu            sync.Mutex
	mem           []byte
	used          map[int64]bool
	paths         []descriptor.Path
	open          int // transfers
	failAt        int64
}

func (m *ram) Providers() []descriptor.Provider { return nil }

func (m *ram) Register(context.Context, *tenant.Identity, *descriptor.Register) (*descriptor.Registered, error) {
	return nil, fmt.Errorf("not used")
}

func (m *ram) Deliver(context.Context, *tenant.Identity, Delivery, *descriptor.Descriptor) (*descriptor.Summary, error) {
	return nil, fmt.Errorf("not used")
}

func (m *ram) begin(who *tenant.Identity, t *descriptor.ObjectTarget) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case t.Handle != m.handle || who.AccessKey != m.owner:
		return nil, &descriptor.FieldError{Field: "rdma_target.handle", Reason: "unknown"}
	case t.Offset+t.Length > int64(len(m.mem)):
		return nil, &descriptor.FieldError{Field: "rdma_target.length", Reason: "outside"}
	case m.used[t.Tag]:
		return nil, &descriptor.FieldError{Field: "rdma_target.tag", Reason: "used up"}
	}
	m.used[t.Tag] = true
	m.paths = append(m.paths, t.Path)
	m.open++
	return m.mem[t.Offset : t.Offset+t.Length], nil
}

func (m *ram) end() {
	m.mu.Lock()
	m.open--
	m.mu.Unlock()
}

func (m *ram) WriteObject(ctx context.Context, who *tenant.Identity, t *descriptor.ObjectTarget, obj storage.Object, off, n int64) error {
	win, err := m.begin(who, t)
	if err != nil {
		return err
	}
	defer m.end()
	return obj.ReadAt(ctx, win[:n], off, storage.ReadHint{})
}

func (m *ram) ReadObject(_ context.Context, who *tenant.Identity, t *descriptor.ObjectTarget) (io.ReadCloser, error) {
	win, err := m.begin(who, t)
	if err != nil {
		return nil, err
	}
	return &ramBody{Reader: bytes.NewReader(win), m: m}, nil
}

type ramBody struct {
	*bytes.Reader
	m    *ram
	once sync.Once
}

func (b *ramBody) Read(p []byte) (int, error) {
	if k := b.m.failAt; k > 0 && b.Size()-int64(b.Len()) >= k {
		return 0, &descriptor.FieldError{Field: "rdma_target.handle", Reason: "the memory was withdrawn"}
	}
	return b.Reader.Read(p)
}

func (b *ramBody) Close() error { b.once.Do(b.m.end); return nil }

// target is the header's value, from the description of the wire alone.
func target(handle string, offset, length int, tag int, more string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"handle":%q,"offset":%d,"length":%d,"tag":%d%s}`, handle, offset, length, tag, more))
}

func ramHarness(t *testing.T) (*harness, *ram) {
	m := &ram{handle: "the handle", owner: rootKey, mem: make([]byte, 300_000), used: map[int64]bool{}}
	h := newHarness(t, func(c *Config) { c.Memory, c.MaxObject = m, 250_000 })
	h.bucket(t, "bbb")
	return h, m
}

func TestGetObjectInto(t *testing.T) {
	h, m := ramHarness(t)
	body := chunk("k", 200_000)
	etag := h.put(t, "/bbb/k", body, "x-amz-meta-a", "b", "cache-control", "public, max-age=9", "x-kv-index", "0")
	h.put(t, "/bbb/empty", nil)
	tag := 0
	for _, c := range []struct {
		target, rng  string
		off, n       int // of the object
		status, size int
		more         string
	}{
		{"/bbb/k", "", 0, 200_000, 200, 200_000, ""},
		{"/bbb/k", "bytes=65536-131071", 65536, 65536, 206, 200_000, `,"path":"buffer"`},
		{"/bbb/k", "bytes=-7", 199_993, 7, 206, 200_000, `,"path":"direct"`},
		{"/bbb/k", "bytes=1-", 1, 199_999, 206, 200_000, ""},
		{"/bbb/k?partNumber=1", "", 0, 200_000, 206, 200_000, ""},
		{"/bbb/empty", "", 0, 0, 200, 0, ""},
	} {
		for i := range m.mem {
			m.mem[i] = 0xa5
		}
		q := wireRequest{method: "GET", target: c.target, header: map[string]string{"x-kv-rdma-target": target("the handle", 1000, max(c.n, 1), tag, c.more)}}
		if c.rng != "" {
			q.header["range"] = c.rng
		}
		tag++
		a := h.want(t, c.status, q)
		if len(a.body) != 0 || a.Header.Get("Content-Length") != "0" || a.Header.Get("X-Kv-Bytes") != strconv.Itoa(c.n) || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%+v: body of %d bytes, %v", c, len(a.body), a.Header)
		}
		if c.size > 0 && (a.Header.Get("ETag") != etag || a.Header.Get("X-Amz-Meta-A") != "b" || a.Header.Get("X-Kv-Index") != "0") {
			t.Errorf("%+v: %v", c, a.Header)
		}
		want := ""
		if c.status == 206 {
			want = fmt.Sprintf("bytes %d-%d/%d", c.off, c.off+c.n-1, c.size)
		}
		if a.Header.Get("Content-Range") != want {
			t.Errorf("%+v: content-range %q", c, a.Header.Get("Content-Range"))
		}
		if c.size > 0 && !bytes.Equal(m.mem[1000:1000+c.n], body[c.off:c.off+c.n]) {
			t.Errorf("%+v: wrong bytes", c)
		}
		for i, b := range m.mem {
			if b != 0xa5 && (i < 1000 || i >= 1000+c.n) {
				t.Fatalf("%+v: byte %d outside was written", c, i)
			}
		}
	}
	if m.paths[0] != descriptor.Direct || m.paths[1] != descriptor.Buffer || m.paths[2] != descriptor.Direct || m.open != 0 {
		t.Errorf("%v, %d transfers open", m.paths, m.open)
	}
	// A HEAD moves nothing and tells what a GET without the header would.
	a := h.want(t, 200, wireRequest{method: "HEAD", target: "/bbb/k", header: map[string]string{"x-kv-rdma-target": target("the handle", 0, 1, 0, "")}})
	if a.Header.Get("Content-Length") != "200000" || a.Header.Get("X-Kv-Bytes") != "" || len(m.paths) != tag {
		t.Errorf("HEAD: %v", a.Header)
	}
	// The conditions come before the memory: no tag is used up.
	for header, status := range map[string]int{"if-none-match": 304, "if-match": 412} {
		v := etag
		if status == 412 {
			v = `"0"`
		}
		h.want(t, status, wireRequest{method: "GET", target: "/bbb/k", header: map[string]string{header: v, "x-kv-rdma-target": target("the handle", 0, 200_000, tag, "")}})
	}
	h.wantCode(t, "InvalidRange", wireRequest{method: "GET", target: "/bbb/k", header: map[string]string{"range": "bytes=200000-", "x-kv-rdma-target": target("the handle", 0, 1, tag, "")}})
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/bbb/none", header: map[string]string{"x-kv-rdma-target": target("the handle", 0, 1, tag, "")}})
	if m.used[int64(tag)] {
		t.Error("a tag was used up by a request that failed before its memory was looked at")
	}
}

func TestPutObjectFrom(t *testing.T) {
	h, m := ramHarness(t)
	body := chunk("p", 200_000)
	copy(m.mem[500:], body)
	tag := 0
	put := func(key string, more ...string) wireRequest {
		tag++
		q := wireRequest{method: "PUT", target: "/bbb/" + key, header: map[string]string{"x-kv-rdma-target": target("the handle", 500, len(body), tag, "")}}
		for i := 0; i < len(more); i += 2 {
			q.header[more[i]] = more[i+1]
		}
		return q
	}
	md := md5.Sum(body)
	crc := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))))
	a := h.want(t, 200, put("k", "content-type", "x/y", "x-amz-meta-a", "b", "x-kv-index", "3", "x-kv-parent", "p", "if-none-match", "*",
		"content-md5", base64.StdEncoding.EncodeToString(md[:]), "x-amz-checksum-crc32c", crc))
	if a.Header.Get("ETag") != `"`+hex.EncodeToString(md[:])+`"` || a.Header.Get("X-Kv-Bytes") != "200000" || a.Header.Get("X-Amz-Checksum-Crc32c") != crc || len(a.body) != 0 {
		t.Errorf("%v", a.Header)
	}
	a = h.want(t, 200, wireRequest{method: "GET", target: "/bbb/k"})
	if !bytes.Equal(a.body, body) || a.Header.Get("Content-Type") != "x/y" || a.Header.Get("X-Amz-Meta-A") != "b" || a.Header.Get("X-Kv-Index") != "3" || a.Header.Get("X-Kv-Parent") != "p" {
		t.Errorf("%d bytes, %v", len(a.body), a.Header)
	}
	clear(m.mem)
	h.wantCode(t, "PreconditionFailed", put("k", "if-none-match", "*"))
	h.wantCode(t, "BadDigest", put("k2", "x-amz-checksum-crc32c", crc))
	h.wantCode(t, "BadDigest", put("k2", "content-md5", base64.StdEncoding.EncodeToString(md[:])))
	if a := h.wantCode(t, "InvalidArgument", put("k2", "x-kv-index", "x")); element(a.body, "ArgumentName") != "x-kv-index" {
		t.Errorf("%s", a.body)
	}
	q := put("k2")
	q.header["x-kv-rdma-target"] = target("the handle", 0, 250_001, tag, "")
	h.wantCode(t, "EntityTooLarge", q)
	m.failAt = 100_000
	if a := h.wantCode(t, "InvalidArgument", put("k2")); element(a.body, "ArgumentName") != "rdma_target.handle" || a.Header.Get("X-Kv-Bytes") != "" {
		t.Errorf("%s %v", a.body, a.Header)
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/bbb/k2"})
	if a := h.want(t, 200, wireRequest{method: "GET", target: "/bbb/k"}); !bytes.Equal(a.body, body) {
		t.Error("the object was changed by PUTs that failed")
	}
	if m.open != 0 {
		t.Errorf("%d transfers open", m.open)
	}
}

// TestObjectTargetRefused: before a byte moves, and by name.
func TestObjectTargetRefused(t *testing.T) {
	h, m := ramHarness(t)
	h.put(t, "/bbb/k", chunk("k", 1000))
	m.used[99] = true
	good := func() map[string]string {
		return map[string]string{"x-kv-rdma-target": target("the handle", 0, 1000, 7, "")}
	}
	with := func(name, value string) map[string]string { g := good(); g[name] = value; return g }
	for _, c := range []struct {
		what, code, field string
		q                 wireRequest
	}{
		{"nonsense", "InvalidArgument", "x-kv-rdma-target", wireRequest{header: map[string]string{"x-kv-rdma-target": "!"}}},
		{"no tag", "InvalidArgument", "rdma_target.tag", wireRequest{header: map[string]string{"x-kv-rdma-target": base64.RawURLEncoding.EncodeToString([]byte(`{"handle":"h","offset":0,"length":1}`))}}},
		{"an unknown path", "InvalidArgument", "rdma_target.path", wireRequest{header: map[string]string{"x-kv-rdma-target": target("the handle", 0, 1000, 7, `,"path":"x"`)}}},
		{"a wrong handle", "InvalidArgument", "rdma_target.handle", wireRequest{header: map[string]string{"x-kv-rdma-target": target("other", 0, 1000, 7, "")}}},
		{"a used tag", "InvalidArgument", "rdma_target.tag", wireRequest{header: map[string]string{"x-kv-rdma-target": target("the handle", 0, 1000, 99, "")}}},
		{"past the memory", "InvalidArgument", "rdma_target.length", wireRequest{header: map[string]string{"x-kv-rdma-target": target("the handle", 299_001, 1000, 7, "")}}},
		{"an unsigned payload", "AccessDenied", "", wireRequest{header: good(), hash: "UNSIGNED-PAYLOAD"}},
		{"another body's hash", "XAmzContentSHA256Mismatch", "", wireRequest{header: good(), hash: hexSHA256([]byte("x"))}},
		{"a token beside it", "InvalidArgument", "x-kv-rdma-target", wireRequest{header: with("x-amz-rdma-token", "0:1:2")}},
	} {
		for _, method := range []string{"GET", "PUT"} {
			c.q.method, c.q.target = method, "/bbb/k"
			a := h.wantCode(t, c.code, c.q)
			if element(a.body, "ArgumentName") != c.field {
				t.Errorf("%s %s: %s", method, c.what, a.body)
			}
		}
	}
	field := func(code, name string, q wireRequest) {
		t.Helper()
		if a := h.wantCode(t, code, q); element(a.body, "ArgumentName") != name {
			t.Errorf("%s %s: %s", q.method, q.target, a.body)
		}
	}
	field("InvalidArgument", "rdma_target.length", wireRequest{method: "GET", target: "/bbb/k", header: map[string]string{"x-kv-rdma-target": target("the handle", 0, 999, 7, "")}})
	field("InvalidArgument", "x-kv-rdma-target", wireRequest{method: "PUT", target: "/bbb/k", header: good(), body: []byte("x")})
	field("InvalidArgument", "x-kv-rdma-target", wireRequest{method: "PUT", target: "/bbb/k2", header: with("x-amz-copy-source", "/bbb/k")})
	field("InvalidArgument", "x-kv-rdma-target", wireRequest{method: "GET", target: "/bbb/k", header: with("x-kv-descriptor", "e30")})
	// The header must be signed; allSigned sees to that for all of x-kv-.
	r := h.request(t, wireRequest{method: "GET", target: "/bbb/k"})
	r.Header["X-Kv-Rdma-Target"] = []string{good()["x-kv-rdma-target"]}
	resp, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 403 || !strings.Contains(string(b), "AccessDenied") {
		t.Errorf("an unsigned header: %d %s", resp.StatusCode, b)
	}
	if m.used[7] || m.open != 0 {
		t.Error("a refused request used its tag up, or still holds memory")
	}
	none := newHarness(t)
	none.bucket(t, "bbb")
	none.put(t, "/bbb/k", []byte("x"))
	for _, method := range []string{"GET", "PUT"} {
		a := none.wantCode(t, "InvalidArgument", wireRequest{method: method, target: "/bbb/k", header: good()})
		if element(a.body, "ArgumentName") != "rdma_target.handle" {
			t.Errorf("%s without memory: %s", method, a.body)
		}
	}
}

// TestRDMATokenIsDeclinedAtOnce: a cuObject client gets its "send it again
// without" before any byte of a body is asked for, and nothing is stored.
func TestRDMATokenIsDeclinedAtOnce(t *testing.T) {
	h := newHarness(t)
	h.bucket(t, "bbb")
	r := h.request(t, wireRequest{method: "PUT", target: "/bbb/k", hash: "UNSIGNED-PAYLOAD", header: map[string]string{"x-amz-rdma-token": "00:1:2;", "expect": "100-continue"}})
	r.ContentLength = 1 << 30
	conn, err := net.Dial("tcp", h.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "PUT /bbb/k HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", r.URL.Host, r.ContentLength)
	if err := r.Header.Write(conn); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "\r\n")
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	head := string(answer[:n])
	if !strings.HasPrefix(head, "HTTP/1.1 501 ") || !strings.Contains(head, "X-Amz-Rdma-Reply: 501\r\n") {
		t.Errorf("got %s", head)
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/bbb/k"})
	// Other requests go as if the token were not there.
	h.put(t, "/bbb/k", []byte("x"))
	if a := h.want(t, 200, wireRequest{method: "HEAD", target: "/bbb/k", header: map[string]string{"x-amz-rdma-token": "0"}}); a.Header.Get("X-Amz-Rdma-Reply") != "" {
		t.Errorf("HEAD: %v", a.Header)
	}
}
