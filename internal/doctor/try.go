package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tries are what can only be found out by doing it.
type Tries struct {
	Files   func(dir string) Files
	IOUring func() error
	Seals   func(seals int) error // makes, maps and seals a memfd
	Pass    func() error          // hands a memfd over by a Unix socket
	Open    func(file string) error
}

// Files is what a directory's file system can do.
type Files struct {
	FS         string // ext4, xfs, ...
	Free, Size int64  // bytes
	Write      error  // a file can be written and flushed
	Detach     error  // a range can be zeroed or punched, if Write is nil
	Direct     error  // O_DIRECT reads what was written, if Write is nil
	DirectUnit int    // bytes; the smallest read that works
}

var tries = Tries{Files: tryFiles, IOUring: tryIOUring, Seals: trySeals, Pass: tryPass,
	Open: func(file string) error { return unix.Access(file, unix.R_OK|unix.W_OK) }}

// fileSystems are names by the magic numbers of statfs.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "XFS", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "NFS", unix.F2FS_SUPER_MAGIC: "F2FS",
	unix.SMB2_SUPER_MAGIC: "SMB", unix.CEPH_SUPER_MAGIC: "CephFS", unix.FUSE_SUPER_MAGIC: "FUSE", 0x2fc12fc1: "ZFS",
}

func tryFiles(dir string) (r Files) {
	var st unix.Statfs_t
	if r.Write = unix.Statfs(dir, &st); r.Write != nil {
		return r
	}
	if r.FS = fileSystems[int64(st.Type)&0xffffffff]; r.FS == "" {
		r.FS = fmt.Sprintf("a file system of type %#x", st.Type)
	}
	r.Free, r.Size = int64(st.Bavail)*st.Bsize, int64(st.Blocks)*st.Bsize
	f, err := os.CreateTemp(dir, ".objcached-doctor-*")
	if err != nil {
		r.Write = err
		return r
	}
	defer func() { r.Write = errors.Join(r.Write, f.Close(), os.Remove(f.Name())) }()
	want := bytes.Repeat([]byte("objcached doctor"), 16<<10/16)
	_, err = f.Write(want)
	if r.Write = errors.Join(err, f.Sync(), unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)); r.Write != nil {
		return r
	}
	r.DirectUnit, r.Direct = tryDirect(f.Name(), want)
	r.Detach = tryDetach(int(f.Fd()))
	return r
}

// tryDirect finds the smallest unit in which a file can be read around the page
// cache, and checks the bytes.
func tryDirect(file string, want []byte) (unit int, err error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open with O_DIRECT: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	// Memory from the system is aligned to pages.
	mem, err := unix.Mmap(-1, 0, len(want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, fmt.Errorf("mmap: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(mem)) }()
	for unit = 512; unit <= len(want)/2; unit *= 2 {
		// A unit at a place that is a multiple of nothing larger.
		var n int
		n, err = unix.Pread(fd, mem[:unit], int64(unit))
		if err == unix.EINVAL {
			continue
		}
		if err == nil && !bytes.Equal(mem[:n], want[unit:2*unit]) {
			err = fmt.Errorf("a direct read of %d bytes gives %d others", unit, n)
		}
		break
	}
	if err != nil {
		return 0, fmt.Errorf("read with O_DIRECT: %w", err)
	}
	return unit, nil
}

// tryDetach zeroes a range, or punches a hole, as space of the store is freed.
func tryDetach(fd int) error {
	var errs []error
	for _, mode := range []uint32{unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_PUNCH_HOLE} {
		err := unix.Fallocate(fd, mode|unix.FALLOC_FL_KEEP_SIZE, 4096, 4096)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("fallocate: %w", err))
	}
	return errors.Join(errs...)
}

func tryIOUring() error {
	var params [120]byte // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

func trySeals(seals int) (err error) {
	const n = 1 << 16
	fd, err := unix.MemfdCreate("objcached-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Ftruncate(fd, n); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(mem)) }()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("F_ADD_SEALS %#x: %w", seals, err)
	}
	if err := unix.Ftruncate(fd, n/2); err != unix.EPERM {
		return fmt.Errorf("sealed memory still shrinks (%v)", err)
	}
	if seals&unix.F_SEAL_FUTURE_WRITE == 0 {
		return nil
	}
	mem[0] = 1 // who mapped it before may go on writing
	if again, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EPERM {
		if err == nil {
			err = unix.Munmap(again)
		}
		return errors.Join(errors.New("sealed memory can still be mapped for writing"), err)
	}
	return nil
}

func tryPass() (err error) {
	dir, err := os.MkdirTemp("", "objcached-doctor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	addr := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixpacket"}
	l, err := net.ListenUnix("unixpacket", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	from, err := net.DialUnix("unixpacket", nil, addr)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	defer to.Close()
	fd, err := unix.MemfdCreate("objcached-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if _, _, err := from.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil); err != nil {
		return err
	}
	oob := make([]byte, 64)
	_, n, _, _, err := to.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return err
	}
	for _, msg := range messages {
		fds, err := unix.ParseUnixRights(&msg)
		if err != nil {
			return err
		}
		for _, got := range fds {
			var a, b unix.Stat_t
			if err := errors.Join(unix.Fstat(fd, &a), unix.Fstat(got, &b), unix.Close(got)); err != nil {
				return err
			}
			if a.Ino != b.Ino {
				return errors.New("another file arrived than was sent")
			}
			return nil
		}
	}
	return errors.New("the message arrived without the descriptor")
}
