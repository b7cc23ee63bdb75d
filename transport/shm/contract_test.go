//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/transporttest"
)

var alice = registry.Owner{Tenant: "llama", AccessKey: "ALICE"}

// server is a socket and its registry; Confirm, Renew and so on are the latter's.
type server struct {
	*Server
	*registry.Registry
}

func (s server) Reserve(owner registry.Owner, n int64) (string, time.Duration, error) {
	return s.Server.Reserve(owner, n)
}

func (s server) Open(ctx context.Context, owner registry.Owner, w registry.Window) (context.Context, *Transfer, error) {
	ctx, g, err := s.Registry.Open(ctx, owner, w)
	if err != nil {
		return nil, nil, err
	}
	sink, err := g.Sink(ctx)
	if err != nil {
		return nil, nil, err
	}
	return ctx, sink.(*Transfer), nil
}

func (s server) Close() error { return errors.Join(s.Server.Close(), s.Registry.Close()) }

// newServer makes a server that must be empty and closed in the end.
func newServer(t testing.TB, cfg registry.Config) server {
	t.Helper()
	reg := registry.New(cfg)
	sock, err := Listen(filepath.Join(t.TempDir(), "s"), reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := server{sock, reg}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st != (registry.Stats{}) {
			t.Errorf("left behind: %+v", st)
		}
		if n := s.connections(); n != 0 {
			t.Errorf("connections left behind: %d", n)
		}
	})
	return s
}

// register goes through all steps.
func register(t testing.TB, s server, owner registry.Owner, n int64) (*Memory, string) {
	t.Helper()
	m, err := NewMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := s.Reserve(owner, int64(len(m.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Offer(t.Context(), s.Path(), id); err != nil {
		t.Fatal(err)
	}
	handle, _, err := s.Confirm(owner, id, m.Nonce())
	if err != nil {
		t.Fatal(err)
	}
	clear(m.Bytes())
	return m, handle
}

func closeMemory(t testing.TB, m *Memory) {
	t.Helper()
	if err := m.Close(10 * time.Second); err != nil {
		t.Error(err)
	}
}

// TestContract runs the contract with canaries on both sides of the window.
func TestContract(t *testing.T) {
	s := newServer(t, registry.Config{})
	const before, after = 1000, 3000
	transporttest.Run(t, func(t *testing.T, size int) transporttest.Target {
		m, handle := register(t, s, alice, int64(before+size+after))
		for i := range m.Bytes() {
			m.Bytes()[i] = 0xc5
		}
		clear(m.Bytes()[before : before+size])
		_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Offset: before, Length: int64(size), Tag: 7, Layers: registry.MaxLayers})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			for i, c := range m.Bytes() {
				if (i < before || i >= before+size) && c != 0xc5 {
					t.Errorf("byte %d outside the window was written", i)
					break
				}
			}
			closeMemory(t, m)
		})
		return transporttest.Target{Sink: tr,
			Seen: func() []byte { return m.Bytes()[before : before+size] },
			Ready: func() []int {
				var out []int
				for l := range registry.MaxLayers {
					if m.Wait(7, l, 0) {
						out = append(out, l)
					}
				}
				return out
			},
		}
	})
}

// fill writes one byte value over a part of the window.
func fill(tr *Transfer, off int64, n int, c byte) error {
	p, err := tr.Grab(off, n)
	if err != nil {
		return err
	}
	for i := range p {
		p[i] = c
	}
	return tr.Commit(off, n)
}

// TestConcurrentTransfers: many deliveries into one memory, each into a part
// of it and awaited by a client of its own.
func TestConcurrentTransfers(t *testing.T) {
	s := newServer(t, registry.Config{})
	const part, layers = 8 << 10, 8
	m, handle := register(t, s, alice, registry.Slots*part)
	defer closeMemory(t, m)
	var wg sync.WaitGroup
	for i := range int64(registry.Slots) {
		wg.Go(func() {
			for g := range int64(5) {
				tag := g*registry.Slots + i
				_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Offset: i * part, Length: part, Tag: tag, FirstLayer: 3, Layers: layers})
				if err != nil {
					t.Error(err)
					return
				}
				c := byte(1 + g*registry.Slots + i)
				var side sync.WaitGroup
				side.Go(func() {
					for l := range layers {
						for !m.Wait(tag, l, time.Second) {
						}
						lo := int(i)*part + l*part/layers
						for _, got := range m.Bytes()[lo : lo+part/layers] {
							if got != c {
								t.Errorf("slot %d layer %d: %d, want %d", i, l, got, c)
								return
							}
						}
					}
				})
				for l := range layers {
					if err := errors.Join(fill(tr, int64(l)*part/layers, part/layers, c), tr.LayerReady(3+l)); err != nil {
						t.Error(err)
					}
				}
				side.Wait()
				if m.Wait(tag, Over, 0) {
					t.Error("it is over before Close")
				}
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
				if !m.Wait(tag, Over, 0) || m.Wait(tag+registry.Slots, 0, 0) || m.Wait(tag+registry.Slots, Over, 0) {
					t.Error("the words are wrong after Close")
				}
			}
		})
	}
	wg.Wait()
}

