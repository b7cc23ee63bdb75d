//go:build fabric && cgo

package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// victimBytes is the memory of the client that is there to be written to until
// it is killed.
func victimBytes() int64 {
	return int64(less(64<<20, 1<<20))
}

// TestVictim is that client.
func TestVictim(t *testing.T) {
	if os.Getenv(envRole) != roleVictim {
		t.Skip("a role in other tests")
	}
	m := newMemory(t, first(), victimBytes())
	c := dialPeer(t, m)
	defer c.Close()
	_, _ = c.Read(make([]byte, 1)) // until the server is done or we are killed
}

// victim is such a client, seen from the server.
type victim struct {
	cmd  *exec.Cmd
	addr Address
}

func newVictim(t testing.TB, cfg Config) *victim {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	v := &victim{cmd: another(t, cfg, roleVictim, l.Addr().String())}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.kill)
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var h helloMsg
	if err := json.NewDecoder(c).Decode(&h); err != nil {
		t.Fatal(err)
	}
	v.addr = h.Address
	return v
}

// kill kills it; it may be dead.
func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// skipShm skips a test that libfabric's shm does not survive.
func skipShm(t *testing.T, cfg Config, why string) {
	t.Helper()
	if cfg.Provider == "shm" {
		t.Skip("libfabric's shm " + why)
	}
}

// stall is when a client that takes nothing is dropped: a machine that asks for
// little data is slow.
func stall() time.Duration { return time.Duration(less(1, 4)) * time.Second }

// flood delivers to a client again and again until that fails, by two workers.
func flood(r *Remote, want []byte, tag *int64) error {
	for {
		tr, err := r.Open(context.Background(), Window{Length: int64(len(want)), Tag: *tag, Layers: 2})
		if err != nil {
			return err
		}
		*tag++
		half := len(want) / 2
		err = errors.Join(sendByTwo(tr, want, 0, half), tr.LayerReady(0), sendByTwo(tr, want, half, len(want)), tr.LayerReady(1))
		if err := errors.Join(err, tr.Close()); err != nil {
			return err
		}
	}
}

// bystander is a client that is served meanwhile, and must not notice.
func bystander(t *testing.T, d *Domain, stop <-chan struct{}) (served func() int) {
	t.Helper()
	m, r := connect(t, d, 1<<20)
	want := turn(1)[:300_000]
	n := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for tag := int64(0); ; tag++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := deliverOnce(r, want, tag); err != nil {
				t.Errorf("the client beside: %v", err)
				return
			}
			if !m.Wait(tag, Over, patience) || string(m.Bytes()[:len(want)]) != string(want) {
				t.Error("the client beside has not got its bytes")
				return
			}
			clear(m.Bytes())
			n++
			time.Sleep(time.Millisecond)
		}
	})
	return func() int { wg.Wait(); return n }
}

// deliverOnce delivers want as one layer.
func deliverOnce(r *Remote, want []byte, tag int64) error {
	tr, err := r.Open(context.Background(), Window{Length: int64(len(want)), Tag: tag, Layers: 1})
	if err != nil {
		return err
	}
	return errors.Join(send(tr, want, 0, len(want), 64<<10), tr.LayerReady(0), tr.Close())
}

// TestClientKilled: a client is killed at any point of a delivery, many times.
func TestClientKilled(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		skipShm(t, cfg, "waits for ever for a lock that a process died with")
		rounds := 12
		if small || testing.Short() {
			rounds = 3
		}
		cfg.Stall = stall()
		d := newDomain(t, cfg)
		want := make([]byte, victimBytes())
		rng := rand.New(rand.NewPCG(3, 4))
		round := func(t *testing.T) {
			v := newVictim(t, cfg)
			r, err := d.Remote(v.addr)
			if err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			served := bystander(t, d, stop)
			delay := time.Duration(rng.IntN(60)) * time.Millisecond
			time.AfterFunc(delay, func() { _ = v.cmd.Process.Kill() })
			tag := int64(0)
			err = flood(r, want, &tag)
			if !errors.Is(err, ErrGone) {
				t.Error(err)
			}
			t.Logf("killed after %v: %d deliveries, stalled %v", delay, tag, errors.Is(err, ErrStalled))
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			close(stop)
			if served() == 0 {
				t.Error("the client beside was not served")
			}
		}
		t.Run("", round) // closes what it opened, but for what the runtime keeps
		before := holds(t)
		for range rounds - 1 {
			t.Run("", round)
		}
		if st := d.Stats(); st.Free != st.Buffers || st.Transfers != 0 || st.Writes != 0 {
			t.Errorf("left behind: %+v", st)
		}
		settles(t, before)
	})
}

