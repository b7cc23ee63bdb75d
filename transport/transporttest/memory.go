package transporttest

import (
	"errors"
	"sync"

	"github.com/objcached/objcached/transport"
)

// Memory is a Sink over plain memory: the model of every transport whose
// client sees its buffer being filled. It takes any order and refuses what the
// contract forbids.
type Memory struct {
	mu     sync.Mutex
	mem    []byte
	lent   map[int64]int // grabbed and not committed, by offset
	layers []int
	closed bool
}

// NewMemory makes a Memory for a payload of size bytes.
func NewMemory(size int) *Memory {
	return &Memory{mem: make([]byte, size), lent: make(map[int64]int)}
}

var errContract = errors.New("transporttest: call against the contract")

// Ordered is false.
func (m *Memory) Ordered() bool { return false }

// Grab lends the payload's own memory.
func (m *Memory) Grab(off int64, n int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, transport.ErrClosed
	}
	if off < 0 || n <= 0 || int64(n) > int64(len(m.mem))-off {
		return nil, errContract
	}
	for o, l := range m.lent {
		if off < o+int64(l) && o < off+int64(n) {
			return nil, errContract
		}
	}
	m.lent[off] = n
	return m.mem[off : off+int64(n) : off+int64(n)], nil
}

// Commit ends the loan at off.
func (m *Memory) Commit(off int64, n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return transport.ErrClosed
	}
	if n <= 0 || n > m.lent[off] {
		return errContract
	}
	delete(m.lent, off)
	return nil
}

// LayerReady notes the layer.
func (m *Memory) LayerReady(layer int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return transport.ErrClosed
	}
	if len(m.layers) > 0 && layer != m.layers[len(m.layers)-1]+1 {
		return errContract
	}
	m.layers = append(m.layers, layer)
	return nil
}

// Close ends the delivery; the memory stays readable.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Bytes is the memory itself.
func (m *Memory) Bytes() []byte { return m.mem }

// Layers returns the layers announced so far.
func (m *Memory) Layers() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.layers
}
