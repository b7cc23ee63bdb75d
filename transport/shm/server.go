//go:build linux

package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/objcached/objcached/transport/registry"
)

// Server takes clients' memory at a socket and gives it to a registry. It may
// be used concurrently.
type Server struct {
	reg  *registry.Registry
	log  *slog.Logger
	path string
	lis  *net.UnixListener
	stop chan struct{}
	work sync.WaitGroup // accept loop, connections

	mu     sync.Mutex
	closed bool
	conns  map[*net.UnixConn]struct{}
	fresh  int // connections that hold no registration yet
}

// Listen makes the socket at path, mode 0600, in place of one that a server
// which ended badly left there. It is an error if a server answers on it. A nil
// log is none.
func Listen(path string, reg *registry.Registry, log *slog.Logger) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	lis, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("shared memory socket: %w", err)
	}
	s := &Server{reg: reg, log: log, path: path, lis: lis, stop: make(chan struct{}), conns: map[*net.UnixConn]struct{}{}}
	s.work.Go(s.accept)
	return s, nil
}

func listen(path string) (*net.UnixListener, error) {
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s exists and is no socket", path)
		}
		if c, err := net.DialTimeout("unixpacket", path, time.Second); err == nil {
			return nil, errors.Join(fmt.Errorf("%s: a server is listening there", path), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// The socket is made under another name, and gets the one it is known by
	// when it has its mode: at no time could another user connect.
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(tmp) // of a process with our id that ended badly
	lis, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: tmp, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	lis.SetUnlinkOnClose(false)
	if err = os.Chmod(tmp, 0o600); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return nil, errors.Join(err, lis.Close(), os.Remove(tmp))
	}
	return lis, nil
}

// Path is the socket's absolute path.
func (s *Server) Path() string { return s.path }

// Reserve begins a registration of length bytes, as the registry's Reserve
// does. It has one error more, ErrLength.
func (s *Server) Reserve(owner registry.Owner, length int64) (id string, expires time.Duration, err error) {
	if length%PageSize != 0 {
		return "", 0, ErrLength
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return "", 0, errClosed
	}
	return s.reg.Reserve(owner, Provider, length)
}

// Close removes the socket, withdraws the memory that came through it, and
// waits until the deliveries into it have ended.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.stop)
	err := errors.Join(os.Remove(s.path), s.lis.Close())
	for c := range s.conns {
		_ = c.CloseRead() // its goroutine sees the end
	}
	s.mu.Unlock()
	s.work.Wait()
	return err
}

// connections returns how many clients are connected.
func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
