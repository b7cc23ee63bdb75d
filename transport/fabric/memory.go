//go:build fabric && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// Memory is the client's side: memory that a server may be allowed to write to.
// It may be used concurrently. A thread of its own waits for what servers write,
// for most providers move no byte otherwise.
type Memory struct {
	dev  *device
	ep   *C.struct_fab_ep
	reg  *region
	addr Address
	wake int
	gone chan struct{} // closed when nobody can write to the memory any more

	mu      sync.Mutex
	changed sync.Cond
	all     []byte // the memory, then the control area
	mem     []byte
	slots   [Slots]slot
	nonce   bool
	stop    bool
	err     error // why the thread ended by itself
}

// slot is what is known of the deliveries with tags of one slot: of the latest.
type slot struct {
	gen   uint32
	ready int // layers
	over  bool
	// Of a delivery that is counted; nil if none was.
	counts *[MaxLayers + 1]count
	end    int // the last epoch, if ends
	ends   bool
}

// count is the writes of one epoch.
type count struct {
	got, want uint32
	announced bool
}

// NewMemory makes n bytes of memory, rounded up to whole pages and zero, and
// registers them.
func NewMemory(cfg Config, n int64) (*Memory, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if n <= 0 || n > 1<<62 {
		return nil, fmt.Errorf("fabric: memory of %d bytes", n)
	}
	n = (n + PageSize - 1) &^ (PageSize - 1)
	m := &Memory{wake: -1, gone: make(chan struct{})}
	m.changed.L = &m.mu
	if err := m.setUp(&cfg, n); err != nil {
		m.release()
		m.unmap()
		return nil, err
	}
	m.mem = m.all[:n:n]
	go m.run()
	return m, nil
}

func (m *Memory) setUp(cfg *Config, n int64) (err error) {
	if m.all, err = anonymous(n + ControlBytes); err != nil {
		return err
	}
	if m.wake, err = newWake(); err != nil {
		return err
	}
	if m.dev, err = openDevice(cfg); err != nil {
		return err
	}
	if m.ep, err = m.dev.openEndpoint(nil); err != nil {
		return err
	}
	// Where the provider lets us choose, the key cannot be guessed: it is what
	// keeps others from writing.
	var key [8]byte
	_, _ = rand.Read(key[:]) // never fails
	if m.reg, err = m.dev.register(m.ep, m.all, true, binary.LittleEndian.Uint64(key[:])); err != nil {
		return err
	}
	m.addr = Address{Provider: m.dev.provider(), Key: uint64(m.reg.mr.key), Length: n}
	if m.dev.c.virt_addr != 0 {
		m.addr.Base = uint64(uintptr(unsafe.Pointer(&m.all[0])))
	}
	m.addr.Address, err = nameOf(m.ep)
	return err
}

// Bytes is the memory. It must not be touched after Close.
func (m *Memory) Bytes() []byte { return m.mem }

// Address is what a server must know to write to the memory.
func (m *Memory) Address() Address { return m.addr }

// AwaitNonce waits, at most d, until a server has written a nonce.
func (m *Memory) AwaitNonce(d time.Duration) bool {
	return m.await(d, func() bool { return m.nonce })
}

// Nonce copies what the server wrote at the memory's start.
func (m *Memory) Nonce() []byte { return append([]byte(nil), m.mem[:NonceBytes]...) }

// Gone is closed when nobody can write to the memory any more: it has been
// withdrawn, or its endpoint has failed.
func (m *Memory) Gone() <-chan struct{} { return m.gone }

// Wait waits until a layer of the window (or the delivery itself, Over) of the
// delivery with tag is announced, for at most d, and reports whether it is.
func (m *Memory) Wait(tag int64, layer int, d time.Duration) bool {
	if tag < 0 || tag > MaxTag || layer < Over || layer >= MaxLayers {
		return false
	}
	s, gen := &m.slots[tag%Slots], generation(tag)
	return m.await(d, func() bool {
		// A later generation: this one's delivery has passed.
		return s.gen > gen || s.gen == gen && (layer == Over && s.over || layer != Over && layer < s.ready)
	})
}

// await waits for a condition, at most d, or until no more can change.
func (m *Memory) await(d time.Duration, cond func() bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cond() || d <= 0 {
		return cond()
	}
	late := false
	t := time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		late = true
		m.changed.Broadcast()
	})
	defer t.Stop()
	for !cond() && !late && !m.stop && m.err == nil {
		m.changed.Wait()
	}
	return cond()
}

