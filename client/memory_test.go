package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/descriptor"
)

// ramStore is as much of a store as registration and a delivery take. It
// writes to memory of this process that it finds by address and key.
type ramStore struct {
	providers string        // of the answer
	busy      bool          // no memory can be named just now
	layers    int           // announced; fewer than two, and the delivery hangs then
	pause     time.Duration // before a layer but the first, and before the answer
	header    time.Duration // the client's HeaderTimeout
	expires   int           // of an id, in ms; 0: 5000

	mu    sync.Mutex
	peers map[string]*ramMemory
	asked []string // the forms of registration, in order
	named *ramMemory
}

// ramMemory is a second implementation of memory.
type ramMemory struct {
	mem    []byte
	offers error // what offer returns
	stuck  bool  // offer returns when it is told to
	most   int64 // lastTag
	silent bool  // not noticed
	gone   chan struct{}
	once   sync.Once
	closed bool

	mu    sync.Mutex
	ready map[[2]int64]bool // tag and layer
}

func (m *ramMemory) Bytes() []byte { return m.mem }
func (m *ramMemory) name() *descriptor.Register {
	return &descriptor.Register{Provider: "ram;test", Length: int64(len(m.mem)), Address: []byte("here"), Key: []byte("key"), Base: 77}
}
func (m *ramMemory) offer(ctx context.Context, _ *descriptor.Registered) error {
	if m.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	return m.offers
}
func (m *ramMemory) lastTag() int64              { return m.most }
func (m *ramMemory) noticed() bool               { return !m.silent }
func (m *ramMemory) Gone() <-chan struct{}       { return m.gone }
func (m *ramMemory) Withdraw(time.Duration) bool { m.once.Do(func() { close(m.gone) }); return true }
func (m *ramMemory) Close(d time.Duration) error {
	m.Withdraw(d)
	m.closed = true
	return nil
}

func (m *ramMemory) Wait(tag int64, layer int, d time.Duration) bool {
	for end := time.Now().Add(d); ; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		is := m.ready[[2]int64{tag, int64(layer)}]
		m.mu.Unlock()
		if is || !time.Now().Before(end) {
			return is
		}
	}
}

func (m *ramMemory) announce(tag int64, layer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready[[2]int64{tag, int64(layer)}] = true
}

func (s *ramStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var q struct {
		Provider, Address, Key, ID, Nonce, Handle string
		Base                                      int64
		Providers, Withdraw                       bool
		Target                                    struct {
			Handle      string
			Tag, Offset int64
		} `json:"rdma_target"`
	}
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
	}
	if json.Unmarshal(body, &q) != nil {
		fail(400, "InvalidArgument")
		return
	}
	if r.URL.Query().Has("kv-get") {
		s.deliver(w, r, q.Target.Tag, q.Target.Offset)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	form := "name"
	answer := fmt.Sprintf(`{"id":"ID","nonce_bytes":32,"expires_in_ms":%d}`, cmp.Or(s.expires, 5000))
	switch {
	case q.Providers:
		form, answer = "providers", s.providers
	case q.Withdraw:
		form, answer = "withdraw", "{}"
	case q.ID != "":
		form, answer = "confirm", `{"handle":"HANDLE","slots":16,"max_layers":1024,"expires_in_ms":600000}`
		if want := base64.RawURLEncoding.EncodeToString(s.named.mem[:32]); q.ID != "ID" || q.Nonce != want {
			fail(400, "InvalidArgument")
			return
		}
	case q.Provider != "ram;test" || q.Address != "aGVyZQ==" || q.Key != "a2V5" || q.Base != 77:
		form = fmt.Sprintf("wrong: %s", body)
	case s.busy:
		fail(503, "SlowDown")
		return
	default:
		s.named = s.peers["here"+"key"]
		copy(s.named.mem[:32], "a nonce of just thirty-two bytes.")
	}
	s.asked = append(s.asked, form)
	fmt.Fprint(w, answer)
}

