//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Owner is who a registration belongs to.
type Owner struct{ Tenant, AccessKey string }

// Config bounds what clients may hold. A zero field means its default.
type Config struct {
	Bytes       int64 // mapped or about to be, of all clients; default half of the machine's
	TenantBytes int64 // of one tenant; default Bytes

	Registrations       int // of all clients; default 1024
	TenantRegistrations int // of one tenant; default 256
	Pending             int // of them not confirmed; default 64
	TenantPending       int // of one tenant; default 16
	Transfers           int // deliveries under way; default 1024
	TenantTransfers     int // of one tenant; default 256

	PendingFor time.Duration // how long an id is good for; default 5 s
	Idle       time.Duration // how long an unused handle is; default 10 min

	Now    func() time.Time // default time.Now
	Rand   io.Reader        // default crypto/rand
	Logger *slog.Logger     // default: none
}

func (c *Config) setDefaults() {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	if c.Bytes <= 0 {
		c.Bytes = halfOfMemory()
	}
	if c.TenantBytes <= 0 {
		c.TenantBytes = c.Bytes
	}
	def(&c.Registrations, 1024)
	def(&c.TenantRegistrations, 256)
	def(&c.Pending, 64)
	def(&c.TenantPending, 16)
	def(&c.Transfers, 1024)
	def(&c.TenantTransfers, 256)
	if c.PendingFor <= 0 {
		c.PendingFor = 5 * time.Second
	}
	if c.Idle <= 0 {
		c.Idle = 10 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Stats is what a Server holds now.
type Stats struct {
	Bytes                             int64 // reserved or mapped
	Registrations, Pending, Transfers int
	Connections                       int
}

// holding is what all clients or one tenant hold.
type holding struct {
	bytes                             int64
	registrations, pending, transfers int
}

// Server takes clients' memory and lends it to deliveries. It may be used
// concurrently.
type Server struct {
	cfg  Config
	path string
	lis  *net.UnixListener
	stop chan struct{}
	work sync.WaitGroup // accept loop, connections, janitor

	mu      sync.Mutex
	closed  bool
	ids     map[string]*registration // reserved, not confirmed
	handles map[string]*registration
	all     map[*registration]struct{}
	conns   map[*net.UnixConn]struct{}
	total   holding
	tenants map[string]*holding
}

// Listen makes the socket at path, mode 0600, in place of one that a server
// which ended badly left there. It is an error if a server answers on it.
func Listen(path string, cfg Config) (*Server, error) {
	cfg.setDefaults()
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	lis, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("shared memory socket: %w", err)
	}
	s := &Server{cfg: cfg, path: path, lis: lis, stop: make(chan struct{}),
		ids: map[string]*registration{}, handles: map[string]*registration{}, all: map[*registration]struct{}{},
		conns: map[*net.UnixConn]struct{}{}, tenants: map[string]*holding{}}
	s.work.Go(s.accept)
	s.work.Go(s.janitor)
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

// Close withdraws all memory, waits until the deliveries into it have ended,
// and removes the socket.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.stop)
	err := errors.Join(os.Remove(s.path), s.lis.Close())
	var gone []*registration
	for r := range s.all {
		gone = append(gone, r)
	}
	for c := range s.conns {
		_ = c.CloseRead() // its goroutine sees the end
	}
	s.mu.Unlock()
	for _, r := range gone {
		s.revoke(r)
	}
	for _, r := range gone {
		<-r.released
	}
	s.work.Wait()
	return err
}

// Stats returns what is held now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Bytes: s.total.bytes, Registrations: s.total.registrations, Pending: s.total.pending,
		Transfers: s.total.transfers, Connections: len(s.conns)}
}

// tenant returns a tenant's holding; the caller holds s.mu.
func (s *Server) tenant(name string) *holding {
	h := s.tenants[name]
	if h == nil {
		h = new(holding)
		s.tenants[name] = h
	}
	return h
}

// forget drops a tenant's holding if it is empty; the caller holds s.mu.
func (s *Server) forget(name string) {
	if h := s.tenants[name]; h != nil && *h == (holding{}) {
		delete(s.tenants, name)
	}
}

