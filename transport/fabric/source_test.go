//go:build fabric && cgo

package fabric

import (
	"errors"
	"testing"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/transporttest"
)

func TestSourceContract(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		cfg.WriteBytes, cfg.Buffers = 16<<10, 6 // smaller than what is read, and fewer
		d := newDomain(t, cfg)
		transporttest.RunSource(t, func(t *testing.T, content []byte) transport.Source {
			m, r := connect(t, d, int64(len(content))+5000)
			for i := range m.Bytes() {
				m.Bytes()[i] = 0xc5
			}
			copy(m.Bytes()[3000:], content)
			s, err := r.OpenSource(t.Context(), Window{Offset: 3000, Length: int64(len(content)), Tag: 5, Layers: 1})
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}

// TestSourceGone: nothing is read of a client that has taken its memory back.
func TestSourceGone(t *testing.T) {
	cfg := first()
	d := newDomain(t, cfg)
	m, r := connect(t, d, 1<<20)
	s, err := r.OpenSource(t.Context(), Window{Length: 1 << 20, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1<<20)
	if _, err := s.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if !m.Withdraw(patience) {
		t.Fatal("not withdrawn")
	}
	if _, err := s.ReadAt(p, 0); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if err := r.Probe(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("a probe: %v", err)
	}
	_ = s.Close() // broken before
}