// deliver writes two layers of 4 bytes.
func (s *ramStore) deliver(w http.ResponseWriter, r *http.Request, tag, offset int64) {
	for l := range min(s.layers, 2) {
		if l > 0 {
			time.Sleep(s.pause)
		}
		copy(s.named.mem[offset+int64(4*l):], fmt.Sprintf("lay%d", l))
		s.named.announce(tag, l)
	}
	if s.layers < 2 {
		<-r.Context().Done()
	}
	s.named.announce(tag, over)
	time.Sleep(s.pause)
	fmt.Fprint(w, `{"mode":"layer","matched":1,"bytes":8,"per_layer_us":[1,2],"granted_rate":0}`)
}

// startRAM is a store and a client whose only other transport than the
// build's is m's.
func startRAM(t *testing.T, s *ramStore, m *ramMemory) *Client {
	t.Helper()
	if s.providers == "" {
		s.providers = `{"providers":[{"provider":"shm","socket":"/nowhere/to/be/seen"},{"provider":"another","x":1},{"provider":"ram;test"}]}`
	}
	m.gone, m.ready = make(chan struct{}), map[[2]int64]bool{}
	m.mem = make([]byte, 4096)
	if m.most == 0 {
		m.most = 1 << 40
	}
	s.peers = map[string]*ramMemory{"herekey": m}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	c, err := New(Config{Endpoint: h.URL, AccessKey: "a", SecretKey: "b", Bucket: "kvs", Retries: -1, HeaderTimeout: s.header})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.transports = append(slices.Clone(c.transports), func(_ *Client, p descriptor.Provider, n int64) (memory, error) {
		if p.Provider != "ram;test" {
			return nil, errAnother
		}
		if int64(len(m.mem)) < n {
			return nil, errors.New("no room")
		}
		return m, nil
	})
	return c
}

var ramGet = GetRequest{Keys: []string{"a"}, NumLayers: 2, PerLayerChunkBytes: 4}