// Reserve begins a registration of length bytes. Its errors are ErrLength and
// *BusyError.
func (s *Server) Reserve(owner Owner, length int64) (id string, expires time.Duration, err error) {
	if length <= 0 || length%PageSize != 0 || length > s.cfg.Bytes || length > s.cfg.TenantBytes {
		return "", 0, ErrLength
	}
	if id, err = s.token(); err != nil {
		return "", 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.tenant(owner.Tenant)
	defer s.forget(owner.Tenant)
	switch {
	case s.closed:
		return "", 0, errClosed
	case s.total.bytes > s.cfg.Bytes-length:
		return "", 0, &BusyError{"registered bytes"}
	case h.bytes > s.cfg.TenantBytes-length:
		return "", 0, &BusyError{"registered bytes of this tenant"}
	case s.total.registrations >= s.cfg.Registrations:
		return "", 0, &BusyError{"registrations"}
	case h.registrations >= s.cfg.TenantRegistrations:
		return "", 0, &BusyError{"registrations of this tenant"}
	case s.total.pending >= s.cfg.Pending:
		return "", 0, &BusyError{"registrations not confirmed"}
	case h.pending >= s.cfg.TenantPending:
		return "", 0, &BusyError{"registrations of this tenant not confirmed"}
	}
	r := &registration{s: s, owner: owner, length: length, id: id, released: make(chan struct{}),
		deadline: s.cfg.Now().Add(s.cfg.PendingFor), transfers: map[*Transfer]struct{}{}}
	s.ids[id], s.all[r] = r, struct{}{}
	for _, h := range [...]*holding{&s.total, h} {
		h.bytes += length
		h.registrations++
		h.pending++
	}
	return id, s.cfg.PendingFor, nil
}

// token makes an id or a handle.
func (s *Server) token() (string, error) {
	var b [idBytes]byte
	if _, err := io.ReadFull(s.cfg.Rand, b[:]); err != nil {
		return "", fmt.Errorf("shm: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// Confirm ends a registration and gives its handle. A wrong nonce ends it too,
// without one: there is one guess. Its errors are ErrID, ErrNoPeer and ErrNonce.
func (s *Server) Confirm(owner Owner, id string, nonce []byte) (handle string, expires time.Duration, err error) {
	if handle, err = s.token(); err != nil {
		return "", 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ids[id]
	switch {
	case r == nil || r.owner != owner || !s.cfg.Now().Before(r.deadline):
		return "", 0, ErrID
	case r.mem == nil:
		return "", 0, ErrNoPeer
	case subtle.ConstantTimeCompare(nonce, r.nonce[:]) != 1:
		s.revokeLocked(r)
		return "", 0, ErrNonce
	}
	delete(s.ids, id)
	s.total.pending--
	s.tenant(owner.Tenant).pending--
	r.handle = handle
	r.deadline = s.cfg.Now().Add(s.cfg.Idle)
	s.handles[handle] = r
	return handle, s.cfg.Idle, nil
}

// Renew keeps a handle from expiring for another Config.Idle. Its error is ErrHandle.
func (s *Server) Renew(owner Owner, handle string) (expires time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.find(owner, handle)
	if err != nil {
		return 0, err
	}
	r.deadline = s.cfg.Now().Add(s.cfg.Idle)
	return s.cfg.Idle, nil
}

// find returns the registration of a handle; the caller holds s.mu.
func (s *Server) find(owner Owner, handle string) (*registration, error) {
	r := s.handles[handle]
	if r == nil || r.owner != owner || len(r.transfers) == 0 && !s.cfg.Now().Before(r.deadline) {
		return nil, ErrHandle
	}
	return r, nil
}

// Window says where a delivery goes.
type Window struct {
	Handle         string
	Offset, Length int64 // bytes
	Tag            int64
	FirstLayer     int // the first layer that will be announced
	Layers         int
}

// Open begins a delivery and uses up its tag. The context it returns ends when
// the client withdraws its memory, and with ctx; the caller stops then, and
// closes the Transfer in any case. The errors are ErrHandle, ErrWindow,
// ErrLayers, ErrTag and *BusyError; after any of them the tag is as it was.
func (s *Server) Open(ctx context.Context, owner Owner, w Window) (context.Context, *Transfer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.find(owner, w.Handle)
	if err != nil {
		return nil, nil, err
	}
	h := s.tenant(owner.Tenant)
	slot, gen := int(w.Tag%Slots), generation(w.Tag)
	switch {
	case w.Offset < 0 || w.Length <= 0 || w.Offset > r.length || w.Length > r.length-w.Offset:
		return nil, nil, ErrWindow
	case w.Layers <= 0 || w.Layers > MaxLayers:
		return nil, nil, ErrLayers
	case w.Tag < 0 || w.Tag > MaxTag || gen <= r.used[slot]:
		return nil, nil, ErrTag
	case r.busy[slot]:
		return nil, nil, &BusyError{"deliveries into one memory with tags of one slot"}
	case s.total.transfers >= s.cfg.Transfers:
		return nil, nil, &BusyError{"deliveries into memory"}
	case h.transfers >= s.cfg.TenantTransfers:
		return nil, nil, &BusyError{"deliveries into memory of this tenant"}
	}
	r.used[slot], r.busy[slot] = gen, true
	s.total.transfers++
	h.transfers++
	ctx, cancel := context.WithCancelCause(ctx)
	t := &Transfer{r: r, win: r.mem[w.Offset : w.Offset+w.Length : w.Offset+w.Length], words: r.words, slot: slot, first: w.FirstLayer, layers: w.Layers,
		gen: gen, cancel: cancel, lent: make([]loan, 0, 16)}
	r.transfers[t] = struct{}{}
	return ctx, t, nil
}

// janitor ends what has expired.
func (s *Server) janitor() {
	t := time.NewTicker(min(time.Second, s.cfg.PendingFor/2))
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.expire()
		}
	}
}

// expire revokes every registration whose time is over and that is not in use.
func (s *Server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for r := range s.all {
		if len(r.transfers) == 0 && !now.Before(r.deadline) {
			s.revokeLocked(r)
		}
	}
}
