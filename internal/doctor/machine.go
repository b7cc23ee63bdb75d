package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/transport/fabric/device"
)

// A Machine is where a Report is about. ThisMachine makes the real one; tests
// put trees and answers of their own in.
type Machine struct {
	Root    string // holds proc, sys, dev, etc, lib, usr
	Devices device.System
	Rlimit  func(resource int) (uint64, error)
	// Sleep and Timer wait for about d and say how long it took: the one by the
	// kernel alone, the other by Go's timers.
	Sleep, Timer func(d time.Duration) time.Duration
	// Output is what a program prints, or an error that wraps exec.ErrNotFound.
	Output func(ctx context.Context, name string, args ...string) ([]byte, error)
	Env    func(name string) string
	Try    Tries
}

// ThisMachine is the machine the program runs on.
func ThisMachine() *Machine {
	return &Machine{
		Root: "/",
		Rlimit: func(resource int) (uint64, error) {
			var r unix.Rlimit
			err := unix.Getrlimit(resource, &r)
			return r.Cur, err
		},
		Sleep: func(d time.Duration) time.Duration {
			start := time.Now()
			ts := unix.NsecToTimespec(d.Nanoseconds())
			_ = unix.Nanosleep(&ts, nil) // a signal that cuts it short is one sample of many
			return time.Since(start)
		},
		Timer: func(d time.Duration) time.Duration {
			start := time.Now()
			time.Sleep(d)
			return time.Since(start)
		},
		Output: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			c := exec.CommandContext(ctx, name, args...)
			c.WaitDelay = time.Second // something it started may hold its output open
			return c.Output()
		},
		Env: os.Getenv,
		Try: tries,
	}
}

func (m *Machine) path(name string) string { return filepath.Join(m.Root, name) }

// read is the content of a file without the space around it, or "".
func (m *Machine) read(name string) string {
	b, err := os.ReadFile(m.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m *Machine) exists(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// field is the value of a line "name: value" or "name value" of a file.
func (m *Machine) field(file, name string) string {
	for line := range strings.Lines(m.read(file)) {
		k, v, found := strings.Cut(line, ":")
		if !found {
			k, v, _ = strings.Cut(line, " ")
		}
		if strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (m *Machine) release() string { return m.read("proc/sys/kernel/osrelease") }

func (m *Machine) kernel() Check {
	const name = "kernel"
	release := m.release()
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return unknown(name, "its version cannot be read from /proc", "")
	}
	finding := "Linux " + release
	if major < 5 || major == 5 && minor < 10 {
		return warn(name, finding+" is older than any kernel objcached is tested on", "Use Linux 5.10 or newer.")
	}
	return ok(name, finding)
}

func (m *Machine) processor() Check {
	const name = "checksum instructions"
	flags := strings.Fields(cmp.Or(m.field("proc/cpuinfo", "flags"), m.field("proc/cpuinfo", "Features")))
	// Reads verify CRC32C of every block they touch; signatures hash bodies.
	var crc, sha string
	switch {
	case len(flags) == 0:
		return unknown(name, "/proc/cpuinfo lists no features of the processor", "")
	case slices.Contains(flags, "fpu"): // x86
		crc, sha = "sse4_2", "sha_ni"
	default: // arm64
		crc, sha = "crc32", "sha2"
	}
	hasCRC, hasSHA := slices.Contains(flags, crc), slices.Contains(flags, sha)
	switch {
	case hasCRC && hasSHA:
		return ok(name, fmt.Sprintf("CRC32C (%s) and SHA-256 (%s) in hardware, %d cores", crc, sha, runtime.NumCPU()))
	case hasCRC:
		return warn(name, fmt.Sprintf("CRC32C (%s) in hardware, SHA-256 in software (no %s)", crc, sha),
			"Uploads whose payload is signed by SHA-256 cost more CPU; clients over TLS may send UNSIGNED-PAYLOAD.")
	}
	return warn(name, "CRC32C in software (no "+crc+")",
		"Every read verifies CRC32C, so reads will be several times slower than the disk; in a virtual machine, pass the host's CPU features through.")
}

func (m *Machine) openFiles() Check {
	const name = "open files (ulimit -n)"
	n, err := m.Rlimit(unix.RLIMIT_NOFILE)
	if err != nil {
		return unknown(name, err.Error(), "")
	}
	// serve bounds its connections by half of this, and by 8192.
	if n < 16384 {
		return warn(name, fmt.Sprintf("%d, so %d connections at most", n, n/2),
			"ulimit -n 65536, or LimitNOFILE=65536 in the systemd unit.")
	}
	return ok(name, strconv.FormatUint(n, 10))
}

// clock measures what pacing can rely on: two quanta of 2 MiB at 100 Gb/s are
// 168 µs apart. An idle Go program waits in epoll, in whole milliseconds, so
// its timers may be coarser than the kernel's.
func (m *Machine) clock() Check {
	const name, asked = "sleep granularity", 100 * time.Microsecond
	kernel, timers := quartile(m.Sleep, asked), quartile(m.Timer, asked)
	finding := fmt.Sprintf("a sleep of %v takes the kernel %v, Go's timers %v", asked, kernel.Round(time.Microsecond), timers.Round(time.Microsecond))
	if kernel > time.Millisecond {
		return warn(name, finding, "Rates of paced transfers will be met in coarse steps; a kernel with high-resolution timers sleeps within 0.2 ms.")
	}
	return ok(name, finding)
}

// quartile is how long the fastest quarter of some waits takes at most. A busy
// machine delays the others.
func quartile(wait func(time.Duration) time.Duration, d time.Duration) time.Duration {
	took := make([]time.Duration, 24)
	for i := range took {
		took[i] = wait(d)
	}
	slices.Sort(took)
	return took[len(took)/4]
}

// bytesText renders n bytes for people.
func bytesText(n int64) string {
	switch {
	case n >= 1<<40:
		return fmt.Sprintf("%.1f TiB", float64(n)/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
