package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a server started for a benchmark.
type Process struct {
	URL string
	cmd *exec.Cmd
	in  io.Closer
	out chan error // the end of reading its output
}

const listening = "listening on "

// StartProcess runs a command that prints "listening on URL" when it is ready
// and ends at SIGTERM. What it writes to stderr goes to log. Its standard input
// ends when this process does, by which a bare server knows to end too.
func StartProcess(ctx context.Context, log io.Writer, env []string, name string, args ...string) (*Process, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = log
	// A Ctrl-C at the terminal is for the benchmark, which then ends the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, in: in, out: make(chan error, 1)}
	ready := make(chan string, 1)
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			if _, url, ok := strings.Cut(s.Text(), listening); ok {
				select {
				case ready <- strings.TrimSpace(url):
				default: // a second address
				}
			}
		}
		p.out <- s.Err()
		close(p.out)
	}()
	select {
	case p.URL = <-ready:
		return p, nil
	case <-p.out:
		err = errors.New("it ended before it was ready")
	case <-time.After(time.Minute):
		err = errors.New("it was not ready after a minute")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(fmt.Errorf("start %s: %w", strings.Join(args, " "), err), p.Stop())
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends it by SIGTERM, and by SIGKILL if it has not ended after 30 s.
func (p *Process) Stop() error {
	_ = p.in.Close()                          // it may have ended already
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // likewise
	kill := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.out { // Wait must not close the pipe before it is read
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	return err
}
