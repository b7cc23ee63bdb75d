package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/objcached/objcached/storage"
)

// pinStore counts the objects that are open.
type pinStore struct {
	storage.Store
	open atomic.Int64
	gate chan struct{} // if set, every Open waits for it
}

func (s *pinStore) Open(ctx context.Context, bucket, key string) (storage.Object, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	o, err := s.Store.Open(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	return &pinned{o, s, sync.Once{}}, nil
}

type pinned struct {
	storage.Object
	s    *pinStore
	once sync.Once
}

func (p *pinned) Close() error {
	p.once.Do(func() { p.s.open.Add(-1) })
	return p.Object.Close()
}

// eventually waits for a condition; only a broken server makes it give up.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never came: %s", what)
}

// dial opens a raw connection with small buffers to the server.
func (h *harness) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // whatever is left of it
	return c
}

// TestSlowReaderIsFreed: a client that stops reading is dropped, and its pin
// and its slot with it.
func TestSlowReaderIsFreed(t *testing.T) {
	t.Parallel()
	pins := &pinStore{Store: newStore(t)}
	h := newHarness(t, func(c *Config) {
		c.Store, c.StallTimeout, c.MaxRequests = pins, time.Second, 1
	})
	h.bucket(t, "box")
	h.put(t, "/box/k", content(1, 64<<20)) // more than any socket buffer takes
	c := h.dial(t)
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if err := h.request(t, wireRequest{method: "GET", target: "/box/k"}).Write(c); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(c, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	// From here on nobody reads.
	eventually(t, "the pin is released", func() bool { return pins.open.Load() == 0 })
	eventually(t, "the slot is released", func() bool { return len(h.g.admit.slots) == 0 })
	h.want(t, 200, wireRequest{method: "GET", target: "/"})
}

// TestSlowSenderIsFreed: so is one that stops sending, or drips.
func TestSlowSenderIsFreed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *Config) { c.StallTimeout, c.MaxRequests = time.Second, 2 })
	h.bucket(t, "box")
	for _, drip := range []bool{false, true} {
		c := h.dial(t)
		r := h.request(t, wireRequest{method: "PUT", target: "/box/k", body: content(1, 200000), hash: "UNSIGNED-PAYLOAD"})
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b.Bytes()[:b.Len()-150000]); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		if drip {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
						if _, err := c.Write([]byte{'x'}); err != nil {
							return
						}
					}
				}
			})
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), r)
		if err != nil {
			t.Fatalf("drip %v: %v", drip, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || element(body, "Code") != "RequestTimeout" {
			t.Errorf("drip %v: %d %s %v, want RequestTimeout", drip, resp.StatusCode, body, err)
		}
		close(stop)
		wg.Wait()
		eventually(t, "the slot is released", func() bool { return len(h.g.admit.slots) == 0 })
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/box/k"})
}

// TestDeadlinesDoNotOutlive: on one connection, requests far apart, with and
// without bodies, do not trip over the deadlines of those before.
func TestDeadlinesDoNotOutlive(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *Config) { c.StallTimeout = 500 * time.Millisecond })
	h.bucket(t, "box")
	for i := range 2 {
		h.put(t, "/box/k", content(1, 100000))
		time.Sleep(700 * time.Millisecond)
		if a := h.want(t, 200, wireRequest{method: "GET", target: "/box/k"}); !bytes.Equal(a.body, content(1, 100000)) {
			t.Fatalf("round %d: other bytes", i)
		}
		time.Sleep(700 * time.Millisecond)
		h.want(t, 204, wireRequest{method: "DELETE", target: "/box/k"})
		time.Sleep(700 * time.Millisecond)
	}
}

// TestSlowCommitIsNotCut: the stall timeout is about the peer. A store that
// takes its time after the body has ended is not mistaken for a slow sender.
func TestSlowCommitIsNotCut(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *Config) {
		c.StallTimeout = 500 * time.Millisecond
		c.Store = slowPut{c.Store}
	})
	h.bucket(t, "box")
	h.put(t, "/box/k", content(1, 1000))
}

type slowPut struct{ storage.Store }

