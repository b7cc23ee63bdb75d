//go:build linux

package shm

import (
	"errors"
	"testing"
	"time"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/transporttest"
)

func TestSourceContract(t *testing.T) {
	s := newServer(t, registry.Config{})
	tag := int64(0)
	transporttest.RunSource(t, func(t *testing.T, content []byte) transport.Source {
		m, handle := register(t, s, alice, int64(len(content))+5000)
		t.Cleanup(func() { closeMemory(t, m) })
		for i := range m.Bytes() {
			m.Bytes()[i] = 0xc5
		}
		copy(m.Bytes()[3000:], content)
		_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Offset: 3000, Length: int64(len(content)), Tag: tag, Layers: 1})
		if err != nil {
			t.Fatal(err)
		}
		tag++
		return tr
	})
}

// TestSourceWithdrawn: a client that takes its memory back is not read from,
// and waits for the transfer that had it.
func TestSourceWithdrawn(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, 8192)
	ctx, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 8192, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if m.Withdraw(time.Millisecond) {
		t.Error("the memory was let go while a transfer had it")
	}
	<-ctx.Done()
	if _, err := tr.ReadAt(make([]byte, 1), 0); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("read from memory that was withdrawn: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	closeMemory(t, m)
}