// TestClientDiesMidTransfer: the delivery is told, may finish the write it is
// in, and nothing is unmapped before it has ended.
func TestClientDiesMidTransfer(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, 1<<20)
	ctx, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1 << 20, Layers: 2})
	if err != nil {
		t.Fatal(err)
	}
	p, err := tr.Grab(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.conn.Close(); err != nil { // as when the process ends
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), registry.ErrRevoked) {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
	for i := range p {
		p[i] = 1 // still mapped
	}
	if err := tr.Commit(0, 1<<20); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("Commit: %v", err)
	}
	if _, err := tr.Grab(0, 1); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("Grab: %v", err)
	}
	if err := tr.LayerReady(0); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("LayerReady: %v", err)
	}
	if st := s.Stats(); st.Bytes != 1<<20 || st.Transfers != 1 {
		t.Errorf("released under a delivery: %+v", st)
	}
	if _, _, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1, Tag: 1, Layers: 1}); !errors.Is(err, registry.ErrHandle) {
		t.Errorf("the handle still works: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Bytes != 0 || st.Transfers != 0 || st.Registrations != 0 {
		t.Errorf("not released: %+v", st)
	}
	<-m.gone
	if m.Wait(0, 0, 0) {
		t.Error("a layer is ready")
	}
}

// TestWithdrawWaits: the client knows that nobody writes any more.
func TestWithdrawWaits(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, 1<<16)
	defer closeMemory(t, m)
	ctx, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1 << 16, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() { ended <- m.Withdraw(time.Minute) }()
	<-ctx.Done()
	select {
	case <-m.Gone():
		t.Error("the server said that it let go while it had not")
	default:
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if !<-ended {
		t.Error("Withdraw gave up")
	}
	if !m.Withdraw(0) {
		t.Error("a second Withdraw is refused")
	}
}

// TestClientThatNeverLooks does not hold a delivery up.
func TestClientThatNeverLooks(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, 1<<16)
	defer closeMemory(t, m)
	for tag := range int64(3 * registry.Slots) {
		_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1 << 16, Tag: tag, Layers: 64})
		if err != nil {
			t.Fatal(err)
		}
		for l := range 64 {
			if err := errors.Join(fill(tr, int64(l)<<10, 1<<10, byte(tag)), tr.LayerReady(l)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(m.Bytes(), bytes.Repeat([]byte{3*registry.Slots - 1}, 1<<16)) {
		t.Error("wrong bytes")
	}
}

// TestServerEnds: the client's waiters see it, and so does every call.
func TestServerEnds(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, 1<<16)
	defer closeMemory(t, m)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-m.Gone()
	if _, _, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1, Layers: 1}); !errors.Is(err, registry.ErrHandle) {
		t.Errorf("Open: %v", err)
	}
	if _, _, err := s.Reserve(alice, PageSize); err == nil {
		t.Error("a closed server reserves")
	}
	m2, err := NewMemory(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m2.Offer(t.Context(), s.Path(), "id"); err == nil {
		t.Error("the socket is still there")
	}
	closeMemory(t, m2)
}

// TestNoAllocationPerSlice: grabbing, committing and announcing allocate nothing.
func TestNoAllocationPerSlice(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, 1<<16)
	defer closeMemory(t, m)
	_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1 << 16, Layers: 4})
	if err != nil {
		t.Fatal(err)
	}
	var sink transport.Sink = tr
	if n := testing.AllocsPerRun(100, func() {
		if _, err := sink.Grab(4096, 4096); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sink.Commit(4096, 4096), sink.LayerReady(2)); err != nil {
			t.Fatal(err)
		}
		m.Wait(0, 2, time.Second)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}