// TestClientHangs: a client that is there and takes nothing is dropped, and
// nobody else waits for it.
func TestClientHangs(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		skipShm(t, cfg, "waits for ever for a lock that a process was stopped with")
		for _, when := range []string{"before the first write", "in the middle"} {
			t.Run(when, func(t *testing.T) {
				cfg := cfg
				cfg.Stall = stall()
				d := newDomain(t, cfg)
				v := newVictim(t, cfg)
				r, err := d.Remote(v.addr)
				if err != nil {
					t.Fatal(err)
				}
				want := make([]byte, victimBytes())
				tag := int64(0)
				if when == "in the middle" {
					if err := deliverOnce(r, want[:len(want)/2], tag); err != nil {
						t.Fatal(err)
					}
					tag++
				}
				if err := v.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				stop := make(chan struct{})
				served := bystander(t, d, stop)
				if err := flood(r, want, &tag); !errors.Is(err, ErrStalled) {
					t.Errorf("the delivery: %v", err)
				}
				<-r.Gone()
				if err := r.Err(); !errors.Is(err, ErrStalled) {
					t.Errorf("the client: %v", err)
				}
				if _, err := r.Open(t.Context(), Window{Length: 1, Tag: 9, Layers: 1}); !errors.Is(err, ErrGone) {
					t.Errorf("Open: %v", err)
				}
				if err := r.WriteNonce(t.Context(), make([]byte, NonceBytes)); !errors.Is(err, ErrGone) {
					t.Errorf("WriteNonce: %v", err)
				}
				close(stop)
				if served() == 0 {
					t.Error("the client beside was not served")
				}
			})
		}
	})
}

// TestNobodyThere: a client whose endpoint does not exist any more.
func TestNobodyThere(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		skipShm(t, cfg, "crashes when an endpoint of the same process is closed under it")
		cfg.Stall = stall()
		m, err := NewMemory(cfg, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		a := m.Address()
		if err := m.Close(patience); err != nil {
			t.Fatal(err)
		}
		d := newDomain(t, cfg)
		r, err := d.Remote(a)
		if err != nil {
			return // a provider that looks is right too
		}
		if err := deliverOnce(r, make([]byte, 1<<16), 0); !errors.Is(err, ErrGone) {
			t.Errorf("a delivery to nobody: %v", err)
		}
		<-r.Gone()
	})
}

// TestWithdraw: a client takes its memory back in the middle of a delivery.
func TestWithdraw(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		skipShm(t, cfg, "crashes when an endpoint of the same process is closed under it")
		if cfg.Count {
			t.Skip("ofi_rxm crashes when its connection ends in the middle of a write with an immediate")
		}
		cfg.Stall = stall()
		d := newDomain(t, cfg)
		m, r := connect(t, d, 4<<20)
		want := turn(2)[:less(4<<20, 100_000)]
		if err := deliverOnce(r, want, 0); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		tag := int64(1)
		go func() { ended <- flood(r, want, &tag) }()
		for !m.Wait(3, 0, time.Millisecond) {
		}
		if !m.Withdraw(patience) {
			t.Fatal("the memory is not taken back")
		}
		<-m.Gone()
		clear(m.Bytes())
		if err := <-ended; !errors.Is(err, ErrGone) {
			t.Errorf("the delivery: %v", err)
		}
		for i, c := range m.Bytes() {
			if c != 0 {
				t.Fatalf("byte %d was written after Withdraw", i)
			}
		}
		if m.Wait(MaxTag, Over, time.Hour) {
			t.Error("a delivery into memory that is gone")
		}
	})
}
