package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/objcached/objcached/internal/server"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/local"
)

// run executes a command line and returns what it printed.
func run(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out bytes.Buffer
	var errs lockedBuffer
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"verify", "--help"}, {"doctor", "--help"}} {
		out, _, err := run(t, t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		if len(args) == 2 && !strings.Contains(out, "Examples:") {
			t.Errorf("%v has no example:\n%s", args, out)
		}
	}
	out, _, err := run(t, t.Context(), "version")
	if err != nil || !strings.HasPrefix(out, "objcached ") {
		t.Errorf("version: %q %v", out, err)
	}
}

// lockedBuffer takes lines from the logger and notices at the same time, as the
// real one does.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *lockedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *lockedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func TestServeRefusesBadFlags(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	for _, args := range [][]string{
		{"serve"},
		{"serve", "--data", dir, "--verify", "sometimes"},
		{"serve", "--data", dir, "--log-format", "xml"},
		{"serve", "--data", dir, "--log-level", "loud"},
		{"serve", "--data", dir, "--tls-cert", "x"},
		{"serve", "--data", dir, "--capacity", "lots"},
		{"serve", "--data", dir, "--link-rate", "10"},
		{"serve", "--data", dir, "--margin", "fast"},
		{"serve", "--data", dir, "--policy", "fifo"},
		{"serve", "--data", dir, "--epoch", "0s"},
		{"serve", "--data", dir, "--listen", "nowhere"},
		{"serve", "extra"},
		{"verify"},
		{"verify", "--data", dir, "--admin", "http://127.0.0.1:1"},
		{"verify", "--data", empty}, // no store there
		{"verify", "--admin", "http://127.0.0.1:1"},
		{"nothing"},
	} {
		if _, _, err := run(t, t.Context(), args...); err == nil {
			t.Errorf("%v succeeds", args)
		}
	}
	if _, err := os.Stat(filepath.Join(empty, "STORE")); err == nil {
		t.Error("verify made a store")
	}
}

// TestServeAndVerify runs the commands as a user does, against one another.
func TestServeAndVerify(t *testing.T) {
	t.Setenv(envAccessKey, "ROOTKEY")
	t.Setenv(envSecretKey, "the secret of root")
	dir := t.TempDir()
	fill(t, dir)
	ctx, stop := context.WithCancel(context.Background())
	pr, pw := io.Pipe()
	root := rootCommand()
	root.SetArgs([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--capacity", "256MiB", "--volume-size", "64MiB", "--log-format", "json"})
	var log lockedBuffer
	root.SetOut(pw)
	root.SetErr(&log)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	line := make([]byte, 256)
	n, err := pr.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "listening on http://127.0.0.1:") || line[n-1] != '\n' {
		t.Fatalf("%q %v", line[:n], err)
	}
	if _, _, err := run(t, t.Context(), "verify", "--data", dir); err == nil {
		t.Error("verify opens a store in use")
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var admin string
	for l := range strings.Lines(log.String()) {
		var rec struct{ Msg, Admin string }
		if err := json.Unmarshal([]byte(l), &rec); err != nil {
			t.Fatalf("log line %q: %v", l, err)
		}
		if rec.Msg == "listening" {
			admin = rec.Admin
		}
	}
	if admin == "" {
		t.Error("the log does not name the admin address")
	}
	out, _, err := run(t, t.Context(), "verify", "--data", dir, "--json")
	var r server.VerifyReport
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || !r.Sound || r.Objects != 1 || r.Bytes != 100000 {
		t.Errorf("verify: %s %v", out, err)
	}
}

func fill(t *testing.T, dir string) {
	t.Helper()
	s, err := local.Open(t.Context(), local.Options{Dir: dir, Capacity: 256 << 20, VolumeSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateBucket(t.Context(), storage.Bucket{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("0123456789"), 10000)
	if _, err := s.Put(t.Context(), "box", "k", bytes.NewReader(body), storage.PutOptions{Size: int64(len(body)), Chain: storage.Chain{Index: -1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyFindsDamage: one flipped byte in a volume file is found, named,
// and makes the exit status 1.
func TestVerifyFindsDamage(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "volumes", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	damaged := false
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		i := bytes.Index(b, []byte("0123456789"))
		if i < 0 {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{'!'}, int64(i+70000)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		damaged = true
	}
	if !damaged {
		t.Fatal("the object's bytes are in no volume file")
	}
	out, _, err := run(t, t.Context(), "verify", "--data", dir)
	if !errors.Is(err, errFound) {
		t.Errorf("exit by %v, want status 1", err)
	}
	for _, want := range []string{"bad blocks", "BAD", "box", `"k"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	out, _, err = run(t, t.Context(), "verify", "--data", dir, "--json")
	var r server.VerifyReport
	if !errors.Is(err, errFound) || json.Unmarshal([]byte(out), &r) != nil || r.Sound || r.BadBlocks != 1 || len(r.Bad) != 1 ||
		r.Bad[0].Bucket != "box" || r.Bad[0].Key != "k" || r.Bad[0].Block != 1 {
		t.Errorf("%s %v", out, err)
	}
}
