//go:build linux

package pace

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// futexClock sleeps on a futex with an absolute timeout. A goroutine's own
// timers end about a millisecond late; a thread's wait ends within some 30 µs,
// and unlike clock_nanosleep it can be woken (BenchmarkLateness).
type futexClock struct {
	woken atomic.Uint32 // 1: Wake was called
	start time.Time
	at    int64 // start, by the clock that the futex goes by
}

func systemClock() Clock {
	c := &futexClock{start: time.Now()}
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it has this clock and the pointer is valid
	c.at = ts.Nano()
	return c
}

// Now implements Clock. The runtime's monotonic clock is the same, read
// without a system call.
func (c *futexClock) Now() int64 { return c.at + int64(time.Since(c.start)) }

// Begin keeps the goroutine on its thread, whose wake-ups the kernel must not
// put off in order to join them with others. The thread ends with the goroutine.
func (c *futexClock) Begin() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // else the kernel is late by another 50 µs
}

// Operations on a futex of this process alone. The timeout of the second kind
// of wait is absolute, on the monotonic clock.
const (
	futexPrivate    = 128
	futexWake       = 1 | futexPrivate
	futexWaitBitset = 9 | futexPrivate
	futexAnyBit     = 1<<32 - 1
)

// SleepUntil implements Clock.
func (c *futexClock) SleepUntil(t int64) {
	for c.woken.Swap(0) == 0 {
		var ts *unix.Timespec
		if t != math.MaxInt64 {
			if c.Now() >= t {
				return
			}
			at := unix.NsecToTimespec(t)
			ts = &at
		}
		_, _, err := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&c.woken)), futexWaitBitset, 0,
			uintptr(unsafe.Pointer(ts)), 0, futexAnyBit)
		switch err {
		case 0, unix.EAGAIN, unix.EINTR, unix.ETIMEDOUT: // look again
		default: // not on any kernel that runs Go; it must not become a busy loop
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// Wake implements Clock.
func (c *futexClock) Wake() {
	if c.woken.Swap(1) == 0 {
		_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&c.woken)), futexWake, 1, 0, 0, 0)
	}
}
