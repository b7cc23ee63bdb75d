//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/transport/registry"
)

// Memory is the client's side: memory that a server on this host may be
// allowed to write to. It may be used concurrently, but for NewMemory and Offer
// coming first.
type Memory struct {
	file *os.File // the memfd, until it is handed over
	conn *net.UnixConn
	gone chan struct{} // closed when the server has let go of the memory

	mu    sync.RWMutex // held for reading while the mappings are in use
	mem   []byte
	words []byte
}

// NewMemory makes n bytes of memory, rounded up to whole pages and zero.
func NewMemory(n int64) (*Memory, error) {
	if n <= 0 || n > 1<<62 {
		return nil, fmt.Errorf("shm: memory of %d bytes", n)
	}
	f, mem, err := newMemory("objcached-buffer", (n+PageSize-1)&^(PageSize-1), 0)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	return &Memory{file: f, mem: mem, gone: make(chan struct{})}, nil
}

// Bytes is the memory. It must not be touched after Close.
func (m *Memory) Bytes() []byte { return m.mem }

// Offer hands the memory over at the server's socket under an id of Reserve.
// The nonce lies at its start then.
func (m *Memory) Offer(ctx context.Context, socket, id string) error {
	d := net.Dialer{}
	c, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	conn := c.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // the exchange ends now
	words, err := m.offer(conn, id)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), unix.Munmap(words))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("shm: hand over the memory: %w", err), conn.Close())
	}
	m.conn, m.words = conn, words
	go func() {
		defer close(m.gone)
		_, _ = conn.Read(make([]byte, 1)) // nothing is ever sent: this is the end
	}()
	return m.file.Close()
}

func (m *Memory) offer(conn *net.UnixConn, id string) (words []byte, err error) {
	if _, _, err := conn.WriteMsgUnix([]byte(hello+id), unix.UnixRights(int(m.file.Fd())), nil); err != nil {
		return nil, err
	}
	b, f, err := receive(conn, 1024)
	if err != nil {
		return nil, err
	}
	if f != nil {
		defer f.Close()
	}
	switch {
	case len(b) > 0 && b[0] == 1:
		return nil, fmt.Errorf("the server refuses it: %s", b[1:])
	case len(b) != 1 || f == nil:
		return nil, errors.New("the server ended the connection")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Size != wordsBytes {
		return nil, fmt.Errorf("the server's words have %d bytes, not %d", st.Size, wordsBytes)
	}
	return mapShared(int(f.Fd()), wordsBytes, unix.PROT_READ)
}

// Nonce copies what the server wrote at the memory's start.
func (m *Memory) Nonce() []byte { return append([]byte(nil), m.mem[:registry.NonceBytes]...) }

// Gone is closed when the server has let go of the memory: nobody else writes
// to it any more.
func (m *Memory) Gone() <-chan struct{} { return m.gone }

// Over is the index for Wait of a delivery's end.
const Over = -1

// Wait waits until a layer of the window (or the delivery itself, Over) of the
// delivery with tag is announced, for at most d, and reports whether it is. It
// spins for a moment and then sleeps.
func (m *Memory) Wait(tag int64, layer int, d time.Duration) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.words == nil || tag < 0 || layer < Over || layer >= registry.MaxLayers {
		return false
	}
	w, gen := wordAt(m.words, registry.Slot(tag)*row+1+layer), registry.Generation(tag)
	const spins = 64
	for i := 0; ; i++ {
		now := atomic.LoadUint32(w)
		switch {
		case now >= gen: // more than gen: a later delivery of the row has passed
			return true
		case i < spins && d > 0:
			if i%8 == 7 {
				runtime.Gosched()
			}
		case i == spins && d > 0:
			wait(w, now, d)
		default:
			return false
		}
	}
}

// Withdraw takes the memory back and waits, at most d, until the server has let
// go of it. It reports whether it has; a server that hangs does not. It may be
// called again.
func (m *Memory) Withdraw(d time.Duration) bool {
	if m.conn == nil {
		return true
	}
	_ = m.conn.CloseWrite() // a connection that is gone already is no worse
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

// Close withdraws the memory as Withdraw does and unmaps it. What a server
// that hangs writes later goes to pages that nobody else has.
func (m *Memory) Close(d time.Duration) error {
	m.Withdraw(d)
	var errs []error
	if m.conn == nil {
		errs = append(errs, m.file.Close())
	} else {
		errs = append(errs, m.conn.Close())
		<-m.gone
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.words != nil {
		errs = append(errs, unix.Munmap(m.words))
	}
	errs = append(errs, unix.Munmap(m.mem))
	m.mem, m.words = nil, nil
	return errors.Join(errs...)
}
