package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The test binary is the server: it does what the variable says.
const helperEnv = "OBJCACHED_BENCH_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "good":
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "a log line")
		fmt.Println("a banner")
		fmt.Println("listening on http://127.0.0.1:1")
		<-ch
		fmt.Fprintln(os.Stderr, "bye")
	case "untidy": // ends by the signal itself
		fmt.Println("listening on http://127.0.0.1:1")
		_, _ = io.Copy(io.Discard, os.Stdin)
		select {}
	case "fails":
		fmt.Fprintln(os.Stderr, "no such directory")
		os.Exit(3)
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *safeBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

func TestProcess(t *testing.T) {
	start := func(ctx context.Context, how string) (*Process, *safeBuffer, error) {
		var log safeBuffer
		p, err := StartProcess(ctx, &log, []string{helperEnv + "=" + how}, os.Args[0], "arg")
		return p, &log, err
	}
	p, log, err := start(t.Context(), "good")
	if err != nil {
		t.Fatal(err)
	}
	if p.URL != "http://127.0.0.1:1" || RSSAnon(p.PID()) == 0 {
		t.Errorf("%+v", p)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "a log line") || !strings.Contains(log.String(), "bye") {
		t.Errorf("log %q", log.String())
	}
	if p, _, err = start(t.Context(), "untidy"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("ended by SIGTERM: %v", err)
	}
	if _, log, err = start(t.Context(), "fails"); err == nil || !strings.Contains(err.Error(), "exit status 3") || log.String() == "" {
		t.Errorf("%v, log %q", err, log.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err = start(ctx, "silent"); err == nil {
		t.Error("a server that never gets ready was taken")
	}
	if _, err := StartProcess(t.Context(), io.Discard, nil, "/nonexistent/program"); err == nil {
		t.Error("a program that is not there was started")
	}
}
