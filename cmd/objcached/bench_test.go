package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/objcached/objcached/bench"
	"github.com/objcached/objcached/client/clienttest"
)

// The benchmarks start this program for their servers: under test that is the
// test binary.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		cmd := serveCommand()
		cmd.SetArgs(os.Args[2:])
		err := cmd.ExecuteContext(ctx)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "bench" && os.Args[2] == "bare-server" {
		cmd := newBenchCmd()
		cmd.SetArgs(os.Args[2:])
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// A benchmark without --endpoint starts a store of its own in the same way.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		os.Exit(0)
	}
}

// TestBenchPathsCommand has stores of its own, one after the other.
func TestBenchPathsCommand(t *testing.T) {
	dir := t.TempDir()
	args := []string{"paths", "--chunks", "3", "--layers", "2", "--slice", "5000", "--rounds", "1", "--sweep", "4KiB,1MiB", "--data", dir,
		"--serve-flag=--capacity=64MiB"}
	out, err := runBench(t, append(args, "--json", "-")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r bench.PathsReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Things) != 10 || len(r.Sweep) != 2 || r.Sweep[0].AggBytes != 4096 {
		t.Errorf("%v: %s", err, out)
	}
	for _, row := range r.Things {
		if strings.HasPrefix(row.Key, "s3") && row.Client <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if strings.Contains(out, dir) {
		t.Errorf("the report shows %s", dir)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	for _, bad := range [][]string{{"--transport", "pigeon"}, {"--sweep", "x"}, {"--sweep", "0"}, {"--chunks", "0"}} {
		if _, err := runBench(t, append(args, bad...)...); err == nil {
			t.Errorf("%v ran", bad)
		}
	}
	for _, bad := range []string{"x", "n14-s1m,"} {
		if _, err := runBench(t, "layerwise", "--shapes", bad); err == nil {
			t.Errorf("--shapes %q ran", bad)
		}
	}
}

func runBench(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newBenchCmd()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBenchLayerwiseCommand(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	args := []string{
		"layerwise", "--endpoint", s.URL, "--access-key", clienttest.AccessKey, "--secret-key", clienttest.SecretKey,
		"--bucket", clienttest.Bucket, "--chunks", "3", "--layers", "4", "--slice", "5000", "--rounds", "2", "--data", dir,
	}
	out, err := runBench(t, append(args, "--json", file)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "3 chunks of 4 layers of 4.883 KiB") || strings.Count(out, "minio-go") != 2 {
		t.Error(out)
	}
	var r bench.LayerwiseReport
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil || len(r.Things) != 6 || !r.Native {
		t.Errorf("%+v, %v", r, err)
	}
	if want := "bench layerwise --bucket chunks --chunks 3 --endpoint URL --layers 4 --rounds 2 --slice 5000"; r.Command != want {
		t.Errorf("command %q, want %q", r.Command, want)
	}
	for _, secret := range []string{dir, clienttest.SecretKey, clienttest.AccessKey, s.URL} {
		if bytes.Contains(data, []byte(secret)) || strings.Contains(out, secret) {
			t.Errorf("the report shows %s", secret)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	if out, err = runBench(t, append(args, "--json", "-")...); err != nil || json.Unmarshal([]byte(out), &r) != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err = runBench(t, append(args, "--rounds", "0")...); err == nil {
		t.Error("no rounds, no error")
	}
}

func TestBenchReplayCommand(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	trace := filepath.Join(t.TempDir(), "t.jsonl")
	if err := os.WriteFile(trace, []byte(`{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 5, "input_length": 1500, "output_length": 1, "hash_ids": [1, 2, 3]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"replay", "--endpoint", s.URL, "--access-key", clienttest.AccessKey, "--secret-key", clienttest.SecretKey,
		"--bucket", clienttest.Bucket, "--trace", trace, "--concurrency", "1", "--verify", "full", "--speed", "1000",
	}
	out, err := runBench(t, args...)
	if err != nil || !strings.Contains(out, "40.0 % of blocks (2 of 5)") || !strings.Contains(out, "scaled down 2048 times") {
		t.Errorf("%v\n%s", err, out)
	}
	s.Plain, s.PlainStatus, s.PlainCode = true, 403, "AccessDenied"
	if out, err = runBench(t, append(args, "--json", "-")...); err == nil || !strings.Contains(out, "AccessDenied") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, bad := range [][]string{{"replay"}, append(args, "--trace", trace+"x"), append(args, "--limit", "-1"), append(args, "--verify", "x")} {
		if _, err := runBench(t, bad...); err == nil {
			t.Errorf("%v ran", bad)
		}
	}
}

func TestBareServerCommand(t *testing.T) {
	if _, err := runBench(t, "bare-server", "--file", filepath.Join(t.TempDir(), "none"), "--chunks", "1", "--layers", "1"); err == nil {
		t.Error("a file that is not there was served")
	}
}

func TestBenchTTFTCommand(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	out := t.TempDir()
	args := []string{
		"ttft", "--endpoint", s.URL, "--access-key", clienttest.AccessKey, "--secret-key", clienttest.SecretKey, "--bucket", clienttest.Bucket,
		"--contexts", "4K", "--hits", "87.5", "--g", "16", "--transport", "stream", "--scale", "60", "--rounds", "1", "--memory", "1GiB",
	}
	text, err := runBench(t, append(args, "--out", out)...)
	if err != nil || !strings.Contains(text, "60 times fewer bytes") || !strings.Contains(text, "Rows: 1,") {
		t.Fatalf("%v\n%s", err, text)
	}
	var r bench.TTFTReport
	data, err := os.ReadFile(filepath.Join(out, "ttft.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil || len(r.Rows) != 1 || r.Rows[0].Transport != "stream" || r.Rows[0].Chunks != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if want := "bench ttft --bucket chunks --contexts 4K --endpoint URL --g 16 --hits 87.5 --memory 1GiB --rounds 1 --scale 60 --transport stream"; r.Command != want {
		t.Errorf("command %q, want %q", r.Command, want)
	}
	if picture, err := os.ReadFile(filepath.Join(out, "ttft.png")); err != nil || !bytes.HasPrefix(picture, []byte("\x89PNG")) {
		t.Error(err)
	}
	if s.Keys() != 0 {
		t.Errorf("%d chunks left", s.Keys())
	}
	for _, bad := range [][]string{{"--contexts", "4Q"}, {"--contexts", "0"}, {"--contexts", "5K"}, {"--hits", "1"}, {"--transport", "x"}, {"--rounds", "0"}, {"--cap-gbps", "1"}} {
		if _, err := runBench(t, append(args, bad...)...); err == nil {
			t.Errorf("%v ran", bad)
		}
	}
}

// TestBenchTTFTCap plays under a cap, against a store that the command starts:
// 0.5 Gbps is a quarter of what the prefix needs, and the rate says so.
func TestBenchTTFTCap(t *testing.T) {
	text, err := runBench(t, "ttft", "--data", t.TempDir(), "--contexts", "4K", "--hits", "87.5", "--g", "16", "--scale", "32",
		"--transport", "shm", "--rounds", "1", "--memory", "1GiB", "--cap-gbps", "0.5", "--json", "-")
	if err != nil {
		t.Fatal(err)
	}
	var r bench.TTFTReport
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Rows) != 1 || r.LinkBytesPerSecond != 62.5e6 {
		t.Fatalf("%s, %v", text, err)
	}
	for _, row := range r.Rows {
		if row.Fed || row.Bound != "Eq. 3 within 10 %" || row.Chunkwise <= row.Local {
			t.Errorf("%+v", row)
		}
	}
}

// TestBenchTenantsCommand runs a workload against stores that it starts itself.
func TestBenchTenantsCommand(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	text, err := runBench(t, "tenants", "--data", dir, "--workloads", "A", "--policies", "ttft-opt", "--rounds", "1", "--scale", "16", "--speed", "8", "--out", out)
	if err != nil || !strings.Contains(text, "Workload A, 4 requests under 5 Gbps") {
		t.Fatalf("%v\n%s", err, text)
	}
	var r bench.TenantsReport
	data, err := os.ReadFile(filepath.Join(out, "tenants.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil || len(r.Workloads) != 1 || len(r.Workloads[0].Policies) != 1 || r.Workloads[0].Policies[0].Added <= 0 {
		t.Errorf("%s, %v", data, err)
	}
	if bytes.Contains(data, []byte(dir)) {
		t.Error("the report shows a directory")
	}
	if picture, err := os.ReadFile(filepath.Join(out, "tenants.png")); err != nil || !bytes.HasPrefix(picture, []byte("\x89PNG")) {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	for _, bad := range [][]string{{"--scale", "3"}, {"--workloads", "D"}, {"--policies", "best"}, {"--endpoint", "http://127.0.0.1:1"}} {
		if _, err := runBench(t, append([]string{"tenants", "--data", t.TempDir()}, bad...)...); err == nil {
			t.Errorf("%v ran", bad)
		}
	}
	want := "--link-rate 625MB/s --policy ttft-opt --margin 0 --epoch 50ms"
	if got := strings.Join(linkFlags(6.25e8, "ttft-opt", 0, 50*time.Millisecond), " "); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
