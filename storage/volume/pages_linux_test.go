package volume

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/vfile"
)

// sendfileTo queues [off, off+n) of a file in a TCP socket whose peer does not
// read yet, and returns the peer. The kernel queues references to the file's
// pages, not copies.
func sendfileTo(t *testing.T, path string, off, n int64) io.ReadCloser {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); peer.Close() })
	tcp := conn.(*net.TCPConn)
	if err := tcp.SetWriteBuffer(int(4 * n)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	end := off + n
	var serr error
	if err := raw.Write(func(fd uintptr) bool {
		for off < end && serr == nil {
			var m int
			m, serr = unix.Sendfile(int(fd), int(f.Fd()), &off, int(end-off))
			if serr == unix.EINTR {
				serr = nil
			}
			if serr == unix.EAGAIN {
				serr = nil
				return false // until the socket takes more
			}
			if m == 0 && serr == nil {
				serr = io.ErrUnexpectedEOF
			}
		}
		return true
	}); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	if err := tcp.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return peer
}

// noDetach is a file system whose Detach does nothing.
type noDetach struct{ vfile.FS }

type noDetachFile struct{ vfile.File }

func (f noDetach) Create(name string) (vfile.File, error) {
	file, err := f.FS.Create(name)
	return noDetachFile{file}, err
}

func (noDetachFile) Detach(off, n int64) error { return nil }

// A slow client's socket holds pages of an object that is dropped; the space
// goes to another object. The client must see the old bytes, all of them, and
// nothing else. The last cases show that the others can fail, and why
// vfile.OSByReference is there.
func TestQueuedPagesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	const n = 96 << 10
	byRef := vfile.OSByReference
	for _, c := range []struct {
		name string
		fsys func(dir string) vfile.FS
		warm bool // pages come from reading, not from writing
		safe bool
	}{
		{"written", vfile.OS, false, true},
		{"written, by reference", byRef, false, true},
		{"read, by reference", byRef, true, true},
		{"written, not detached", func(dir string) vfile.FS { return noDetach{byRef(dir)} }, false, false},
		{"read, not detached", func(dir string) vfile.FS { return noDetach{byRef(dir)} }, true, false},
		{"read, with read-ahead", vfile.OS, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpenSmall(t, c.fsys(dir))
			defer s.Close()
			// Not aligned to anything but blocks, between two neighbours.
			var exts []blob.Extent
			for i, size := range []int64{20 << 10, n, 500 << 10} {
				e, err := s.Reserve(t.Context(), size)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.WriteAt(t.Context(), e[0], fillBytes(byte('A'+i), size), 0); err != nil {
					t.Fatal(err)
				}
				exts = append(exts, e[0])
			}
			if err := s.Seal(t.Context(), exts); err != nil {
				t.Fatal(err)
			}
			if c.warm {
				v := s.list()[0]
				if err := v.file.DropCache(0, v.size); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 8<<10)
				for _, e := range exts {
					for off := int64(0); off < e.Len; off += int64(len(buf)) {
						p := buf[:min(int64(len(buf)), e.Len-off)]
						if err := s.ReadAt(t.Context(), e, p, off, false); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			e := exts[1]
			peer := sendfileTo(t, filepath.Join(dir, fileName(e.Volume)), e.Offset, e.Len)
			if err := s.Free(t.Context(), []blob.Extent{e}); err != nil {
				t.Fatal(err)
			}
			next, err := s.Reserve(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if len(next) != 1 || next[0] != e {
				t.Fatalf("got %v, want %v again", next, e)
			}
			if err := s.WriteAt(t.Context(), e, fillBytes('X', n), 0); err != nil {
				t.Fatal(err)
			}
			if err := s.Seal(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(peer)
			if err != nil {
				t.Fatal(err)
			}
			clean := bytes.Equal(got, fillBytes('B', n))
			if c.safe && !clean {
				t.Fatalf("the old reader got %s", summary(got))
			}
			if !c.safe && clean {
				t.Skip("not on this kernel and file system; the safe cases prove little here")
			}
			for i, x := range exts {
				want := fillBytes([]byte("AXC")[i], x.Len)
				p := make([]byte, x.Len)
				if err := s.ReadAt(t.Context(), x, p, 0, false); err != nil || !bytes.Equal(p, want) {
					t.Fatalf("extent %d: %s, %v", i, summary(p), err)
				}
			}
		})
	}
}

func fillBytes(b byte, n int64) []byte { return bytes.Repeat([]byte{b}, int(n)) }

// summary counts bytes by value.
func summary(p []byte) string {
	n := map[string]int{}
	for _, b := range p {
		n[fmt.Sprintf("%q", b)]++
	}
	return fmt.Sprint(n)
}

func mustOpenSmall(t testing.TB, fsys vfile.FS) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, Capacity: (20 + 96 + 500) << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), func(func(blob.Extent) error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}
