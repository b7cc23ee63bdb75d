//go:build linux

package shm

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// clock is a time that a test sets.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time      { return time.Unix(0, c.ns.Load()) }
func (c *clock) add(d time.Duration) { c.ns.Add(int64(d)) }

// memfd makes a memfd with seals; huge pages and other kinds are the caller's.
func memfd(t *testing.T, n int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// offer sends one packet and returns what the server says; ok means that it
// took the memory.
func offer(t *testing.T, s *Server, packet string, files ...*os.File) (said string, ok bool) {
	t.Helper()
	c, err := net.Dial("unixpacket", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	conn := c.(*net.UnixConn)
	var oob []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(packet), oob, nil); err != nil {
		t.Fatal(err)
	}
	b, f, err := receive(conn, 1024)
	if err != nil {
		return err.Error(), false
	}
	if f != nil {
		t.Cleanup(func() { _ = f.Close() })
	}
	if len(b) == 1 && b[0] == 0 && f != nil {
		return "", true
	}
	return string(b), false
}

// TestMemoryThatIsRefused: what could shrink, is of another size, or is no
// memfd at all never gets mapped.
func TestMemoryThatIsRefused(t *testing.T) {
	const n = 2 * PageSize
	s := newServer(t, Config{})
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(n); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(memfd(t, n, seals).Fd())))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	good := memfd(t, n, seals)
	for what, c := range map[string]struct {
		files []*os.File
		want  string
	}{
		"no seals":         {[]*os.File{memfd(t, n, 0)}, "lacks"},
		"no shrink seal":   {[]*os.File{memfd(t, n, unix.F_SEAL_GROW|unix.F_SEAL_SEAL)}, "lacks"},
		"no grow seal":     {[]*os.File{memfd(t, n, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)}, "lacks"},
		"seals may be set": {[]*os.File{memfd(t, n, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)}, "lacks"},
		"truncated":        {[]*os.File{memfd(t, n-PageSize, seals)}, "bytes"},
		"empty":            {[]*os.File{memfd(t, 0, seals)}, "bytes"},
		"larger":           {[]*os.File{memfd(t, n+PageSize, seals)}, "bytes"},
		"write sealed":     {[]*os.File{memfd(t, n, seals|unix.F_SEAL_WRITE)}, "mmap"},
		"read only":        {[]*os.File{readOnly}, "mmap"},
		"a file":           {[]*os.File{file}, "memfd"},
		"a pipe":           {[]*os.File{pr}, "memfd"},
		"none":             {nil, "no descriptor"},
		"two":              {[]*os.File{good, good}, "2 descriptors"},
		"more than fit":    {[]*os.File{good, good, good, good, good, good}, "descriptors"},
	} {
		id, _, err := s.Reserve(alice, n)
		if err != nil {
			t.Fatal(err)
		}
		if said, ok := offer(t, s, hello+id, c.files...); ok || !strings.Contains(said, c.want) {
			t.Errorf("%s: the server says %q (taken: %v), want %q", what, said, ok, c.want)
		}
		if _, _, err := s.Confirm(alice, id, make([]byte, NonceBytes)); !errors.Is(err, ErrID) && !errors.Is(err, ErrNoPeer) {
			t.Errorf("%s: Confirm: %v", what, err)
		}
		s.mu.Lock()
		for r := range s.all {
			s.revokeLocked(r)
		}
		s.mu.Unlock()
	}
	id, _, err := s.Reserve(alice, n)
	if err != nil {
		t.Fatal(err)
	}
	for packet, want := range map[string]string{"objshm00" + id: "protocol", hello: "unknown", hello + "x": "unknown",
		hello + strings.Repeat("x", 500): "packet"} {
		if said, ok := offer(t, s, packet, good); ok || !strings.Contains(said, want) {
			t.Errorf("%.20q: the server says %q", packet, said)
		}
	}
	if _, ok := offer(t, s, hello+id, good); !ok {
		t.Fatal("good memory was refused")
	}
	if said, ok := offer(t, s, hello+id, good); ok || !strings.Contains(said, "unknown") {
		t.Errorf("memory was handed over twice: %q", said)
	}
}

