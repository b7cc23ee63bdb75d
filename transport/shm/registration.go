//go:build linux

package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// registration is one client's memory, from Reserve until it is unmapped.
// Everything but what is set at Reserve is guarded by the server's mutex.
type registration struct {
	s      *Server
	owner  Owner
	length int64
	id     string

	taken    bool // a connection is handing the memory over
	conn     *net.UnixConn
	mem      []byte // nil: not handed over, or unmapped
	words    []byte
	nonce    [NonceBytes]byte
	handle   string // empty: not confirmed
	deadline time.Time
	revoked  bool

	used      [Slots]uint32 // the last generation of each slot
	busy      [Slots]bool
	transfers map[*Transfer]struct{}
	released  chan struct{} // closed when nothing is mapped and counted any more
}

// revoke ends a registration; it is released when its last delivery has ended.
func (s *Server) revoke(r *registration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revokeLocked(r)
}

func (s *Server) revokeLocked(r *registration) {
	if r.revoked {
		return
	}
	r.revoked = true
	h := s.tenant(r.owner.Tenant)
	if r.handle == "" {
		delete(s.ids, r.id)
		s.total.pending--
		h.pending--
	} else {
		delete(s.handles, r.handle)
	}
	for t := range r.transfers {
		t.gone.Store(true)
		t.cancel(ErrRevoked)
	}
	if len(r.transfers) == 0 && !r.taken {
		s.release(r)
	}
}

// ended takes a delivery off its registration.
func (r *registration) ended(t *Transfer) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(r.transfers, t)
	r.busy[t.slot] = false
	r.deadline = s.cfg.Now().Add(s.cfg.Idle)
	s.total.transfers--
	s.tenant(r.owner.Tenant).transfers--
	if r.revoked && len(r.transfers) == 0 {
		s.release(r)
	}
}

// release unmaps a revoked registration that nobody uses, and only then
// closes the connection: that is how its client knows. The caller holds s.mu.
func (s *Server) release(r *registration) {
	if r.mem != nil {
		if err := errors.Join(unix.Munmap(r.mem), unix.Munmap(r.words)); err != nil {
			s.cfg.Logger.Error("unmap a client's memory", "error", err) // a bug: the mappings are ours
		}
		r.mem, r.words = nil, nil
	}
	if r.conn != nil {
		_ = r.conn.Close() // its goroutine has nothing more to say
	}
	h := s.tenant(r.owner.Tenant)
	for _, h := range [...]*holding{&s.total, h} {
		h.bytes -= r.length
		h.registrations--
	}
	delete(s.all, r)
	s.forget(r.owner.Tenant)
	close(r.released)
}

// maxConns bounds connections that hold no registration yet.
const maxConns = 64

// handOver is how long a new connection may take to send its memory.
const handOver = 5 * time.Second

func (s *Server) accept() {
	for {
		c, err := s.lis.AcceptUnix()
		if err != nil {
			select {
			case <-s.stop:
				return
			case <-time.After(50 * time.Millisecond): // out of descriptors: some will come free
				s.cfg.Logger.Warn("shared memory socket", "error", err)
				continue
			}
		}
		s.mu.Lock()
		if s.closed || len(s.conns) >= s.cfg.Registrations+maxConns {
			s.mu.Unlock()
			_ = c.Close() // the client sees the end and comes back
			continue
		}
		s.conns[c] = struct{}{}
		s.work.Go(func() { s.serve(c) })
		s.mu.Unlock()
	}
}

// serve takes one client's memory and watches its connection.
func (s *Server) serve(c *net.UnixConn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	r, err := s.take(c)
	if err != nil {
		s.cfg.Logger.Debug("memory refused", "error", err)
		_ = c.SetWriteDeadline(time.Now().Add(handOver))
		_, _ = c.Write(append([]byte{1}, err.Error()...)) // the client may have left
		_ = c.Close()
		return
	}
	// Whatever comes now is the end: the client closes, dies or breaks the rules.
	_ = c.SetDeadline(time.Time{})
	_, _ = c.Read(make([]byte, 1))
	s.revoke(r)
	<-r.released
}

// take receives the memory of a reserved registration, maps it and answers.
func (s *Server) take(c *net.UnixConn) (*registration, error) {
	if err := c.SetDeadline(time.Now().Add(handOver)); err != nil {
		return nil, err
	}
	id, fd, err := receive(c, len(hello)+128)
	if err != nil {
		return nil, err
	}
	if fd == nil {
		return nil, errors.New("no descriptor came with the id")
	}
	defer fd.Close()
	if len(id) < len(hello) || string(id[:len(hello)]) != hello {
		return nil, errors.New("not the protocol of this version")
	}
	s.mu.Lock()
	r := s.ids[string(id[len(hello):])]
	if r == nil || r.taken || r.mem != nil || !s.cfg.Now().Before(r.deadline) {
		s.mu.Unlock()
		return nil, ErrID
	}
	r.taken = true // nobody else may hand memory over, and nobody release r
	s.mu.Unlock()

	mem, words, wfd, err := s.mapMemory(int(fd.Fd()), r)

	s.mu.Lock()
	defer s.mu.Unlock()
	r.taken = false
	if err != nil {
		s.revokeLocked(r)
		if r.revoked && !isReleased(r) {
			s.release(r)
		}
		return nil, err
	}
	defer wfd.Close()
	r.mem, r.words = mem, words
	if r.revoked {
		s.release(r)
		return nil, ErrID
	}
	r.conn = c
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(wfd.Fd())), nil); err != nil {
		r.conn = nil
		s.revokeLocked(r)
		return nil, err
	}
	return r, nil
}

func isReleased(r *registration) bool {
	select {
	case <-r.released:
		return true
	default:
		return false
	}
}

// mapMemory maps the client's memory, writes the nonce and makes the words.
func (s *Server) mapMemory(fd int, r *registration) (mem, words []byte, wfd *os.File, err error) {
	if err := checkMemory(fd, r.length); err != nil {
		return nil, nil, nil, err
	}
	if _, err := io.ReadFull(s.cfg.Rand, r.nonce[:]); err != nil {
		return nil, nil, nil, err
	}
	if mem, err = mapShared(fd, r.length, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, nil, nil, err
	}
	// No mapping made from now on can write, not even one of a descriptor that
	// is opened anew; ours stays as it is.
	if wfd, words, err = newMemory("objcached-ready", wordsBytes, unix.F_SEAL_FUTURE_WRITE); err != nil {
		return nil, nil, nil, errors.Join(err, unix.Munmap(mem))
	}
	copy(mem, r.nonce[:])
	return mem, words, wfd, nil
}

// receive reads one packet and the one descriptor it may carry.
func receive(c *net.UnixConn, most int) ([]byte, *os.File, error) {
	b, oob := make([]byte, most+1), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, nil, err
	}
	fds, err := descriptors(oob[:oobn])
	if err == nil && (n > most || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(fds) > 1) {
		err = fmt.Errorf("a packet of %d bytes and %d descriptors", n, len(fds))
	}
	if err != nil {
		for _, fd := range fds {
			_ = unix.Close(fd) // not kept, whatever it was
		}
		return nil, nil, err
	}
	if len(fds) == 0 {
		return b[:n], nil, nil
	}
	return b[:n], os.NewFile(uintptr(fds[0]), "memory"), nil
}

// descriptors returns those in control messages; on an error too.
func descriptors(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		got, e := unix.ParseUnixRights(&msgs[i])
		fds = append(fds, got...)
		err = errors.Join(err, e)
	}
	return fds, err
}
