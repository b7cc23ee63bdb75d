package serverproc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a stand-in for the server.
func script(t *testing.T, body string) Config {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "server")
	if err := os.WriteFile(bin, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return Config{Bin: bin, Data: dir, LogFile: filepath.Join(dir, "log"), AccessKey: "root", SecretKey: "hush"}
}

func TestStartStop(t *testing.T) {
	p, err := Start(script(t, `echo starting $1 $2 $3 >&2
trap 'echo bye; exit 0' TERM
echo "listening on http://127.0.0.1:4711" $OBJCACHED_ACCESS_KEY
while :; do sleep 0.05; done
`))
	if err != nil {
		t.Fatal(err)
	}
	if p.URL != "http://127.0.0.1:4711" || p.Addr() != "127.0.0.1:4711" {
		t.Errorf("URL is %q, Addr %q", p.URL, p.Addr())
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	if want := "starting serve --listen 127.0.0.1:0\nlistening on http://127.0.0.1:4711 root\nbye\n"; p.Log() != want {
		t.Errorf("log is %q, want %q", p.Log(), want)
	}
	if p.Stop(time.Minute) == nil {
		t.Error("stopping a server that is gone succeeded")
	}
	p.Kill() // must not signal an id that may be another's by now
}

func TestStopReportsExitCode(t *testing.T) {
	p, err := Start(script(t, "trap 'exit 3' TERM\necho listening on http://x:1\nwhile :; do sleep 0.05; done\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(time.Minute); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Stop returned %v, want exit status 3", err)
	}
}

func TestStartReportsDeath(t *testing.T) {
	_, err := Start(script(t, "echo no such directory; exit 1\n"))
	if !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "no such directory") {
		t.Errorf("Start returned %v", err)
	}
}

func TestKill(t *testing.T) {
	p, err := Start(script(t, "trap '' TERM\necho listening on http://x:1\nwhile :; do sleep 0.05; done\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	select {
	case <-p.Done():
	default:
		t.Error("Kill returned before the process was gone")
	}
}
