package transporttest

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/objcached/objcached/transport"
)

var _ transport.Source = (*Memory)(nil)

// ReadAt copies bytes of the memory.
func (m *Memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, transport.ErrClosed
	}
	if off < 0 || off > int64(len(m.mem)) || int64(len(p)) > int64(len(m.mem))-off {
		return 0, errContract
	}
	return copy(p, m.mem[off:]), nil
}

// RunSource runs the contract of a transport.Source. Open makes a fresh one
// over a window that holds content, and a client's memory around it.
func RunSource(t *testing.T, open func(t *testing.T, content []byte) transport.Source) {
	want := payload(300_001)
	s := open(t, want)
	read := func(off, n int) {
		t.Helper()
		p := make([]byte, n)
		if k, err := s.ReadAt(p, int64(off)); err != nil || k != n || !bytes.Equal(p, want[off:off+n]) {
			t.Errorf("[%d,%d): %d bytes, %v", off, off+n, k, err)
		}
	}
	read(0, len(want))
	read(1, 1)
	read(len(want)-1, 1)
	read(65536, 65536)
	read(len(want), 0)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for off := w * 1000; off < len(want)-1000; off += 4000 {
				read(off, 1000)
			}
		})
	}
	wg.Wait()
	for _, bad := range []struct {
		off int64
		n   int
	}{{-1, 1}, {int64(len(want)), 1}, {0, len(want) + 1}, {1 << 62, 1}, {int64(len(want)) - 1, 2}} {
		if _, err := s.ReadAt(make([]byte, bad.n), bad.off); err == nil {
			t.Errorf("%+v lies outside and was read", bad)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.ReadAt(make([]byte, 1), 0); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
