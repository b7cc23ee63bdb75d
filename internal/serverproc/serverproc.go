// Package serverproc builds the objcached binary and runs it as a child
// process, for the suites that see the server only from outside.
package serverproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Build builds the server into dir and returns its path. With race it carries
// the race detector, which needs cgo; otherwise it is built without cgo, as
// users get it. OBJCACHED_BIN in the environment names a binary to test in its
// place.
func Build(dir string, race bool) (string, error) {
	if bin := os.Getenv("OBJCACHED_BIN"); bin != "" {
		return bin, nil
	}
	bin := filepath.Join(dir, "objcached")
	args := []string{"build", "-o", bin}
	cgo := "CGO_ENABLED=0"
	if race {
		args = append(args, "-race", "-tags", "pebblegozstd") // as `make test` builds, which it shares
		cgo = "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", append(args, "github.com/objcached/objcached/cmd/objcached")...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// Config says how to start a server.
type Config struct {
	Bin string // from Build
	// Args follow `serve --listen 127.0.0.1:0 --admin-listen "" --data Data`.
	Args                 []string
	Data                 string
	AccessKey, SecretKey string // the root pair; empty: the server makes one
	Env                  []string
	// LogFile takes everything the server prints; it is appended to.
	LogFile string
	// StartTimeout bounds the wait for `listening on`; default one minute.
	StartTimeout time.Duration
}

// Proc is a running server. Its methods may be called from several goroutines.
type Proc struct {
	URL     string        // as printed: http://127.0.0.1:port
	PID     int           // of the child
	Startup time.Duration // from exec to the line that says it listens

	logFile string
	done    chan struct{} // closed when the process has been waited for
	err     error         // of Wait; read after done
}

// ErrDied says that the server ended before it listened.
var ErrDied = errors.New("server ended before it listened")

var listening = regexp.MustCompile(`listening on (https?://[^\s"]+)`)

// Start starts a server and waits until it listens. The child is killed if
// this process dies.
func Start(c Config) (*Proc, error) {
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--data", c.Data}, c.Args...)
	cmd := exec.Command(c.Bin, args...)
	cmd.Env = append(os.Environ(), c.Env...)
	if c.AccessKey != "" {
		cmd.Env = append(cmd.Env, "OBJCACHED_ACCESS_KEY="+c.AccessKey, "OBJCACHED_SECRET_KEY="+c.SecretKey)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		_ = log.Close()
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	began := time.Now()
	err = cmd.Start()
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		_ = log.Close()
		return nil, err
	}
	p := &Proc{PID: cmd.Process.Pid, logFile: c.LogFile, done: make(chan struct{})}
	found := make(chan string, 1)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		copyLines(log, out, found)
	}()
	go func() {
		p.err = cmd.Wait()
		<-copied
		_ = log.Close()
		close(p.done)
	}()
	timeout := c.StartTimeout
	if timeout <= 0 {
		timeout = time.Minute
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case p.URL = <-found:
		p.Startup = time.Since(began)
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%w: %v\n%s", ErrDied, p.err, p.Tail())
	case <-timer.C:
		p.Kill()
		return nil, fmt.Errorf("server did not say that it listens within %v\n%s", timeout, p.Tail())
	}
}

// copyLines copies what the server prints to log and sends the first address
// that it says it listens on.
func copyLines(log io.Writer, out io.ReadCloser, found chan<- string) {
	defer out.Close()
	r := bufio.NewReaderSize(out, 64<<10)
	sent := false
	for {
		line, err := r.ReadString('\n')
		_, _ = io.WriteString(log, line) // a full disk must not stop the server
		if m := listening.FindStringSubmatch(line); m != nil && !sent {
			sent = true
			found <- m[1]
		}
		if err != nil {
			return
		}
	}
}

// Addr is host:port.
func (p *Proc) Addr() string {
	_, addr, _ := strings.Cut(p.URL, "://")
	return strings.TrimSuffix(addr, "/")
}

// Signal sends a signal to the server.
func (p *Proc) Signal(s syscall.Signal) error { return syscall.Kill(p.PID, s) }

// Kill ends the server with SIGKILL and waits for it to be gone.
func (p *Proc) Kill() {
	select {
	case <-p.done: // gone already, and its id may be another's
		return
	default:
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Done is closed when the server has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Stop sends SIGTERM and waits for the server to end. It returns an error
// unless the server ended by itself with exit code 0 within the timeout.
func (p *Proc) Stop(timeout time.Duration) error {
	select {
	case <-p.done:
		return fmt.Errorf("server ended before it was told to: %v\n%s", p.err, p.Tail())
	default:
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.Wait(timeout)
}

// Wait waits for the server to end. It returns an error unless the server ends
// by itself with exit code 0 within the timeout; then it is killed.
func (p *Proc) Wait(timeout time.Duration) error {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.Kill()
		return fmt.Errorf("server did not end within %v\n%s", timeout, p.Tail())
	}
	if p.err != nil {
		return fmt.Errorf("server ended with %w\n%s", p.err, p.Tail())
	}
	return nil
}

// Log returns everything the server has printed so far.
func (p *Proc) Log() string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail returns the last lines the server printed.
func (p *Proc) Tail() string {
	s := p.Log()
	if len(s) > 4000 {
		s = "…" + s[len(s)-4000:]
	}
	return s
}