func (s slowPut) Put(ctx context.Context, bucket, key string, body io.Reader, o storage.PutOptions) (storage.ObjectInfo, error) {
	b, err := io.ReadAll(body)
	if err != nil {
		return storage.ObjectInfo{}, err
	}
	select {
	case <-ctx.Done():
		return storage.ObjectInfo{}, ctx.Err()
	case <-time.After(1200 * time.Millisecond):
	}
	return s.Store.Put(ctx, bucket, key, bytes.NewReader(b), o)
}

// TestManyClients: 200 clients on 4 slots and a queue of 8 get an answer or
// 503 with Retry-After, all of them, and afterwards nothing is held.
func TestManyClients(t *testing.T) {
	pins := &pinStore{Store: newStore(t), gate: make(chan struct{})}
	h := newHarness(t, func(c *Config) {
		c.Store, c.MaxRequests, c.MaxQueue, c.QueueTimeout = pins, 4, 8, time.Minute
	})
	h.bucket(t, "box")
	body := content(1, 100000)
	h.put(t, "/box/k", body)
	h.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 200
	const clients = 200
	var ok, slow atomic.Int64
	errs := make(chan error, clients)
	for range clients {
		go func() {
			errs <- func() error {
				resp, err := h.client.Do(h.request(t, wireRequest{method: "GET", target: "/box/k"}))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				switch {
				case err != nil:
					return err
				case resp.StatusCode == 200 && bytes.Equal(got, body):
					ok.Add(1)
				case resp.StatusCode == 503 && element(got, "Code") == "SlowDown" && resp.Header.Get("Retry-After") != "":
					slow.Add(1)
				default:
					return fmt.Errorf("status %d: %s", resp.StatusCode, got)
				}
				return nil
			}()
		}()
	}
	// Nobody gets through the gate until everyone else has been turned away.
	eventually(t, "all but slots and queue are refused", func() bool { return slow.Load() == clients-12 })
	close(pins.gate)
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if ok.Load() != 12 {
		t.Errorf("%d answers and %d refusals, want 12 and %d", ok.Load(), slow.Load(), clients-12)
	}
	eventually(t, "everything is released", func() bool {
		return pins.open.Load() == 0 && len(h.g.admit.slots) == 0 && h.g.admit.queued.Load() == 0
	})
}

func TestTenantLimit(t *testing.T) {
	t.Parallel()
	a := newAdmission(10, 0, 2, time.Second)
	r1, ok1 := a.enterTenant("blue")
	r2, ok2 := a.enterTenant("blue")
	if _, ok := a.enterTenant("blue"); !ok1 || !ok2 || ok {
		t.Fatal("the third request of a tenant with two is let in")
	}
	if _, ok := a.enterTenant("red"); !ok {
		t.Fatal("another tenant is kept out")
	}
	r1()
	r2()
	if len(a.tenants) != 1 {
		t.Errorf("%d tenants counted, want 1", len(a.tenants))
	}
	if _, ok := a.enterTenant("blue"); !ok {
		t.Fatal("a tenant is kept out after its requests ended")
	}
}

