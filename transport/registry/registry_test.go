package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/transporttest"
)

const page = 4096

var (
	alice = Owner{"llama", "ALICE"}
	bob   = Owner{"llama", "BOB"}
	eve   = Owner{"other", "ALICE"}
)

// clock is a time that a test sets.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time      { return time.Unix(0, c.ns.Load()) }
func (c *clock) add(d time.Duration) { c.ns.Add(int64(d)) }

// ram is memory of this process as a transport's.
type ram struct {
	nonce    []byte
	failure  error // of WriteNonce and of Sink
	written  chan struct{}
	goOn     chan struct{} // if set, WriteNonce waits for it
	sinks    atomic.Int32  // open
	released atomic.Int32
	t        *testing.T
}

func (m *ram) WriteNonce(_ context.Context, nonce []byte) error {
	if m.goOn != nil {
		close(m.written)
		<-m.goOn
	}
	m.nonce = append([]byte(nil), nonce...)
	return m.failure
}

type ramSink struct {
	transport.Sink
	m *ram
	g *Grant
}

func (s ramSink) Close() error {
	s.m.sinks.Add(-1)
	s.g.Close()
	return s.Sink.Close()
}

func (m *ram) Sink(_ context.Context, g *Grant) (transport.Sink, error) {
	if m.failure != nil {
		return nil, m.failure
	}
	m.sinks.Add(1)
	return ramSink{transporttest.NewMemory(int(g.Length)), m, g}, nil
}

func (m *ram) Release() {
	if n := m.sinks.Load(); n != 0 {
		m.t.Errorf("released under %d sinks", n)
	}
	if m.released.Add(1) != 1 {
		m.t.Error("released twice")
	}
}

// newRegistry makes one that must be empty in the end.
func newRegistry(t *testing.T, cfg Config) *Registry {
	t.Helper()
	g := New(cfg)
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			t.Error(err)
		}
		if st := g.Stats(); st != (Stats{}) {
			t.Errorf("left behind: %+v", st)
		}
		if len(g.tenants) != 0 || len(g.ids) != 0 || len(g.handles) != 0 || len(g.ending) != 0 || len(g.all) != 0 {
			t.Errorf("left behind: %d tenants, %d ids, %d handles, %d ending of %d", len(g.tenants), len(g.ids), len(g.handles), len(g.ending), len(g.all))
		}
	})
	return g
}