// run takes what servers say until the memory is withdrawn, and then takes it
// from them.
func (m *Memory) run() {
	var imms [64]C.uint32_t
	waits := C.fab_ep_waits(m.ep) != 0
	nap := minNap
	for {
		timeout := 500 * time.Millisecond
		if !waits {
			timeout = nap
			nap = min(2*nap, maxNap)
		}
		n := int(C.fab_recv(m.dev.c, m.ep, &imms[0], C.int(len(imms)), C.int(m.wake), C.int(timeout/time.Microsecond)))
		if n > 0 {
			nap = minNap
		}
		if !m.take(imms[:max(n, 0)], n) {
			break
		}
	}
	m.release()
	close(m.gone)
}

// take takes immediates, or the error that n is, and reports whether to go on.
func (m *Memory) take(imms []C.uint32_t, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < 0 {
		m.err = failure("wait for writes", C.int(n))
	}
	for _, imm := range imms {
		m.note(uint32(imm))
	}
	if n != 0 {
		m.changed.Broadcast()
	}
	return !m.stop && m.err == nil
}

// note takes one immediate. Whatever a server may send, it stays within the state.
func (m *Memory) note(imm uint32) {
	gen, i, what := parseImmediate(imm)
	if gen == 0 {
		m.nonce = m.nonce || imm == immNonce
		return
	}
	s := &m.slots[i]
	if gen < s.gen {
		return // stale
	}
	if gen > s.gen {
		s.gen, s.ready, s.over, s.ends = gen, 0, false, false
		if s.counts != nil {
			*s.counts = [MaxLayers + 1]count{}
		}
	}
	switch {
	case what < immOver:
		s.ready = max(s.ready, what+1)
		return
	case what == immOver:
		s.over = true
		return
	case what > immCountEnd:
		return
	}
	if s.counts == nil {
		s.counts = new([MaxLayers + 1]count)
	}
	m.count(s, i, what)
}

// count takes an immediate of a delivery that is counted.
func (m *Memory) count(s *slot, i, what int) {
	if what < immCounted {
		s.counts[what-immWritten].got++
	} else {
		cell := m.all[cellAt(m.addr.Length, i, what-immCounted):]
		c := count{want: binary.LittleEndian.Uint32(cell), announced: true}
		epoch := int(binary.LittleEndian.Uint16(cell[6:]))
		switch {
		case uint32(binary.LittleEndian.Uint16(cell[4:])) != s.gen || epoch > MaxLayers:
			return // not this delivery's: then nothing is known
		case what == immCountEnd:
			s.end, s.ends = epoch, true
		case what-immCounted != epoch:
			return
		}
		c.got = s.counts[epoch].got
		s.counts[epoch] = c
	}
	for s.counts[s.ready].complete() && s.ready < MaxLayers && !(s.ends && s.ready == s.end) {
		s.ready++
	}
	s.over = s.over || s.ends && s.ready == s.end && s.counts[s.end].complete()
}

func (c *count) complete() bool { return c.announced && c.got == c.want }

// release takes the memory back from all who may write to it.
func (m *Memory) release() {
	if m.ep != nil {
		C.fab_ep_close(m.ep)
	}
	if m.reg != nil {
		m.reg.close()
	}
	if m.dev != nil {
		m.dev.close()
	}
	m.ep, m.reg, m.dev = nil, nil, nil
}

func (m *Memory) unmap() {
	if m.wake >= 0 {
		closeWake(m.wake)
	}
	if m.all != nil {
		unmap(m.all)
	}
	m.wake, m.all, m.mem = -1, nil, nil
}

// Withdraw takes the memory back and waits for that, at most d. It needs no
// server: the region is closed, and whoever writes to it fails. It reports
// whether the memory is taken back, and may be called again.
func (m *Memory) Withdraw(d time.Duration) bool {
	m.mu.Lock()
	if !m.stop {
		m.stop = true
		m.changed.Broadcast()
		if m.wake >= 0 {
			wake(m.wake)
		}
	}
	m.mu.Unlock()
	select {
	case <-m.gone:
		return true
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-m.gone:
		return true
	case <-t.C:
		return false
	}
}

// Close withdraws the memory as Withdraw does and unmaps it. If the device does
// not let go of it in time, it stays mapped, and that is an error.
func (m *Memory) Close(d time.Duration) error {
	if !m.Withdraw(d) {
		return errors.New("fabric: the device has not let go of the memory")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unmap()
	return nil
}