// TestSecondTransport: the store's shared memory is out of sight, so that the
// buffer is another transport's, and works as one of shared memory does.
func TestSecondTransport(t *testing.T) {
	s, m := &ramStore{layers: 2}, &ramMemory{silent: true}
	c := startRAM(t, s, m)
	buf, err := c.Register(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	if len(buf.Bytes()) != 4000 || strings.Trim(string(buf.Bytes()), "\x00") != "" {
		t.Errorf("%d bytes, %q", len(buf.Bytes()), buf.Bytes()[:40])
	}
	for i := range int64(20) {
		tr, err := c.GetLayersInto(t.Context(), ramGet, buf, descriptor.Target{Offset: 100 * i})
		if err != nil {
			t.Fatal(err)
		}
		for l := range 2 {
			if err := tr.WaitLayer(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if got := string(buf.Bytes()[100*i+int64(4*l):][:4]); got != fmt.Sprintf("lay%d", l) {
				t.Errorf("layer %d is %q", l, got)
			}
		}
		if sum, err := tr.Wait(t.Context()); err != nil || sum.Bytes != 8 {
			t.Errorf("%+v, %v", sum, err)
		}
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"providers", "name", "confirm", "withdraw"}; !slices.Equal(s.asked, want) {
		t.Errorf("the store was asked %q, want %q", s.asked, want)
	}
	if !m.closed {
		t.Error("the memory is not closed")
	}
}

// TestStoreHangs: what was announced counts, and a transfer that is given up
// ends although the store never answers.
func TestStoreHangs(t *testing.T) {
	s, m := &ramStore{layers: 1}, &ramMemory{}
	c := startRAM(t, s, m)
	buf, err := c.Register(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.GetLayersInto(t.Context(), ramGet, buf, descriptor.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.WaitLayer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	m.Withdraw(0) // as when the transport loses the store
	var e *Error
	if err := tr.WaitLayer(t.Context(), 1); !errors.As(err, &e) || e.LayersReady != 1 {
		t.Errorf("%v", err)
	}
	<-buf.Lost()
	tr, err = c.GetLayersInto(t.Context(), ramGet, buf, descriptor.Target{Offset: 8})
	if err == nil {
		_, err = tr.Wait(t.Context())
	}
	if err == nil {
		t.Error("a transfer into a lost buffer succeeded")
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(s.asked, "withdraw") {
		t.Error("a store that notices by itself was told")
	}
}

// TestHandingOverHangs: memory is handed over to a store that has stopped for
// as long as its id is good, whatever the caller's context allows.
func TestHandingOverHangs(t *testing.T) {
	m := &ramMemory{stuck: true}
	c := startRAM(t, &ramStore{expires: 20}, m)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Register(ctx, 10); !hasCode(err, "Memory") || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
	if !m.closed {
		t.Error("the memory is left open")
	}
}

// TestSlowDelivery: the answer comes after the last layer, so that a delivery
// may take longer than an answer's first line, as long as layers come.
func TestSlowDelivery(t *testing.T) {
	t.Parallel()
	s, m := &ramStore{layers: 2, header: 2 * time.Second, pause: 1500 * time.Millisecond}, &ramMemory{}
	c := startRAM(t, s, m)
	buf, err := c.Register(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.GetLayersInto(t.Context(), ramGet, buf, descriptor.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := tr.Wait(t.Context()); err != nil || sum.Bytes != 8 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoLayerComes: a store that takes a request and then says nothing, neither
// in memory nor by an answer, is not waited for without end.
func TestNoLayerComes(t *testing.T) {
	t.Parallel()
	s, m := &ramStore{layers: 1, header: 50 * time.Millisecond}, &ramMemory{}
	c := startRAM(t, s, m)
	buf, err := c.Register(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.GetLayersInto(t.Context(), ramGet, buf, descriptor.Target{})
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := tr.Wait(t.Context()); !errors.As(err, &e) || e.Code != "Network" || e.LayersReady != 1 {
		t.Errorf("%v", err)
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTagsUsedUp: a buffer whose transport has no more tags says so.
func TestTagsUsedUp(t *testing.T) {
	s, m := &ramStore{layers: 2}, &ramMemory{most: 15}
	c := startRAM(t, s, m)
	buf, err := c.Register(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 17 {
		tr, err := c.GetLayersInto(t.Context(), ramGet, buf, descriptor.Target{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.Wait(t.Context())
		if i < 16 && err != nil || i == 16 && !hasCode(err, "Closed") {
			t.Errorf("transfer %d: %v", i, err)
		}
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRegisterRefused: which errors end it, and which lead to the next provider.
func TestRegisterRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none")
	for name, q := range map[string]struct {
		store  *ramStore
		offers error
		n      int64
		code   string
		says   string
		asked  int
	}{
		"no memory at all":      {&ramStore{providers: `{"providers":[]}`}, nil, 10, "NotImplemented", "takes no memory", 1},
		"none that is here":     {&ramStore{providers: `{"providers":[{"provider":"shm","socket":"` + file + `"},{"provider":"x"}]}`}, nil, 10, "NotImplemented", "x: unknown", 1},
		"the store is busy":     {&ramStore{busy: true}, nil, 10, "SlowDown", "503", 1},
		"the handing over":      {&ramStore{}, errors.New("no way"), 10, "Memory", "ram;test: no way", 2},
		"no memory to be had":   {&ramStore{}, nil, 1 << 40, "Memory", "no room", 1},
		"not a length":          {&ramStore{}, nil, 0, "InvalidArgument", "length", 0},
		"one offered, one here": {&ramStore{providers: `{"providers":[{"provider":"ram;test"},{"provider":"ram;test"}]}`}, errors.New("no way"), 10, "Memory", "no way", 3},
	} {
		m := &ramMemory{offers: q.offers}
		c := startRAM(t, q.store, m)
		_, err := c.Register(t.Context(), q.n)
		if !hasCode(err, q.code) || !strings.Contains(err.Error(), q.says) {
			t.Errorf("%s: %v, want code %s and %q", name, err, q.code, q.says)
		}
		if len(q.store.asked) != q.asked {
			t.Errorf("%s: the store was asked %q", name, q.store.asked)
		}
		if q.asked > 1 && !m.closed {
			t.Errorf("%s: the memory is left open", name)
		}
		if err != nil && (strings.Contains(err.Error(), "HANDLE") || strings.Contains(err.Error(), "a2V5")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLetGo: what the store said stays readable.
func TestLetGo(t *testing.T) {
	e := &Error{Message: "it said"}
	e.letGo()
	if e.Message != "it said; the store has let go of the memory" {
		t.Errorf("%q", e.Message)
	}
}
