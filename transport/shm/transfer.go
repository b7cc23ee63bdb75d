//go:build linux

package shm

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
)

// Transfer is one delivery into a client's memory: a transport.Sink whose
// offsets are counted from the start of its window. It is not ordered.
//
// Close says that the delivery is over. Until then the memory stays mapped,
// also after the client has gone.
type Transfer struct {
	grant *registry.Grant
	win   []byte
	words []byte // the mapping of all rows

	mu     sync.Mutex
	lent   []loan // grabbed and not committed: as many as there are workers
	closed bool
}

type loan struct {
	off int64
	n   int
}

var (
	errRange = errors.New("shm: bytes outside the window")
	errLent  = errors.New("shm: bytes are lent already, or are not")
	errLayer = errors.New("shm: no such layer")
)

// Ordered is false.
func (t *Transfer) Ordered() bool { return false }

// Grab lends the client's own memory.
func (t *Transfer) Grab(off int64, n int) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if off < 0 || n <= 0 || off > int64(len(t.win)) || int64(n) > int64(len(t.win))-off {
		return nil, errRange
	}
	for _, l := range t.lent {
		if off < l.off+int64(l.n) && l.off < off+int64(n) {
			return nil, errLent
		}
	}
	t.lent = append(t.lent, loan{off, n})
	return t.win[off : off+int64(n) : off+int64(n)], nil
}

// Commit ends the loan at off.
func (t *Transfer) Commit(off int64, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	for i, l := range t.lent {
		if l.off == off {
			if n <= 0 || n > l.n {
				return errRange
			}
			last := len(t.lent) - 1
			t.lent[i] = t.lent[last]
			t.lent = t.lent[:last]
			return nil
		}
	}
	return errLent
}

func (t *Transfer) usable() error {
	switch {
	case t.closed:
		return transport.ErrClosed
	case t.grant.Revoked():
		return registry.ErrRevoked
	}
	return nil
}

// LayerReady sets the layer's word and wakes the client. Bytes of other layers
// may be lent meanwhile.
func (t *Transfer) LayerReady(layer int) error {
	woke, err := t.layerReady(layer - t.grant.FirstLayer)
	if woke {
		// Where all cores are reading, the one who waits would not run before a
		// reader's time slice is over, milliseconds after its layer.
		yield()
	}
	return err
}

func (t *Transfer) layerReady(i int) (woke bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return false, err
	}
	if i < 0 || i >= t.grant.Layers {
		return false, errLayer
	}
	return t.announce(1 + i), nil
}

// announce sets a word of the row and reports whether someone was waiting for
// it. The store orders all bytes before it.
func (t *Transfer) announce(word int) (woke bool) {
	w := wordAt(t.words, t.grant.Slot*row+word)
	atomic.StoreUint32(w, t.grant.Generation)
	return wake(w)
}

// Close says that nothing more will be written. The caller has let go of what
// was lent.
func (t *Transfer) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.win = nil
	t.announce(0)
	t.mu.Unlock()
	t.grant.Close()
	return nil
}
