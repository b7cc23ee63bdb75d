package bench

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestCPU: what a process uses shows, whoever asks, and what has ended stays.
func TestCPU(t *testing.T) {
	if cpuTime(0) != 0 || cpuTime(-7) != 0 {
		t.Error("nobody has used time")
	}
	m := startCPU(0)
	for cpuTime(os.Getpid())-m.client < 30*time.Millisecond {
	}
	if own, other := m.stop(); own < 30*time.Millisecond || other != 0 {
		t.Errorf("%v and %v", own, other)
	}
	if m := startCPU(os.Getpid()); m.pid != 0 {
		t.Error("a server inside of the process is counted twice")
	}
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	m = startCPU(child.Process.Pid)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, other := m.stop(); other > 5*time.Millisecond {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a child that spins uses no time")
		}
	}
	if secondsPerGB(time.Second, 2e9) != 0.5 || secondsPerGB(time.Second, 0) != 0 {
		t.Error("secondsPerGB")
	}
}
