package vfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS returns the directory dir as an FS. The directory must exist.
//
// It is for a server that copies: Detach keeps its promise for pages that were
// cached by writing, not for all of those cached by reading. See OSByReference.
func OS(dir string) FS { return osFS{dir: dir} }

// OSByReference is OS without read-ahead. It must be used where pages of the
// files leave the process by reference (sendfile, splice).
//
// Read-ahead caches large folios that reach over the borders of extents. When
// the kernel detaches a part of a folio that a socket holds, it cannot split
// the folio and zeroes that part in place: the socket's reader sees zeros, and,
// if the folio was dirty and so stays, the next owner's bytes. Folios made by
// a write lie inside that write. TestQueuedPagesKeepTheirBytes in
// storage/volume shows both (Linux 6.18, ext4).
//
// The price: pages cached by reading are small ones, and later reads of them
// were measured at 2.0-3.1 GB/s where those of large folios gave 5.2-5.5; what
// was cached by writing is as fast as ever.
func OSByReference(dir string) FS { return osFS{dir: dir, noReadAhead: true} }

type osFS struct {
	dir         string
	noReadAhead bool
}

func (f osFS) Create(name string) (File, error) {
	return f.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (f osFS) Open(name string) (File, error) { return f.open(name, os.O_RDWR) }

func (f osFS) open(name string, flags int) (File, error) {
	if name == "" || name != filepath.Base(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := os.OpenFile(filepath.Join(f.dir, name), flags, 0o600)
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	o := &osFile{f: file, raw: raw}
	if f.noReadAhead {
		if err := o.control("fadvise", func(fd int) error {
			return unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
		}); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return o, nil
}

func (f osFS) Remove(name string) error { return os.Remove(filepath.Join(f.dir, name)) }

func (f osFS) List() ([]string, error) {
	entries, err := os.ReadDir(f.dir) // sorted by name
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (f osFS) SyncDir() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// osFile goes through os.File, whose reference count keeps a descriptor from
// being closed, and its number from being given to another file, under a
// running call. That costs some tens of nanoseconds per read over a bare
// pread (BenchmarkReadAt in storage/volume has both).
type osFile struct {
	f   *os.File
	raw syscall.RawConn
	// noDontCache is set once the file system has refused RWF_DONTCACHE.
	noDontCache atomic.Bool
}

func (o *osFile) ReadAt(p []byte, off int64) error {
	_, err := o.f.ReadAt(p, off) // loops over short reads and EINTR
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// ReadAtCold asks for RWF_DONTCACHE (Linux 6.14; ext4, xfs). Elsewhere it
// reads what is cached with RWF_NOWAIT, the rest in the ordinary way, and
// drops only the pages of the rest, so that a scrub does not evict what
// requests have warmed. Read-ahead past the range may stay.
func (o *osFile) ReadAtCold(p []byte, off int64) error {
	if !o.noDontCache.Load() {
		n, err := o.preadv2(p, off, unix.RWF_DONTCACHE)
		if err == nil {
			if n < len(p) {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if !unsupported(err) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		o.noDontCache.Store(true)
	}
	n, err := o.preadv2(p, off, unix.RWF_NOWAIT)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, fs.ErrClosed) {
		return err
	}
	// Any other error (EAGAIN: nothing cached) only means that nothing is
	// known to have been cached.
	if err := o.ReadAt(p[n:], off+int64(n)); err != nil {
		return err
	}
	return o.DropCache(off+int64(n), int64(len(p)-n))
}

// preadv2 reads until p is full, the end of the file, or an error.
func (o *osFile) preadv2(p []byte, off int64, flags int) (n int, err error) {
	cerr := o.raw.Control(func(fd uintptr) {
		for n < len(p) && err == nil {
			var m int
			m, err = unix.Preadv2(int(fd), [][]byte{p[n:]}, off+int64(n), flags)
			if err == unix.EINTR {
				err = nil
				continue
			}
			if m <= 0 {
				return
			}
			n += m
		}
	})
	if cerr != nil {
		return 0, closedOr(cerr)
	}
	return n, err
}

func (o *osFile) WriteAt(p []byte, off int64) error {
	_, err := o.f.WriteAt(p, off) // loops over short writes and EINTR
	return err
}

func (o *osFile) Sync() error {
	return o.control("fdatasync", func(fd int) error { return unix.Fdatasync(fd) })
}

// Allocate falls back to growing a sparse file where the file system has no
// fallocate; a full disk is then met by WriteAt.
func (o *osFile) Allocate(off, n int64) error {
	err := o.control("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if err == nil || !unsupported(err) {
		return err
	}
	size, err := o.Size()
	if err != nil || size >= off+n {
		return err
	}
	return o.control("ftruncate", func(fd int) error { return unix.Ftruncate(fd, off+n) })
}

// Detach zeroes the range by turning its blocks into unwritten ones, which
// removes its pages from the page cache (the kernel truncates them out of the
// mapping; references held elsewhere keep the old page alive with its bytes)
// and keeps its blocks. (Blocks of the file system must not be larger than
// PageSize, or a part of one is zeroed in place.) Where that is not to be had (tmpfs) it punches a hole,
// which does the same but for keeping the blocks, and takes them again.
func (o *osFile) Detach(off, n int64) error {
	if off%PageSize != 0 || n%PageSize != 0 || off < 0 || n < 0 {
		return fmt.Errorf("vfile: detach [%d,+%d) is not aligned", off, n)
	}
	if n == 0 {
		return nil
	}
	err := o.control("fallocate zero-range", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err == nil || !unsupported(err) {
		return err
	}
	err = o.control("fallocate punch-hole", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err != nil {
		if unsupported(err) {
			return fmt.Errorf("%w: neither zero-range nor punch-hole (%v)", ErrUnsupported, err)
		}
		return err
	}
	// The pages are gone, which is what matters; a disk that has filled up
	// meanwhile is met by the next WriteAt.
	_ = o.control("fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	return nil
}

func (o *osFile) DropCache(off, n int64) error {
	start := (off + PageSize - 1) &^ (PageSize - 1)
	end := (off + n) &^ (PageSize - 1)
	if end <= start { // and never 0, which would mean: to the end of the file
		return nil
	}
	return o.control("fadvise", func(fd int) error {
		return unix.Fadvise(fd, start, end-start, unix.FADV_DONTNEED)
	})
}

func (o *osFile) Size() (int64, error) {
	fi, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (o *osFile) Close() error { return o.f.Close() }

// control runs call on the descriptor, again after EINTR.
func (o *osFile) control(op string, call func(fd int) error) error {
	var err error
	cerr := o.raw.Control(func(fd uintptr) {
		for {
			if err = call(int(fd)); err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return closedOr(cerr)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: o.f.Name(), Err: err}
	}
	return nil
}

// closedOr turns the poller's error for a closed file, which is private to
// the standard library, into fs.ErrClosed. RawConn.Control has no other.
func closedOr(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w (%v)", fs.ErrClosed, err)
}

func unsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