// TestCorruptFirst: damage where the read begins is an error document.
// TestCorruptLater: damage further on breaks the connection.
func TestCorruption(t *testing.T) {
	t.Parallel()
	store, b := openStore(t)
	h := newHarness(t, func(c *Config) { c.Store = store })
	h.bucket(t, "box")
	body := content(7, 3*pieceSize)
	h.put(t, "/box/k", body)
	b.flip(t, body[:64], 2*pieceSize+5)
	if a := h.want(t, 206, wireRequest{method: "GET", target: "/box/k", header: map[string]string{"Range": "bytes=0-99"}}); !bytes.Equal(a.body, body[:100]) {
		t.Error("a sound range is not served")
	}
	a := h.wantCode(t, "InternalError", wireRequest{method: "GET", target: "/box/k", header: map[string]string{"Range": fmt.Sprintf("bytes=%d-", 2*pieceSize+100)}})
	if a.Header.Get("ETag") != "" || a.Header.Get("Content-Range") != "" {
		t.Errorf("an error with an object's headers: %v", a.Header)
	}
	resp, err := h.client.Do(h.request(t, wireRequest{method: "GET", target: "/box/k"}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it is broken
	if resp.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(body, got) || len(got) > 2*pieceSize {
		t.Errorf("status %d, %d bytes, %v: want the sound part and a broken connection", resp.StatusCode, len(got), err)
	}
	// A copy of it fails and leaves nothing.
	h.wantCode(t, "InternalError", wireRequest{method: "PUT", target: "/box/copy", header: map[string]string{"x-amz-copy-source": "box/k"}})
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/box/copy"})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	h := newHarness(t, func(c *Config) { c.Registerer = reg })
	h.bucket(t, "box")
	h.put(t, "/box/k", content(1, 1000))
	h.want(t, 200, wireRequest{method: "GET", target: "/box/k"})
	h.want(t, 404, wireRequest{method: "GET", target: "/box/none"})
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case m.Counter != nil:
				got[name] = m.Counter.GetValue()
			case m.Gauge != nil:
				got[name] = m.Gauge.GetValue()
			case m.Histogram != nil:
				got[name] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	for name, want := range map[string]float64{
		"objcached_requests_total 200 GetObject": 1, "objcached_requests_total 404 GetObject": 1,
		"objcached_requests_total 200 PutObject": 1, "objcached_request_seconds GetObject": 2,
		"objcached_received_bytes_total": 1000, "objcached_requests_in_flight": 0, "objcached_panics_total": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	if got["objcached_sent_bytes_total"] < 1000 {
		t.Errorf("%v bytes sent, want at least 1000", got["objcached_sent_bytes_total"])
	}
}

// BenchmarkGet measures a whole-object GET through the handler, without a
// socket: what the front itself costs over the store's read.
func BenchmarkGet(b *testing.B) {
	h := newHarness(b)
	h.bucket(b, "box")
	body := content(1, 4<<20)
	h.put(b, "/box/k", body)
	r := h.request(b, wireRequest{method: "GET", target: "/box/k"})
	r.RequestURI, r.RemoteAddr = "/box/k", "127.0.0.1:1"
	r.Host = r.URL.Host
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{h: http.Header{}}
		h.g.ServeHTTP(w, r.Clone(r.Context()))
		if w.n != len(body) {
			b.Fatalf("%d bytes, status %d", w.n, w.status)
		}
	}
}

type discard struct {
	h      http.Header
	n      int
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(s int)           { d.status = s }
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

// TestPiecesAreNotAllocated: a large body costs no memory per byte.
func TestPiecesAreNotAllocated(t *testing.T) {
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", content(1, 8<<20))
	obj, err := h.store.Open(t.Context(), "box", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Close()
	r := &request{Request: httptest.NewRequest("GET", "/box/k", nil)}
	w := &discard{h: http.Header{}}
	if n := testing.AllocsPerRun(10, func() {
		if err := h.g.sendObject(w, r, obj, span{n: obj.Size()}, 200); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations for 32 pieces, want at most 8", n)
	}
}

// TestExpectContinue: a client that asks before it sends is answered by the
// signature alone.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	body := content(1, 100000)
	for _, c := range []struct {
		target, user string
		first        int
	}{{"/box/k", "", 100}, {"/box/k", "-", 403}, {"/nobox/k", "", 404}} {
		r := h.request(t, wireRequest{method: "PUT", target: c.target, user: c.user, body: body})
		r.Header.Set("Expect", "100-continue")
		conn := h.dial(t)
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(b.Bytes()[:b.Len()-len(body)]); err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(conn)
		line, err := br.ReadString('\n')
		if want := fmt.Sprintf("HTTP/1.1 %d ", c.first); err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("%s as %q: %q %v, want %s", c.target, c.user, line, err, want)
		}
		if c.first != 100 {
			continue
		}
		if line, err := br.ReadString('\n'); line != "\r\n" {
			t.Fatalf("after 100 Continue: %q %v", line, err)
		}
		if _, err := conn.Write(body); err != nil {
			t.Fatal(err)
		}
		if line, err := br.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatalf("the answer: %q %v", line, err)
		}
	}
}
