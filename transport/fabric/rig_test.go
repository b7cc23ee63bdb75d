//go:build fabric && cgo

package fabric

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

// The environment chooses what the tests run on: a machine with a device names
// its provider and address, and a slow one asks for little data.
const (
	envProvider = "OBJCACHED_TEST_FABRIC_PROVIDER"
	envNode     = "OBJCACHED_TEST_FABRIC_NODE" // without it the device is chosen by Config.Interface's rule
	envSmall    = "OBJCACHED_TEST_FABRIC_SMALL"
)

var small = os.Getenv(envSmall) != ""

// less is n, or what takes the place of it where there is to be little data.
func less(n, little int) int {
	if small {
		return little
	}
	return n
}

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// device is where a test's Config points.
type place struct {
	name string
	cfg  Config
}

// places are the providers to test: the environment's, or those that need no device.
func places() []place {
	if p := os.Getenv(envProvider); p != "" {
		cfg := Config{Provider: p, Node: os.Getenv(envNode)}
		counted := cfg
		counted.Count = true
		return []place{{p, cfg}, {p + " counting", counted}}
	}
	return []place{
		{"tcp;ofi_rxm", Config{Provider: "tcp;ofi_rxm", Node: "127.0.0.1"}},
		{"tcp;ofi_rxm counting", Config{Provider: "tcp;ofi_rxm", Node: "127.0.0.1", Count: true}},
		{"net", Config{Provider: "net", Node: "127.0.0.1"}},
		{"shm", Config{Provider: "shm"}},
	}
}

// everywhere runs a test on every provider that this machine offers.
func everywhere(t *testing.T, f func(t *testing.T, cfg Config)) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			probe := p.cfg
			probe.WriteBytes, probe.Buffers, probe.Remotes = PageSize, 1, 1
			d, err := Open(probe)
			if errors.Is(err, ErrNoProvider) && os.Getenv(envProvider) == "" {
				t.Skipf("libfabric offers no %s here: %v", p.cfg.Provider, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			f(t, p.cfg)
		})
	}
}

// first is the configuration for tests of what does not depend on the provider.
func first() Config { return places()[0].cfg }

// newDomain opens a domain that must hold nothing in the end.
func newDomain(t testing.TB, cfg Config) *Domain {
	t.Helper()
	if cfg.WriteBytes == 0 && small {
		cfg.WriteBytes = 64 << 10
	}
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st := d.Stats()
		if st.Free != st.Buffers || st.Waiting != 0 || st.Transfers != 0 || st.Writes != 0 {
			t.Errorf("left behind: %+v", st)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// connect makes a client's memory and the server's end of it.
func connect(t testing.TB, d *Domain, n int64) (*Memory, *Remote) {
	t.Helper()
	m := newMemory(t, d.cfg, n)
	r, err := d.Remote(m.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, r
}

func newMemory(t testing.TB, cfg Config, n int64) *Memory {
	t.Helper()
	m, err := NewMemory(cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(patience); err != nil {
			t.Error(err)
		}
	})
	return m
}

// held is what a process must not lose.
type held struct{ goroutines, fds int }

func holds(t *testing.T) held {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return held{runtime.NumGoroutine(), len(fds)}
}

// settles waits until the process holds no more than it did.
func settles(t *testing.T, before held) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		now := holds(t)
		if now.goroutines <= before.goroutines && now.fds <= before.fds {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines and descriptors: %+v, before %+v", now, before)
		}
	}
}