// attach reserves and attaches.
func attach(t *testing.T, g *Registry, owner Owner, n int64) (id string, m *ram, r *Registration) {
	t.Helper()
	id, _, err := g.Reserve(owner, "ram", n)
	if err != nil {
		t.Fatal(err)
	}
	m = &ram{t: t}
	r, err = g.Attach(t.Context(), id, "ram", func(length int64) (Memory, error) {
		if length != n {
			t.Errorf("%d bytes to attach, %d reserved", length, n)
		}
		return m, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id, m, r
}

// register goes through all steps.
func register(t *testing.T, g *Registry, owner Owner, n int64) (handle string, m *ram, r *Registration) {
	t.Helper()
	id, m, r := attach(t, g, owner, n)
	handle, _, err := g.Confirm(owner, id, m.nonce)
	if err != nil {
		t.Fatal(err)
	}
	return handle, m, r
}

func TestConfirm(t *testing.T) {
	g := newRegistry(t, Config{})
	id, _, err := g.Reserve(alice, "ram", page)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Confirm(alice, id, make([]byte, NonceBytes)); !errors.Is(err, ErrNoPeer) {
		t.Errorf("before the memory came: %v", err)
	}
	m := &ram{t: t}
	get := func(int64) (Memory, error) { return m, nil }
	if _, err := g.Attach(t.Context(), id, "another", get); !errors.Is(err, ErrID) {
		t.Errorf("attached by another provider: %v", err)
	}
	if _, err := g.Attach(t.Context(), "x", "ram", get); !errors.Is(err, ErrID) {
		t.Errorf("an unknown id: %v", err)
	}
	if _, err := g.Attach(t.Context(), id, "ram", get); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Attach(t.Context(), id, "ram", get); !errors.Is(err, ErrID) {
		t.Errorf("attached twice: %v", err)
	}
	for _, who := range []Owner{bob, eve, {}} {
		if _, _, err := g.Confirm(who, id, m.nonce); !errors.Is(err, ErrID) {
			t.Errorf("%v: %v", who, err)
		}
	}
	handle, _, err := g.Confirm(alice, id, m.nonce)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Confirm(alice, id, m.nonce); !errors.Is(err, ErrID) {
		t.Errorf("confirmed twice: %v", err)
	}
	for _, who := range []Owner{bob, eve, {}} {
		if _, _, err := g.Open(t.Context(), who, Window{Handle: handle, Length: 1, Layers: 1}); !errors.Is(err, ErrHandle) {
			t.Errorf("%v opens alice's: %v", who, err)
		}
		if _, err := g.Renew(who, handle); !errors.Is(err, ErrHandle) {
			t.Errorf("%v renews alice's: %v", who, err)
		}
		if err := g.Withdraw(t.Context(), who, handle); !errors.Is(err, ErrHandle) {
			t.Errorf("%v withdraws alice's: %v", who, err)
		}
	}
	for _, bad := range []string{"", id, handle + "x", handle[1:]} {
		if _, _, err := g.Open(t.Context(), alice, Window{Handle: bad, Length: 1, Layers: 1}); !errors.Is(err, ErrHandle) {
			t.Errorf("handle %q: %v", bad, err)
		}
	}
}

// TestWrongNonce: one guess, and the memory is let go.
func TestWrongNonce(t *testing.T) {
	g := newRegistry(t, Config{})
	for _, wrong := range []func(n []byte) []byte{
		func(n []byte) []byte { n[31] ^= 1; return n }, func(n []byte) []byte { return n[:31] }, func([]byte) []byte { return nil },
		func(n []byte) []byte { return append(n, 0) },
	} {
		id, m, r := attach(t, g, alice, page)
		if _, _, err := g.Confirm(alice, id, wrong(bytes.Clone(m.nonce))); !errors.Is(err, ErrNonce) {
			t.Errorf("a wrong nonce: %v", err)
		}
		<-r.Released()
		if m.released.Load() != 1 {
			t.Error("the memory was not released")
		}
		if _, _, err := g.Confirm(alice, id, m.nonce); !errors.Is(err, ErrID) {
			t.Errorf("the right nonce after a wrong one: %v", err)
		}
	}
}

// TestNoncesDiffer: they, ids and handles come from Config.Rand, a new one each time.
func TestNoncesDiffer(t *testing.T) {
	g := newRegistry(t, Config{})
	seen := map[string]bool{}
	for range 10 {
		id, m, _ := attach(t, g, alice, page)
		handle, _, err := g.Confirm(alice, id, m.nonce)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{id, string(m.nonce), handle} {
			if seen[s] || len(s) < 32 {
				t.Errorf("%d bytes, seen before: %v", len(s), seen[s])
			}
			seen[s] = true
		}
	}
	broken := newRegistry(t, Config{Rand: strings.NewReader(strings.Repeat("x", idBytes))})
	id, _, err := broken.Reserve(alice, "ram", page)
	if err != nil {
		t.Fatal(err)
	}
	m := &ram{t: t}
	if _, err := broken.Attach(t.Context(), id, "ram", func(int64) (Memory, error) { return m, nil }); !errors.Is(err, io.EOF) || m.released.Load() != 1 {
		t.Errorf("no randomness for the nonce: %v, released %d times", err, m.released.Load())
	}
	if _, _, err := broken.Reserve(alice, "ram", page); !errors.Is(err, io.EOF) {
		t.Errorf("no randomness for the id: %v", err)
	}
}

// TestAttachFails: whatever step fails, nothing stays and nothing is released twice.
func TestAttachFails(t *testing.T) {
	g := newRegistry(t, Config{})
	broken := errors.New("broken")
	for name, m := range map[string]*ram{"get": nil, "nonce": {t: t, failure: broken}} {
		id, _, err := g.Reserve(alice, "ram", page)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Attach(t.Context(), id, "ram", func(int64) (Memory, error) {
			if m == nil {
				return nil, broken
			}
			return m, nil
		})
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if m != nil && m.released.Load() != 1 {
			t.Errorf("%s: released %d times", name, m.released.Load())
		}
		if _, _, err := g.Confirm(alice, id, make([]byte, NonceBytes)); !errors.Is(err, ErrID) {
			t.Errorf("%s: Confirm: %v", name, err)
		}
		if st := g.Stats(); st != (Stats{}) {
			t.Errorf("%s: %+v is held", name, st)
		}
	}
}

// TestExpiresWhileAttached: a registration that ends while its transport is at
// work is released by the transport's goroutine, once.
func TestExpiresWhileAttached(t *testing.T) {
	var c clock
	g := newRegistry(t, Config{Now: c.now, PendingFor: time.Second})
	id, _, err := g.Reserve(alice, "ram", page)
	if err != nil {
		t.Fatal(err)
	}
	m := &ram{t: t, written: make(chan struct{}), goOn: make(chan struct{})}
	ended := make(chan error)
	go func() {
		_, err := g.Attach(t.Context(), id, "ram", func(int64) (Memory, error) { return m, nil })
		ended <- err
	}()
	<-m.written
	c.add(time.Second)
	g.Expire()
	if st := g.Stats(); st.Bytes != page || st.Pending != 0 {
		t.Errorf("while attaching: %+v", st)
	}
	close(m.goOn)
	if err := <-ended; !errors.Is(err, ErrID) {
		t.Errorf("Attach: %v", err)
	}
	if st := g.Stats(); st != (Stats{}) || m.released.Load() != 1 {
		t.Errorf("%+v is held, released %d times", st, m.released.Load())
	}
}

// TestLargeMemoryHasTime: an id is good for as long as its memory takes to be mapped.
func TestLargeMemoryHasTime(t *testing.T) {
	var c clock
	g := newRegistry(t, Config{Now: c.now, Bytes: 1 << 40})
	id, d, err := g.Reserve(alice, "ram", 100<<30)
	if err != nil || d < 50*time.Second {
		t.Fatalf("%v, %v", d, err)
	}
	m := &ram{t: t}
	if _, err := g.Attach(t.Context(), id, "ram", func(int64) (Memory, error) {
		c.add(20 * time.Second)
		g.Expire()
		return m, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Confirm(alice, id, m.nonce); err != nil {
		t.Error(err)
	}
	if _, d, err := g.Reserve(alice, "ram", page); err != nil || d != 5*time.Second {
		t.Errorf("a small one has %v, %v", d, err)
	}
}

// TestExpiry: ids and unused handles end; use and renewal put that off.
func TestExpiry(t *testing.T) {
	var c clock
	g := newRegistry(t, Config{Now: c.now, PendingFor: 10 * time.Second, Idle: time.Minute})
	id, d, err := g.Reserve(alice, "ram", page)
	if err != nil || d != 10*time.Second {
		t.Fatal(d, err)
	}
	c.add(10 * time.Second)
	if _, err := g.Attach(t.Context(), id, "ram", func(int64) (Memory, error) { panic("asked for") }); !errors.Is(err, ErrID) {
		t.Errorf("an expired id took memory: %v", err)
	}
	g.Expire()
	if st := g.Stats(); st != (Stats{}) {
		t.Errorf("after its time: %+v", st)
	}
	id, m, _ := attach(t, g, alice, page)
	c.add(10 * time.Second)
	if _, _, err := g.Confirm(alice, id, m.nonce); !errors.Is(err, ErrID) {
		t.Errorf("confirmed too late: %v", err)
	}
	g.Expire()
	handle, m, r := register(t, g, alice, page)
	w := Window{Handle: handle, Length: 1, Layers: 1}
	c.add(59 * time.Second)
	if d, err := g.Renew(alice, handle); err != nil || d != time.Minute {
		t.Error(d, err)
	}
	c.add(59 * time.Second)
	ctx, grant, err := g.Open(t.Context(), alice, w)
	if err != nil {
		t.Fatal(err)
	}
	c.add(time.Hour)
	g.Expire() // in use
	if ctx.Err() != nil || grant.Revoked() || m.released.Load() != 0 {
		t.Error("a handle in use expired")
	}
	grant.Close()
	grant.Close()
	c.add(59 * time.Second)
	g.Expire() // used a minute ago
	if _, err := g.Renew(alice, handle); err != nil {
		t.Error(err)
	}
	c.add(time.Minute)
	w.Tag = 1
	if _, _, err := g.Open(t.Context(), alice, w); !errors.Is(err, ErrHandle) {
		t.Errorf("an expired handle: %v", err)
	}
	g.Expire()
	<-r.Released()
	if m.released.Load() != 1 {
		t.Error("the memory was not released")
	}
}

// TestJanitor: what expires goes without anybody asking.
func TestJanitor(t *testing.T) {
	g := newRegistry(t, Config{PendingFor: 10 * time.Millisecond})
	_, _, r := attach(t, g, alice, page)
	<-r.Released()
}

// TestRevokeWaits: a delivery is told, and the memory stays until it has ended.
func TestRevokeWaits(t *testing.T) {
	g := newRegistry(t, Config{})
	handle, m, r := register(t, g, alice, page)
	ctx, grant, err := g.Open(t.Context(), alice, Window{Handle: handle, Length: page, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := grant.Sink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // a client may ask again
		if err := g.Withdraw(short, alice, handle); !errors.Is(err, context.Canceled) {
			t.Errorf("Withdraw: %v", err)
		}
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrRevoked) || !grant.Revoked() {
		t.Errorf("the cause is %v, revoked %v", context.Cause(ctx), grant.Revoked())
	}
	if _, _, err := g.Open(t.Context(), alice, Window{Handle: handle, Length: 1, Tag: 1, Layers: 1}); !errors.Is(err, ErrHandle) {
		t.Errorf("the handle still works: %v", err)
	}
	if err := g.Withdraw(short, bob, handle); !errors.Is(err, ErrHandle) {
		t.Errorf("another's Withdraw: %v", err)
	}
	if st := g.Stats(); st.Bytes != page || st.Transfers != 1 || m.released.Load() != 0 {
		t.Errorf("released under a delivery: %+v", st)
	}
	withdrawn := make(chan error)
	go func() { withdrawn <- g.Withdraw(t.Context(), alice, handle) }()
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	// Late enough, the withdrawing call finds nothing left to wait for.
	if err := <-withdrawn; err != nil && !errors.Is(err, ErrHandle) {
		t.Errorf("Withdraw: %v", err)
	}
	<-r.Released()
	if st := g.Stats(); st != (Stats{}) || m.released.Load() != 1 {
		t.Errorf("not released: %+v", st)
	}
	r.Revoke()
}

// TestSinkFails: the grant goes, the tag is used up, and the handle still works.
func TestSinkFails(t *testing.T) {
	g := newRegistry(t, Config{})
	handle, m, _ := register(t, g, alice, page)
	m.failure = errors.New("no window")
	_, grant, err := g.Open(t.Context(), alice, Window{Handle: handle, Length: page, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grant.Sink(t.Context()); !errors.Is(err, m.failure) {
		t.Errorf("Sink: %v", err)
	}
	if st := g.Stats(); st.Transfers != 0 {
		t.Errorf("%+v", st)
	}
	m.failure = nil
	if _, _, err := g.Open(t.Context(), alice, Window{Handle: handle, Length: page, Layers: 1}); !errors.Is(err, ErrTag) {
		t.Errorf("the tag again: %v", err)
	}
	_, grant, err = g.Open(t.Context(), alice, Window{Handle: handle, Length: page, Tag: Slots, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := grant.Sink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClose: it waits for what is under way, and then nothing begins.
func TestClose(t *testing.T) {
	g := newRegistry(t, Config{})
	handle, m, _ := register(t, g, alice, page)
	if _, _, err := g.Reserve(alice, "ram", page); err != nil { // pending
		t.Fatal(err)
	}
	ctx, grant, err := g.Open(t.Context(), alice, Window{Handle: handle, Length: page, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- g.Close() }()
	<-ctx.Done()
	select {
	case <-closed:
		t.Error("closed under a delivery")
	default:
	}
	grant.Close()
	if err := <-closed; err != nil || m.released.Load() != 1 {
		t.Errorf("%v, released %d times", err, m.released.Load())
	}
	if _, _, err := g.Reserve(alice, "ram", page); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed registry reserves: %v", err)
	}
}

// TestConcurrent drives all calls against each other; the fake memory and the
// race detector look at what happens.
func TestConcurrent(t *testing.T) {
	g := newRegistry(t, Config{TenantPending: 64})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				id, _, err := g.Reserve(alice, "ram", page)
				if err != nil {
					t.Error(err)
					return
				}
				m := &ram{t: t}
				r, err := g.Attach(t.Context(), id, "ram", func(int64) (Memory, error) { return m, nil })
				if err != nil {
					t.Error(err)
					return
				}
				handle, _, err := g.Confirm(alice, id, m.nonce)
				if err != nil {
					t.Error(err)
					return
				}
				var use sync.WaitGroup
				for tag := range int64(4) {
					use.Go(func() {
						_, grant, err := g.Open(t.Context(), alice, Window{Handle: handle, Length: 1, Tag: tag, Layers: 1})
						if errors.Is(err, ErrHandle) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						if sink, err := grant.Sink(t.Context()); err != nil || sink.Close() != nil {
							t.Error(err)
						}
					})
				}
				if i%2 == 0 {
					r.Revoke()
				} else if err := g.Withdraw(t.Context(), alice, handle); err != nil {
					t.Error(err)
				}
				use.Wait()
				<-r.Released()
				if m.released.Load() != 1 {
					t.Errorf("released %d times", m.released.Load())
				}
			}
		})
	}
	wg.Wait()
}

// TestNothingSecretIsSaid: no error shows an id, a handle or a nonce.
func TestNothingSecretIsSaid(t *testing.T) {
	g := newRegistry(t, Config{})
	_, _, e1 := g.Confirm(alice, "SECRET", []byte("SECRET"))
	_, _, e2 := g.Open(t.Context(), alice, Window{Handle: "SECRET"})
	_, e3 := g.Renew(alice, "SECRET")
	_, e4 := g.Attach(t.Context(), "SECRET", "ram", nil)
	e5 := g.Withdraw(t.Context(), alice, "SECRET")
	id, _, _ := attach(t, g, alice, page)
	_, _, e6 := g.Confirm(alice, id, []byte("SECRET"))
	all := errors.Join(e1, e2, e3, e4, e5, e6).Error()
	if strings.Contains(all, "SECRET") || strings.Contains(all, id) {
		t.Error(all)
	}
}
