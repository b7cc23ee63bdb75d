package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	kv "github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/transporttest"
)

// ramTransport is a second transport: a fabric within this process, where
// address and key together find memory.
type ramTransport struct {
	reg *registry.Registry

	mu    sync.Mutex
	peers map[string]*ramMemory // by address + key
}

// ramMemory is the memory of one peer.
type ramMemory struct {
	mem   []byte
	fails error // what Sink returns

	mu       sync.Mutex
	ready    []int
	released bool
}

func (t *ramTransport) Provider() descriptor.Provider {
	return descriptor.Provider{Provider: "ram;test"}
}
func (t *ramTransport) Close() error { return nil }

// peer makes a peer with memory that a server may reach.
func (t *ramTransport) peer(addressAndKey string, n int) *ramMemory {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &ramMemory{mem: make([]byte, n)}
	t.peers[addressAndKey] = m
	return m
}

func (t *ramTransport) Register(ctx context.Context, who registry.Owner, q *descriptor.Register) (*descriptor.Registered, error) {
	id, expires, err := t.reg.Reserve(who, q.Provider, q.Length)
	if err != nil {
		return nil, err
	}
	_, err = t.reg.Attach(ctx, id, q.Provider, func(length int64) (registry.Memory, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		m := t.peers[string(q.Address)+string(q.Key)]
		if m == nil || int64(len(m.mem)) != length {
			return nil, &descriptor.FieldError{Field: "address", Reason: "nothing can be reached there"}
		}
		return m, nil
	})
	if err != nil {
		return nil, err
	}
	return &descriptor.Registered{ID: id, ExpiresInMillis: expires.Milliseconds()}, nil
}

func (m *ramMemory) WriteNonce(_ context.Context, nonce []byte) error { copy(m.mem, nonce); return nil }

func (m *ramMemory) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = true
}

func (m *ramMemory) Sink(_ context.Context, g *registry.Grant) (transport.Sink, error) {
	if m.fails != nil {
		return nil, m.fails
	}
	return &ramSink{transporttest.NewMemory(int(g.Length)), m, g}, nil
}

// ramSink moves a layer's bytes into the peer's memory when it is announced, as
// a fabric that writes in large pieces does.
type ramSink struct {
	*transporttest.Memory
	to *ramMemory
	g  *registry.Grant
}