func TestConfirm(t *testing.T) {
	bob, eve := Owner{"llama", "BOB"}, Owner{"other", "ALICE"}
	s := newServer(t, Config{})
	id, _, err := s.Reserve(alice, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Confirm(alice, id, make([]byte, NonceBytes)); !errors.Is(err, ErrNoPeer) {
		t.Errorf("before the memory came: %v", err)
	}
	m, err := NewMemory(PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer closeMemory(t, m)
	if err := m.Offer(t.Context(), s.Path(), id); err != nil {
		t.Fatal(err)
	}
	for _, who := range []Owner{bob, eve, {}} {
		if _, _, err := s.Confirm(who, id, m.Nonce()); !errors.Is(err, ErrID) {
			t.Errorf("%v: %v", who, err)
		}
	}
	handle, _, err := s.Confirm(alice, id, m.Nonce())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Confirm(alice, id, m.Nonce()); !errors.Is(err, ErrID) {
		t.Errorf("confirmed twice: %v", err)
	}
	for _, who := range []Owner{bob, eve, {}} {
		if _, _, err := s.Open(t.Context(), who, Window{Handle: handle, Length: 1, Layers: 1}); !errors.Is(err, ErrHandle) {
			t.Errorf("%v opens alice's: %v", who, err)
		}
		if _, err := s.Renew(who, handle); !errors.Is(err, ErrHandle) {
			t.Errorf("%v renews alice's: %v", who, err)
		}
	}
	for _, bad := range []string{"", id, handle + "x", handle[1:]} {
		if _, _, err := s.Open(t.Context(), alice, Window{Handle: bad, Length: 1, Layers: 1}); !errors.Is(err, ErrHandle) {
			t.Errorf("handle %q: %v", bad, err)
		}
	}
}

// TestWrongNonce: one guess, and the memory is let go.
func TestWrongNonce(t *testing.T) {
	s := newServer(t, Config{})
	for _, wrong := range []func(n []byte) []byte{
		func(n []byte) []byte { n[31] ^= 1; return n }, func(n []byte) []byte { return n[:31] }, func([]byte) []byte { return nil },
		func(n []byte) []byte { return append(n, 0) },
	} {
		id, _, err := s.Reserve(alice, PageSize)
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMemory(PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Offer(t.Context(), s.Path(), id); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Confirm(alice, id, wrong(m.Nonce())); !errors.Is(err, ErrNonce) {
			t.Errorf("a wrong nonce: %v", err)
		}
		<-m.Gone()
		if _, _, err := s.Confirm(alice, id, m.Nonce()); !errors.Is(err, ErrID) {
			t.Errorf("the right nonce after a wrong one: %v", err)
		}
		closeMemory(t, m)
	}
}

// TestExpiry: ids and unused handles end; use and renewal put that off.
func TestExpiry(t *testing.T) {
	var c clock
	s := newServer(t, Config{Now: c.now, PendingFor: 10 * time.Second, Idle: time.Minute})
	id, d, err := s.Reserve(alice, PageSize)
	if err != nil || d != 10*time.Second {
		t.Fatal(d, err)
	}
	c.add(10 * time.Second)
	if said, ok := offer(t, s, hello+id, memfd(t, PageSize, seals)); ok {
		t.Errorf("an expired id took memory: %q", said)
	}
	s.expire()
	if st := s.Stats(); st.Registrations != 0 || st.Bytes != 0 || st.Pending != 0 {
		t.Errorf("after its time: %+v", st)
	}
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	w := Window{Handle: handle, Length: 1, Layers: 1}
	c.add(59 * time.Second)
	if d, err := s.Renew(alice, handle); err != nil || d != time.Minute {
		t.Error(d, err)
	}
	c.add(59 * time.Second)
	_, tr, err := s.Open(t.Context(), alice, w)
	if err != nil {
		t.Fatal(err)
	}
	c.add(time.Hour)
	s.expire() // in use
	if _, err := tr.Grab(0, 1); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	c.add(59 * time.Second)
	s.expire() // used a minute ago
	if _, err := s.Renew(alice, handle); err != nil {
		t.Error(err)
	}
	c.add(time.Minute)
	w.Tag = 1
	if _, _, err := s.Open(t.Context(), alice, w); !errors.Is(err, ErrHandle) {
		t.Errorf("an expired handle: %v", err)
	}
	s.expire()
	<-m.Gone()
}

// TestTags: each works once, a slot's tags rise, and a refused one is not used up.
func TestTags(t *testing.T) {
	s := newServer(t, Config{})
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	open := func(tag int64) (*Transfer, error) {
		_, tr, err := s.Open(t.Context(), alice, Window{Handle: handle, Length: PageSize, Tag: tag, Layers: 1})
		return tr, err
	}
	use := func(tag int64) {
		t.Helper()
		tr, err := open(tag)
		if err != nil {
			t.Fatalf("tag %d: %v", tag, err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Open(t.Context(), alice, Window{Handle: handle, Length: PageSize + 1, Layers: 1}); !errors.Is(err, ErrWindow) {
		t.Errorf("past the memory: %v", err)
	}
	for _, w := range []Window{{Offset: -1, Length: 1}, {Length: 0}, {Length: -1}, {Offset: PageSize, Length: 1}, {Offset: 1, Length: 1<<63 - 1}} {
		w.Handle, w.Layers = handle, 1
		if _, _, err := s.Open(t.Context(), alice, w); !errors.Is(err, ErrWindow) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	for _, l := range []int{0, -1, MaxLayers + 1} {
		if _, _, err := s.Open(t.Context(), alice, Window{Handle: handle, Length: 1, Layers: l}); !errors.Is(err, ErrLayers) {
			t.Errorf("%d layers: %v", l, err)
		}
	}
	use(0)
	use(3)
	use(Slots)
	use(5 * Slots)
	for _, tag := range []int64{0, Slots, 2 * Slots, 5 * Slots, 3, -1, MaxTag + 1, 1<<63 - 1} {
		if _, err := open(tag); !errors.Is(err, ErrTag) {
			t.Errorf("tag %d: %v", tag, err)
		}
	}
	tr, err := open(3 + Slots)
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := open(3 + 2*Slots); !errors.As(err, &busy) {
		t.Errorf("a slot in use: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	use(3 + 2*Slots) // the refused one
	use(MaxTag)
	if !m.Wait(MaxTag, Over, 0) {
		t.Error("the last tag is not over")
	}
}

func TestLimits(t *testing.T) {
	bob := Owner{"other", "BOB"}
	s := newServer(t, Config{Bytes: 8 * PageSize, TenantBytes: 4 * PageSize, Registrations: 5, TenantRegistrations: 3, Pending: 3, TenantPending: 2,
		Transfers: 3, TenantTransfers: 2})
	var busy *BusyError
	reserve := func(who Owner, n int64, ok bool) {
		t.Helper()
		_, _, err := s.Reserve(who, n)
		if ok && err != nil || !ok && !errors.As(err, &busy) {
			t.Errorf("%d bytes of %v: %v", n, who, err)
		}
	}
	for _, n := range []int64{0, -PageSize, 1, PageSize + 1, 5 * PageSize, 1 << 62} {
		if _, _, err := s.Reserve(alice, n); !errors.Is(err, ErrLength) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	reserve(alice, PageSize, true)
	reserve(alice, 4*PageSize, false) // bytes of the tenant
	reserve(alice, PageSize, true)
	reserve(alice, PageSize, false) // pending of the tenant
	reserve(bob, PageSize, true)
	reserve(bob, PageSize, false) // pending of all
	s.mu.Lock()
	for r := range s.all {
		s.revokeLocked(r)
	}
	s.mu.Unlock()
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	m2, handle2 := register(t, s, bob, PageSize)
	defer closeMemory(t, m2)
	var open []*Transfer
	try := func(who Owner, handle string, tag int64, ok bool) {
		t.Helper()
		_, tr, err := s.Open(t.Context(), who, Window{Handle: handle, Length: 1, Tag: tag, Layers: 1})
		if ok && err != nil || !ok && !errors.As(err, &busy) {
			t.Errorf("transfer %d of %v: %v", tag, who, err)
		}
		if tr != nil {
			open = append(open, tr)
		}
	}
	try(alice, handle, 0, true)
	try(alice, handle, 1, true)
	try(alice, handle, 2, false) // of the tenant
	try(bob, handle2, 0, true)
	try(bob, handle2, 1, false) // of all
	for _, tr := range open {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		m, _ := register(t, s, alice, PageSize)
		defer closeMemory(t, m)
	}
	reserve(alice, PageSize, false) // registrations of the tenant
	m3, _ := register(t, s, bob, PageSize)
	defer closeMemory(t, m3)
	reserve(bob, PageSize, false) // registrations of all
}

// TestClientCannotWriteWords: neither by mapping, nor by opening anew.
func TestClientCannotWriteWords(t *testing.T) {
	f, mem, err := newMemory("words", wordsBytes, unix.F_SEAL_FUTURE_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer func() { _ = unix.Munmap(mem) }()
	again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, f := range []*os.File{f, again} {
		if m, err := unix.Mmap(int(f.Fd()), 0, wordsBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("mapped for writing")
			_ = unix.Munmap(m)
		}
		if _, err := f.WriteAt([]byte{1}, 0); err == nil {
			t.Error("written")
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err == nil {
			t.Error("a hole was punched")
		}
	}
	m, err := unix.Mmap(int(f.Fd()), 0, wordsBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("made writable")
	}
	// The writer's own mapping goes on, and wakes a reader of the other one.
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		for atomic.LoadUint32(wordAt(m, 7)) == 0 {
			wait(wordAt(m, 7), 0, time.Minute)
		}
	}()
	atomic.StoreUint32(wordAt(mem, 7), 1)
	wake(wordAt(mem, 7))
	<-woken
}

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	s, err := Listen(path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 || fi.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", fi, err)
	}
	if _, err := Listen(path, Config{}); err == nil {
		t.Error("two servers on one socket")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// A socket that nobody listens on any more gives way; a file does not.
	stale, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Listen(path, Config{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, Config{}); err == nil {
		t.Error("a file was replaced")
	}
}

// TestTalkingClient: whatever comes after the memory ends the registration.
func TestTalkingClient(t *testing.T) {
	s := newServer(t, Config{})
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	if _, err := m.conn.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	<-m.Gone()
	if _, err := s.Renew(alice, handle); !errors.Is(err, ErrHandle) {
		t.Errorf("the handle works: %v", err)
	}
}

// TestNothingSecretIsSaid: no error shows an id, a handle or a nonce.
func TestNothingSecretIsSaid(t *testing.T) {
	s := newServer(t, Config{})
	_, _, e1 := s.Confirm(alice, "SECRET", []byte("SECRET"))
	_, _, e2 := s.Open(t.Context(), alice, Window{Handle: "SECRET"})
	_, e3 := s.Renew(alice, "SECRET")
	said, _ := offer(t, s, hello+"SECRET", memfd(t, PageSize, seals))
	if all := errors.Join(e1, e2, e3, errors.New(said)).Error(); strings.Contains(all, "SECRET") {
		t.Error(all)
	}
}
