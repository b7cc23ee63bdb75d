//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seals are what a client's memfd must have: its size can never change, and
// neither can that.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// HalfOfMemory is half of the machine's memory, in bytes: a sensible limit on
// what clients hand over, which is in memory as soon as it is mapped, whether
// they touch it or not.
func HalfOfMemory() int64 {
	var i unix.Sysinfo_t
	if err := unix.Sysinfo(&i); err != nil {
		return 1 << 30 // it never fails on a valid pointer
	}
	return int64(i.Totalram) * int64(i.Unit) / 2
}

// newMemory makes a sealed memfd of n bytes and maps it.
func newMemory(name string, n int64, more int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	mem, err := func() ([]byte, error) {
		if err := f.Truncate(n); err != nil {
			return nil, err
		}
		mem, err := mapShared(fd, n, unix.PROT_READ|unix.PROT_WRITE)
		if err != nil {
			return nil, err
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|more); err != nil {
			return nil, errors.Join(fmt.Errorf("seal the memfd: %w", err), unix.Munmap(mem))
		}
		return mem, nil
	}()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, mem, nil
}

// mapShared maps n bytes with their pages in place.
func mapShared(fd int, n int64, prot int) ([]byte, error) {
	if int64(int(n)) != n {
		return nil, unix.ENOMEM
	}
	mem, err := unix.Mmap(fd, 0, int(n), prot, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return mem, nil
}

// checkMemory checks that fd is memory of n bytes that can neither shrink nor
// fail to be there when it is touched.
func checkMemory(fd int, n int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("not a memfd")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("fstatfs: %w", err)
	}
	if fs.Type != unix.TMPFS_MAGIC { // huge pages can run out at any access
		return errors.New("not a memfd of ordinary pages")
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("read the seals: %w", err)
	}
	if got&seals != seals {
		return errors.New("the memfd lacks F_SEAL_SHRINK, F_SEAL_GROW or F_SEAL_SEAL")
	}
	// After the seals: now the size is what it stays.
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Size != n {
		return fmt.Errorf("the memfd has %d bytes, %d were registered", st.Size, n)
	}
	return nil
}

// wordAt is word i of a mapping of words.
func wordAt(mem []byte, i int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[4*i])) }

// The operations are not FUTEX_PRIVATE_FLAG's: the waiter is in another process.
const (
	futexWait = 0
	futexWake = 1
)

// wake wakes all who wait on a word, and reports whether someone did.
func wake(word *uint32) bool {
	const all = 1 << 30
	// It cannot fail on a word that is mapped.
	n, _, err := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all, 0, 0, 0)
	return err == 0 && n > 0
}

// yield lets others run on this core first.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// wait sleeps until the word is woken, is no longer old, or d has passed. It
// may return early.
func wait(word *uint32, old uint32, d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
}
