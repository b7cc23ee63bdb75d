package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme runs the README's program as it stands there, against a server on
// a port of our own, and compares what it prints with what the page says.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(page), "```go\n")
	program, rest, ok2 := strings.Cut(program, "```\n")
	_, said, ok3 := strings.Cut(rest, "It prints `")
	said, _, ok4 := strings.Cut(said, "`")
	if !ok || !ok2 || !ok3 || !ok4 {
		t.Fatal("README.md lacks the program or what it prints")
	}
	p := start(t, filepath.Join(t.TempDir(), "data"), "--capacity", "256MiB")
	if !strings.Contains(program, `"127.0.0.1:9000"`) {
		t.Fatal("the program does not name the default address")
	}
	program = strings.ReplaceAll(program, "127.0.0.1:9000", p.Addr())
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt would change the program: %s %v", out, err)
	}
	cmd := exec.Command("go", "run", file)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "OBJCACHED_ACCESS_KEY="+rootKey, "OBJCACHED_SECRET_KEY="+rootSecret)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != said {
		t.Errorf("the program prints %q, the README says %q", got, said)
	}
	stop(t, p)
}
