package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcached/objcached/bench"
	"github.com/objcached/objcached/client/clienttest"
)

func runCalibrate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := calibrateCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestCalibrateCommand calibrates a store that the command starts, and one that
// runs, whose link it cannot hold.
func TestCalibrateCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "profile.json")
	args := []string{"--out", file, "--data", dir, "--rounds", "1", "--max-payload", "4MiB", "--contexts", "4K", "--hits", "12.5", "--memory", "1GiB"}
	text, err := runCalibrate(t, append(args, "--transport", "shm")...)
	if err != nil || !strings.Contains(text, "Mode threshold") || !strings.Contains(text, "4K,12.5%") || !strings.Contains(text, "Written to") {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := readProfile(file)
	if err != nil || len(p.Windows) < 8 || strings.Contains(p.Note, dir) {
		t.Errorf("%+v, %v", p, err)
	}

	s := clienttest.New()
	defer s.Close()
	text, err = runCalibrate(t, append(args, "--endpoint", s.URL, "--access-key", clienttest.AccessKey, "--secret-key", clienttest.SecretKey,
		"--bucket", clienttest.Bucket, "--json", "-")...)
	var r bench.CalibrateReport
	if err != nil || json.Unmarshal([]byte(text), &r) != nil || len(r.Sizes) != 2 || r.Margin != nil || r.Curves != nil || r.Note == "" {
		t.Errorf("%v\n%s", err, text)
	}
	if p, err := readProfile(file); err != nil || p.Margin != nil || p.Curves != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if s.Keys() != 0 {
		t.Errorf("%d chunks left", s.Keys())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	for _, bad := range [][]string{{"--max-payload", "1"}, {"--contexts", "x"}, {"--hits", "x"}, {"--transport", "x"}} {
		if _, err := runCalibrate(t, append(args, bad...)...); err == nil {
			t.Errorf("%v ran", bad)
		}
	}
	if _, err := runCalibrate(t, "positional"); err == nil {
		t.Error("an argument was taken")
	}
}

// TestWriteProfile: a profile that cannot be written leaves the old one.
func TestWriteProfile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := (&bench.CalibrateReport{}).Profile()
	p.Version = 7
	if err := writeProfile(name, p); err == nil {
		t.Error("a bad profile was written")
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := readProfile(name); err == nil || !strings.Contains(err.Error(), "p.json") {
		t.Error(err)
	}
	if files, err := os.ReadDir(filepath.Dir(name)); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	if err := writeProfile(filepath.Join(t.TempDir(), "none", "p"), p); err == nil {
		t.Error("no directory, no error")
	}
	if _, err := readProfile(name + "x"); err == nil {
		t.Error("no file, no error")
	}
}

// TestServeProfile: a profile sets what no flag does.
func TestServeProfile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(name, []byte(`{"version": 1, "mode_threshold_bytes": 4096, "margin_bytes_per_s": 1e6,
		"compute_windows": [{"class": "a", "layers": 2, "layer_bytes": 10, "layer_compute_us": 5}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args      []string
		threshold size
		margin    float64
	}{
		{nil, 4096, 1e6},
		{[]string{"--mode-threshold", "7"}, 7, 1e6},
		{[]string{"--margin", "2MB/s"}, 4096, 2e6},
	} {
		var f serveFlags
		cmd := f.command()
		if err := cmd.ParseFlags(append([]string{"--data", "x", "--profile", name}, c.args...)); err != nil {
			t.Fatal(err)
		}
		if err := f.useProfile(cmd); err != nil || f.threshold != c.threshold || float64(f.Margin) != c.margin || f.Calibration == nil {
			t.Errorf("%v: threshold %v, margin %v, %v", c.args, f.threshold, f.Margin, err)
		}
	}
	cmd := serveCommand()
	cmd.SetArgs([]string{"--data", t.TempDir(), "--profile", name + "x"})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--profile") {
		t.Error(err)
	}
}
