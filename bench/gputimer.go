package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// gpuTimer is the clock that stands for the GPU. Go's own timers are a
// millisecond late where the network poller sleeps by milliseconds, and a
// layer of a short prefill computes for two; the kernel's clock is microseconds
// late on a thread that asks for it.
type gpuTimer struct{}

// spin is how much of a wait is spent looking at the clock: a wake-up takes
// about as long, and 32 layers of it cost no more than a millisecond of a core.
const spin = 20 * time.Microsecond

// onGPUThread runs f on a thread of its own whose sleeps the kernel does not
// lengthen to save wake-ups. The thread ends with f.
func onGPUThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the slack must not pass to other goroutines
		// A thread that cannot have it sleeps 50 µs longer, which Played.Late shows.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		f()
	}()
	<-done
}

func (gpuTimer) Now() time.Time { return time.Now() }

func (gpuTimer) SleepUntil(t time.Time) {
	var now unix.Timespec
	left := time.Until(t) - spin
	if left > 0 && unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		at := unix.NsecToTimespec(now.Nano() + int64(left))
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) == unix.EINTR {
		} // an absolute time needs no sum of what is left
	}
	for time.Now().Before(t) {
	}
}
