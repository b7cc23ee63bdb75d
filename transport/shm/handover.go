//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
)

// mapping is one client's memory in the server: a registry.Memory.
type mapping struct {
	mem   []byte
	words []byte
	conn  *net.UnixConn
	log   *slog.Logger
}

// WriteNonce implements registry.Memory.
func (m *mapping) WriteNonce(_ context.Context, nonce []byte) error {
	copy(m.mem, nonce)
	return nil
}

// Sink implements registry.Memory: a *Transfer.
func (m *mapping) Sink(_ context.Context, g *registry.Grant) (transport.Sink, error) {
	return m.transfer(g), nil
}

// Source implements registry.SourceMemory: a *Transfer too.
func (m *mapping) Source(_ context.Context, g *registry.Grant) (transport.Source, error) {
	return m.transfer(g), nil
}

func (m *mapping) transfer(g *registry.Grant) *Transfer {
	end := g.Offset + g.Length
	return &Transfer{grant: g, win: m.mem[g.Offset:end:end], words: m.words, lent: make([]loan, 0, 16)}
}

// Release implements registry.Memory. It unmaps the memory, and only then
// closes the connection: that is how the client knows.
func (m *mapping) Release() {
	if err := errors.Join(unix.Munmap(m.mem), unix.Munmap(m.words)); err != nil {
		m.log.Error("unmap a client's memory", "error", err) // a bug: the mappings are ours
	}
	m.mem, m.words = nil, nil
	_ = m.conn.Close() // its goroutine has nothing more to say
}

// maxFresh bounds connections that hold no registration yet.
const maxFresh = 64

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
				s.log.Warn("shared memory socket", "error", err)
				continue
			}
		}
		s.mu.Lock()
		if s.closed || s.fresh >= maxFresh {
			s.mu.Unlock()
			_ = c.Close() // the client sees the end and comes back
			continue
		}
		s.conns[c] = struct{}{}
		s.fresh++
		s.work.Go(func() { s.serve(c) })
		s.mu.Unlock()
	}
}

// serve takes one client's memory and watches its connection.
func (s *Server) serve(c *net.UnixConn) {
	r, err := s.take(c)
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		if err != nil {
			s.fresh--
		}
		s.mu.Unlock()
	}()
	if err != nil {
		s.log.Debug("memory refused", "error", err)
		_ = c.SetWriteDeadline(time.Now().Add(handOver))
		_, _ = c.Write(append([]byte{1}, err.Error()...)) // the client may have left
		_ = c.Close()
		return
	}
	s.mu.Lock()
	s.fresh-- // from here on the registry's limits bound it
	s.mu.Unlock()
	// Whatever comes now is the end: the client closes, dies or breaks the rules.
	_ = c.SetDeadline(time.Time{})
	_, _ = c.Read(make([]byte, 1))
	r.Revoke()
	<-r.Released()
}

// take receives the memory of a reserved registration, maps it and answers.
func (s *Server) take(c *net.UnixConn) (*registry.Registration, error) {
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
	var wfd *os.File // the words', for the client
	r, err := s.reg.Attach(context.Background(), string(id[len(hello):]), Provider, func(length int64) (_ registry.Memory, err error) {
		m := &mapping{conn: c, log: s.log}
		if m.mem, m.words, wfd, err = mapMemory(int(fd.Fd()), length); err != nil {
			return nil, err
		}
		return m, nil
	})
	if wfd != nil {
		defer wfd.Close()
	}
	if err != nil {
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(handOver)) // anew: mapping has taken its time
	if err == nil {
		_, _, err = c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(wfd.Fd())), nil)
	}
	if err != nil {
		r.Revoke()
		return nil, err
	}
	return r, nil
}

// mapMemory maps the client's memory and makes the words.
func mapMemory(fd int, length int64) (mem, words []byte, wfd *os.File, err error) {
	if err := checkMemory(fd, length); err != nil {
		return nil, nil, nil, err
	}
	if mem, err = mapShared(fd, length, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, nil, nil, err
	}
	// No mapping made from now on can write, not even one of a descriptor that
	// is opened anew; ours stays as it is.
	if wfd, words, err = newMemory("objcached-ready", wordsBytes, unix.F_SEAL_FUTURE_WRITE); err != nil {
		return nil, nil, nil, errors.Join(err, unix.Munmap(mem))
	}
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
