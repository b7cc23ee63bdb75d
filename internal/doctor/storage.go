package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// unused goes with what this machine can do and the store does not do yet:
// nobody should change a kernel for it.
const unused = " (not used yet: all reads go through the page cache)"

// data looks at the directory of a store. What is tried there is tried on
// temporary files.
func (m *Machine) data(dir string) []Check {
	const name, direct = "data directory", "direct reads (O_DIRECT)"
	if dir == "" {
		return []Check{unknown(name, "none was named", "Name the one that serve will have: --data DIR.")}
	}
	// serve makes the directory; what will hold it can be looked at now.
	where, note := dir, ""
	for {
		st, err := os.Stat(where)
		if err == nil && st.IsDir() {
			break
		}
		if err == nil {
			err = fmt.Errorf("%s is not a directory", where)
		}
		parent := filepath.Dir(where)
		if !errors.Is(err, fs.ErrNotExist) || parent == where {
			return []Check{required(missing(name, err.Error(), "Name a directory that can be made or written."))}
		}
		where, note = parent, fmt.Sprintf(" (%s does not exist yet; tried in %s)", dir, parent)
	}
	f := m.Try.Files(where)
	if f.Write != nil {
		return []Check{required(missing(name, fmt.Sprintf("cannot be written: %v%s", f.Write, note),
			"Run serve as a user who may write there, or name another directory."))}
	}
	c := required(ok(name, fmt.Sprintf("%s, %s free of %s%s", f.FS, bytesText(f.Free), bytesText(f.Size), note)))
	switch {
	case f.Detach != nil:
		// Freed space could not be given out again without showing old bytes.
		c.Status = Missing
		c.Finding = fmt.Sprintf("%s can neither zero a range nor punch a hole: %v%s", f.FS, f.Detach, note)
		c.Advice = "Put the store on ext4 or XFS."
	case f.FS == "tmpfs" || f.FS == "ramfs":
		c.Status, c.Advice = Warn, "This is memory: the store is gone when the machine restarts."
	case f.FS == "overlay":
		c.Status, c.Advice = Warn, "This looks like a container's own layer, which goes with the container: mount a volume."
	case strings.HasPrefix(f.FS, "NFS"), f.FS == "SMB":
		c.Status, c.Advice = Warn, "A network file system keeps its own promises about flushed data; a local disk is what objcached is tested on."
	case f.Free < 1<<30:
		c.Status, c.Advice = Warn, "Less than 1 GiB is free."
	}
	checks := []Check{c}
	switch {
	case f.Direct == nil:
		checks = append(checks, ok(direct, fmt.Sprintf("work on %s, in units of %d bytes%s", f.FS, f.DirectUnit, unused)))
	case errors.Is(f.Direct, unix.EINVAL) || errors.Is(f.Direct, unix.EOPNOTSUPP):
		checks = append(checks, missing(direct, f.FS+" does not have them"+unused,
			"ext4 and XFS on a local disk have them."))
	default:
		checks = append(checks, unknown(direct, f.Direct.Error(), ""))
	}
	return checks
}

func required(c Check) Check {
	c.Required = true
	return c
}

func (m *Machine) ioUring() Check {
	const name = "io_uring"
	err := m.Try.IOUring()
	switched := m.read("proc/sys/kernel/io_uring_disabled")
	switch {
	case err == nil:
		return ok(name, "a ring can be made"+unused)
	case errors.Is(err, unix.ENOSYS):
		return missing(name, "this kernel has none"+unused, "Linux 5.10 or newer has it, unless it was built without; gVisor has none.")
	case errors.Is(err, unix.EPERM) && switched == "2":
		return missing(name, "switched off on this machine (kernel.io_uring_disabled=2)"+unused, "sysctl -w kernel.io_uring_disabled=0")
	case errors.Is(err, unix.EPERM) && switched == "1":
		return missing(name, "only for privileged processes (kernel.io_uring_disabled=1)"+unused,
			"sysctl -w kernel.io_uring_disabled=0, or put the user into the group of kernel.io_uring_group.")
	case errors.Is(err, unix.EPERM):
		return missing(name, "refused: a container's seccomp profile does that"+unused, "Allow io_uring_setup, io_uring_enter and io_uring_register in the profile.")
	}
	return unknown(name, fmt.Sprintf("io_uring_setup: %v", err), "")
}

func (m *Machine) sealedMemory() Check {
	const name = "sealed memory (memfd)"
	if err := m.Try.Seals(unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL); err != nil {
		return missing(name, err.Error(), "Layers cannot go into shared memory here; clients get them as response bodies.")
	}
	return ok(name, "memory that can neither shrink nor grow can be made and mapped")
}

func (m *Machine) readOnlyForOthers() Check {
	const name = "F_SEAL_FUTURE_WRITE"
	if err := m.Try.Seals(unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL | unix.F_SEAL_FUTURE_WRITE); err != nil {
		return missing(name, err.Error(), "The words that announce layers need it (Linux 5.1 or newer); without it --shm-listen does not work.")
	}
	return ok(name, "memory can be shared that only its owner may write")
}

func (m *Machine) passing() Check {
	const name = "passing memory by socket"
	if err := m.Try.Pass(); err != nil {
		return missing(name, err.Error(), "Unix sockets of type SOCK_SEQPACKET and SCM_RIGHTS are needed for --shm-listen.")
	}
	return ok(name, "a memfd arrives through a Unix socket")
}