func (s *ramSink) LayerReady(layer int) error {
	if s.g.Revoked() {
		return registry.ErrRevoked
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	copy(s.to.mem[s.g.Offset:], s.Bytes())
	s.to.ready = append(s.to.ready, layer)
	return s.Memory.LayerReady(layer)
}

func (s *ramSink) Close() error {
	defer s.g.Close()
	return s.Memory.Close()
}

// startRAM is a server with shared memory and one more transport.
func startRAM(t *testing.T) (*running, *ramTransport, []string) {
	t.Helper()
	fake := &ramTransport{peers: map[string]*ramMemory{}}
	logged := new(logBuffer)
	r := start(t, Options{Dir: t.TempDir(), ShmListen: filepath.Join(t.TempDir(), "s"), ShmBytes: 64 << 10,
		Transports: []OpenTransport{func(reg *registry.Registry, _ *slog.Logger) (Transport, error) { fake.reg = reg; return fake, nil }},
		Logger:     slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r.log = logged
	c := kvClient(t, r.url, rootKey, rootSecret)
	if err := c.S3().MakeBucket(t.Context(), "kvs", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return r, fake, put(t, c, 2, 2000)
}

// TestSecondTransport: a transport that is plugged in by one line has the whole
// protocol, and shares its limits with shared memory.
func TestSecondTransport(t *testing.T) {
	r, fake, keys := startRAM(t)
	const address, key = "an endpoint", "SECRETKEY"
	peer := fake.peer(address+key, 8192)
	register := func(body string) (int, string) {
		t.Helper()
		status, answer, _ := ask(t, r.url, rootKey, rootSecret, "/?kv-register=", body, true)
		return status, answer
	}
	var a struct {
		ID, Handle string
		Nonce      int `json:"nonce_bytes"`
		Slots      int
	}
	send := func(body string) {
		t.Helper()
		status, answer := register(body)
		if status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			t.Fatal(err)
		}
	}
	if status, answer := register(`{"providers":true}`); status != 200 ||
		!strings.Contains(answer, `[{"provider":"shm","socket":"/`) || !strings.Contains(answer, `},{"provider":"ram;test"}]`) {
		t.Errorf("providers: %d %s", status, answer)
	}
	name := func(address, key string, n int) string {
		return fmt.Sprintf(`{"provider":"ram;test","length":%d,"address":%q,"key":%q,"base":0}`, n,
			base64.StdEncoding.EncodeToString([]byte(address)), base64.StdEncoding.EncodeToString([]byte(key)))
	}
	status, body := register(name("elsewhere", key, 8192))
	refused(t, "an address where nobody is", status, body, 400, "<ArgumentName>address")
	status, body = register(strings.Replace(name(address, key, 8192), "ram;test", "verbs;ofi_rxm", 1))
	refused(t, "a provider that is not offered", status, body, 501, "<ArgumentName>provider")
	status, body = register(strings.Replace(name(address, key, 8192), `"base":0`, `"base":-1`, 1))
	refused(t, "a base that is none", status, body, 400, "<ArgumentName>base")

	send(name(address, key, 8192))
	if a.Nonce != registry.NonceBytes || bytes.Equal(peer.mem[:a.Nonce], make([]byte, a.Nonce)) {
		t.Fatalf("no nonce of %d bytes in the memory", a.Nonce)
	}
	nonce := base64.RawURLEncoding.EncodeToString(peer.mem[:a.Nonce])
	send(fmt.Sprintf(`{"id":%q,"nonce":%q}`, a.ID, nonce))
	if a.Handle == "" || a.Slots != registry.Slots {
		t.Fatalf("%+v", a)
	}
	clear(peer.mem)
	get := func(tag int) (int, string) {
		status, body, _ := ask(t, r.url, rootKey, rootSecret, "/kvs?kv-get=", fmt.Sprintf(
			`{"chunk_keys":[%q,%q],"num_layers":2,"per_layer_chunk_bytes":1000,"rdma_target":{"handle":%q,"offset":100,"length":4000,"tag":%d}}`,
			keys[0], keys[1], a.Handle, tag), true)
		return status, body
	}
	status, body = get(3)
	refused(t, "a delivery", status, body, 200, `"bytes":4000`)
	var want []byte
	for l := range 2 {
		for _, k := range keys {
			want = append(want, content(k, 2000)[l*1000:][:1000]...)
		}
	}
	if !bytes.Equal(peer.mem[100:4100], want) || !bytes.Equal(peer.mem[:100], make([]byte, 100)) || !bytes.Equal(peer.mem[4100:], make([]byte, 4092)) {
		t.Error("the bytes are wrong, or outside the window")
	}
	if fmt.Sprint(peer.ready) != "[0 1]" {
		t.Errorf("layers ready: %v", peer.ready)
	}
	status, body = get(3)
	refused(t, "a replayed tag", status, body, 400, "<ArgumentName>rdma_target.tag")
	peer.fails = fmt.Errorf("%w: of this transport", registry.ErrTag)
	status, body = get(4)
	refused(t, "a tag that the transport has no room for", status, body, 400, "<ArgumentName>rdma_target.tag")
	peer.fails = registry.ErrRevoked
	status, body = get(6)
	refused(t, "a peer that has just gone", status, body, 400, "<ArgumentName>rdma_target.handle")
	peer.fails = errors.New("out of order")
	status, body = get(5)
	refused(t, "a transport that fails", status, body, 500, "InternalError")
	peer.fails = nil

	// 64 KiB may be registered here, by whatever transport.
	status, body = register(`{"provider":"shm","length":61440}`)
	refused(t, "past the limit together", status, body, 503, "SlowDown")
	status, body = register(fmt.Sprintf(`{"handle":%q,"withdraw":true}`, a.Handle))
	refused(t, "withdrawing", status, body, 200, "expires_in_ms")
	if !peer.released {
		t.Error("the memory was not released")
	}
	status, body = get(7)
	refused(t, "a delivery after that", status, body, 400, "<ArgumentName>rdma_target.handle")
	status, body = register(fmt.Sprintf(`{"handle":%q,"withdraw":true}`, a.Handle))
	refused(t, "withdrawing again", status, body, 400, "<ArgumentName>handle")
	status, body = register(`{"provider":"shm","length":61440}`)
	refused(t, "after that", status, body, 200, `"socket"`)

	log := r.log.String()
	for _, secret := range []string{a.Handle, a.ID, nonce, key, base64.StdEncoding.EncodeToString([]byte(key))} {
		if strings.Contains(log, secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
	if !strings.Contains(log, "KVRegister") {
		t.Error("nothing is logged: the test means nothing")
	}
}

// TestTransportsOfOneName are a mistake of whoever wires them.
func TestTransportsOfOneName(t *testing.T) {
	open := func(reg *registry.Registry, _ *slog.Logger) (Transport, error) { return &ramTransport{reg: reg}, nil }
	if _, err := openMemory(registry.Config{}, []OpenTransport{open, open}, nil); err == nil {
		t.Error("two transports of one name were opened")
	}
	broken := errors.New("no device")
	if _, err := openMemory(registry.Config{}, []OpenTransport{open, func(*registry.Registry, *slog.Logger) (Transport, error) {
		return nil, broken
	}}, nil); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// TestNoTenantTakesAllMemory: what one tenant has registered leaves something
// to the others.
func TestNoTenantTakesAllMemory(t *testing.T) {
	r, _, _ := startShm(t, 1, 10) // 64 MiB for all
	tenant := func(access, secret string) *kv.Client {
		c, err := kv.New(kv.Config{Endpoint: r.url, AccessKey: access, SecretKey: secret, Bucket: "kvs", Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	greedy, other := tenant(rootKey, rootSecret), tenant("OTHERKEY", "the secret of other")
	first, err := greedy.Register(t.Context(), 48<<20)
	if err != nil {
		t.Fatal(err)
	}
	var e *kv.Error
	if b, err := greedy.Register(t.Context(), 8<<20); !errors.As(err, &e) || e.StatusCode != 503 {
		t.Errorf("more than three quarters: %v, %v", b, err)
	}
	second, err := other.Register(t.Context(), 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}
