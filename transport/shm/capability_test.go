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

	"github.com/objcached/objcached/transport/registry"
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
func offer(t *testing.T, s server, packet string, files ...*os.File) (said string, ok bool) {
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
	var c clock
	s := newServer(t, registry.Config{Now: c.now})
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
	for what, q := range map[string]struct {
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
		if said, ok := offer(t, s, hello+id, q.files...); ok || !strings.Contains(said, q.want) {
			t.Errorf("%s: the server says %q (taken: %v), want %q", what, said, ok, q.want)
		}
		if _, _, err := s.Confirm(alice, id, make([]byte, registry.NonceBytes)); !errors.Is(err, registry.ErrID) && !errors.Is(err, registry.ErrNoPeer) {
			t.Errorf("%s: Confirm: %v", what, err)
		}
		c.add(time.Minute)
		s.Expire()
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

// TestWrongNonce: one guess, and the memory is let go.
func TestWrongNonce(t *testing.T) {
	s := newServer(t, registry.Config{})
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
		if _, _, err := s.Confirm(alice, id, wrong(m.Nonce())); !errors.Is(err, registry.ErrNonce) {
			t.Errorf("a wrong nonce: %v", err)
		}
		<-m.Gone()
		if _, _, err := s.Confirm(alice, id, m.Nonce()); !errors.Is(err, registry.ErrID) {
			t.Errorf("the right nonce after a wrong one: %v", err)
		}
		closeMemory(t, m)
	}
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
	reg := registry.New(registry.Config{})
	defer reg.Close()
	s, err := Listen(path, reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 || fi.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", fi, err)
	}
	if _, err := Listen(path, reg, nil); err == nil {
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
	if s, err = Listen(path, reg, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, reg, nil); err == nil {
		t.Error("a file was replaced")
	}
}

// TestTalkingClient: whatever comes after the memory ends the registration.
func TestTalkingClient(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	if _, err := m.conn.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	<-m.Gone()
	if _, err := s.Renew(alice, handle); !errors.Is(err, registry.ErrHandle) {
		t.Errorf("the handle works: %v", err)
	}
}

// TestNothingSecretIsSaid: no error shows an id, a handle or a nonce.
func TestNothingSecretIsSaid(t *testing.T) {
	s := newServer(t, registry.Config{})
	_, _, e1 := s.Confirm(alice, "SECRET", []byte("SECRET"))
	_, _, e2 := s.Open(t.Context(), alice, registry.Window{Handle: "SECRET"})
	_, e3 := s.Renew(alice, "SECRET")
	said, _ := offer(t, s, hello+"SECRET", memfd(t, PageSize, seals))
	if all := errors.Join(e1, e2, e3, errors.New(said)).Error(); strings.Contains(all, "SECRET") {
		t.Error(all)
	}
}

// TestExpiry: the socket takes nothing under an id whose time is over, and a
// handle that expires closes the connection.
func TestExpiry(t *testing.T) {
	var c clock
	s := newServer(t, registry.Config{Now: c.now, PendingFor: 10 * time.Second, Idle: time.Minute})
	id, _, err := s.Reserve(alice, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	c.add(10 * time.Second)
	if said, ok := offer(t, s, hello+id, memfd(t, PageSize, seals)); ok {
		t.Errorf("an expired id took memory: %q", said)
	}
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.add(time.Hour)
	s.Expire() // in use
	if _, err := tr.Grab(0, 1); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	c.add(time.Minute)
	s.Expire()
	<-m.Gone()
}

// TestLength: whole pages alone can be mapped.
func TestLength(t *testing.T) {
	s := newServer(t, registry.Config{})
	for _, n := range []int64{1, PageSize - 1, PageSize + 1} {
		if _, _, err := s.Reserve(alice, n); !errors.Is(err, ErrLength) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestAnothersProvider: an id that another transport is to attach takes no
// memory at the socket.
func TestAnothersProvider(t *testing.T) {
	s := newServer(t, registry.Config{})
	id, _, err := s.Registry.Reserve(alice, "a fabric", PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if said, ok := offer(t, s, hello+id, memfd(t, PageSize, seals)); ok || !strings.Contains(said, "unknown") {
		t.Errorf("the server says %q (taken: %v)", said, ok)
	}
}

// TestLastTag: the words of the last generation that there is.
func TestLastTag(t *testing.T) {
	s := newServer(t, registry.Config{})
	m, handle := register(t, s, alice, PageSize)
	defer closeMemory(t, m)
	_, tr, err := s.Open(t.Context(), alice, registry.Window{Handle: handle, Length: 1, Tag: registry.MaxTag, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if !m.Wait(registry.MaxTag, Over, 0) {
		t.Error("the last tag is not over")
	}
}
