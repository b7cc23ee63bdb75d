package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that a process has used, in user and kernel
// mode and in all its threads, the ended ones too; 0 if it cannot be told.
func cpuTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	// The CPU-time clock of another process, as clock_getcpuclockid makes its id.
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// cpuMeter measures what this process and a server's use in between.
type cpuMeter struct {
	pid            int // of the server; 0: there is none, or it cannot be told apart
	client, server time.Duration
}

func startCPU(pid int) cpuMeter {
	if pid == os.Getpid() {
		pid = 0 // a server inside of this process
	}
	return cpuMeter{pid, cpuTime(os.Getpid()), cpuTime(pid)}
}

func (m cpuMeter) stop() (client, server time.Duration) {
	return cpuTime(os.Getpid()) - m.client, cpuTime(m.pid) - m.server
}

// secondsPerGB is processor time per 10^9 bytes.
func secondsPerGB(cpu time.Duration, bytes int64) float64 {
	if bytes <= 0 {
		return 0
	}
	return cpu.Seconds() / (float64(bytes) / 1e9)
}
