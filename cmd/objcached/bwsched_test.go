package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcached/objcached/bwsched"
)

// workloadA is the paper's, as a user writes it.
const workloadA = `[
  {"name": "16K,50%",   "layer_bytes": 33554432,  "layer_compute_us": 29871.5625,  "layers": 32},
  {"name": "16K,87.5%", "layer_bytes": 58720256,  "layer_compute_us": 8805,        "layers": 32},
  {"name": "64K,50%",   "layer_bytes": 134217728, "layer_compute_us": 271024.6875, "layers": 32},
  {"name": "64K,87.5%", "layer_bytes": 234881024, "layer_compute_us": 75746.875,   "layers": 32}
]`

func runBwsched(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	root := rootCommand()
	var out strings.Builder
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"bwsched"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestBwsched compares what is printed with Table A9 and with Eq. 3 and 4 by
// other means.
func TestBwsched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(file, []byte(workloadA), 0o600); err != nil {
		t.Fatal(err)
	}
	var in []struct {
		Name   string
		Bytes  float64 `json:"layer_bytes"`
		Window float64 `json:"layer_compute_us"`
		Layers float64
	}
	if err := json.Unmarshal([]byte(workloadA), &in); err != nil {
		t.Fatal(err)
	}
	rates := map[string][]float64{
		"equal": {20, 20, 20, 20}, "kv-prop": {5.82, 10.18, 23.27, 40.73}, "bw-prop": {7.89, 46.85, 3.48, 21.78},
		"stall-opt": {8.99, 42.25, 3.96, 24.81}, "cal-stall-opt": {13.99, 27.25, 8.96, 29.81}, "hull-opt": nil, "ttft-opt": nil,
	}
	total := map[string]float64{}
	for _, name := range bwsched.Names() {
		out, err := runBwsched(t, "", "--cap-gbps", "80", "--policy", name, "--requests", file, "--json")
		if err != nil {
			t.Fatal(err)
		}
		fromStdin, err := runBwsched(t, workloadA, "--cap-gbps", "80", "--policy", name, "--requests", "-", "--json")
		if err != nil || fromStdin != out {
			t.Errorf("%s: standard input gives something else, %v:\n%s", name, err, fromStdin)
		}
		var got []map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != len(in) {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		sum := 0.0
		for i, g := range got {
			if len(g) != 5 || g["name"] != in[i].Name {
				t.Errorf("%s: entry %d is %v", name, i, g)
			}
			rate, target := g["rate_gbps"].(float64), g["target_gbps"].(float64)
			sum += rate
			total[name] += g["ttft_us"].(float64)
			if want := rates[name]; want != nil && math.Abs(rate-want[i]) > 0.02 {
				t.Errorf("%s: %s at %v Gbps, want %v", name, in[i].Name, rate, want[i])
			}
			star := in[i].Bytes * 8 / 1e3 / in[i].Window
			if name == "cal-stall-opt" {
				star += 5
			}
			if math.Abs(target-star) > 1e-6 {
				t.Errorf("%s: target %v, want %v", name, target, star)
			}
			if name == "ttft-opt" {
				continue
			}
			x := in[i].Bytes * 8 / 1e3 / rate
			stall, ttft := max(0, x-in[i].Window), x+(in[i].Layers-1)*max(x, in[i].Window)+in[i].Window
			if math.Abs(g["stall_us"].(float64)-stall) > 0.01 || math.Abs(g["ttft_us"].(float64)-ttft) > 0.1 {
				t.Errorf("%s: %v, want stall %v and TTFT %v", name, g, stall, ttft)
			}
		}
		if sum > 80.001 {
			t.Errorf("%s: %v Gbps in all", name, sum)
		}
	}
	for name, sum := range total {
		if sum < total["ttft-opt"] {
			t.Errorf("%s: %.0f us in all, ttft-opt %.0f", name, sum, total["ttft-opt"])
		}
	}
	if compute := 32 * (29871.5625 + 8805 + 271024.6875 + 75746.875); math.Abs(total["ttft-opt"]-compute-204500) > 1000 {
		t.Errorf("ttft-opt adds %.0f us, want 204500", total["ttft-opt"]-compute)
	}
	out, err := runBwsched(t, "", "--cap-gbps", "80", "--policy", "stall-opt", "--requests", file)
	if err != nil || !strings.Contains(out, "42.2") || !strings.Contains(out, "16K,87.5%\n") || strings.Count(out, "\n") != 6 {
		t.Errorf("the table is, %v\n%s", err, out)
	}
}

func TestBwschedRefuses(t *testing.T) {
	entry := func(fields string) string {
		return `[{"name": "a", "layer_bytes": 1, "layer_compute_us": 1, "layers": 1}, {` + fields + `}]`
	}
	for _, c := range []struct {
		in, want string
		args     []string
	}{
		{"{}", "standard input: not a JSON array", nil},
		{"[] []", "not a JSON array", nil},
		{"[1]", "entry 0: not a JSON object", nil},
		{"[null]", "entry 0: not a JSON object", nil},
		{entry(`"name": "b"`), "entry 1: layer_bytes is missing", nil},
		{entry(`"name": "", "layer_bytes": 1, "layer_compute_us": 1, "layers": 1`), "entry 1: name must be", nil},
		{entry(`"name": "b", "layer_bytes": 1, "layer_compute_us": 1, "layers": 1, "Layers": 2`), `entry 1 ("b"): unknown field "Layers"`, nil},
		{entry(`"name": "b", "layer_bytes": 0, "layer_compute_us": 1, "layers": 1`), `entry 1 ("b"): layer_bytes must be a number from 1 to 1e+15, not 0`, nil},
		{entry(`"name": "b", "layer_bytes": "1", "layer_compute_us": 1, "layers": 1`), `layer_bytes must be a number`, nil},
		{entry(`"name": "b", "layer_bytes": 1, "layer_compute_us": null, "layers": 1`), `layer_compute_us must be a number`, nil},
		{entry(`"name": "b", "layer_bytes": 1, "layer_compute_us": 0, "layers": 1`), `layer_compute_us must be a number`, nil},
		{entry(`"name": "b", "layer_bytes": 1, "layer_compute_us": 1, "layers": 1.5`), `layers must be a whole number, not 1.5`, nil},
		{entry(`"name": "b", "layer_bytes": 1, "layer_compute_us": 1, "layers": 2000`), `layers must be a number from 1 to 1024`, nil},
		{"[]", "unknown policy", []string{"--policy", "fastest"}},
		{"[]", "margin", []string{"--margin-gbps", "-1"}},
		{"[]", "--cap-gbps 0 must", []string{"--cap-gbps", "0"}},
		{"[]", "--cap-gbps NaN must", []string{"--cap-gbps", "NaN"}},
		{"[]", "no such file", []string{"--requests", "/no/such/file"}},
		{"[" + strings.Repeat("1,", maxWhatIf) + "1]", "the limit is", nil},
		{strings.Repeat(" ", maxWhatIfInput) + "[]", "more than", nil},
	} {
		_, err := runBwsched(t, c.in, append([]string{"--cap-gbps", "1", "--requests", "-"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s %v: %v, want %q", c.in, c.args, err, c.want)
		}
	}
	for _, args := range [][]string{{"--cap-gbps", "1"}, {"--requests", "-"}} {
		if _, err := runBwsched(t, "[]", args...); err == nil || !strings.Contains(err.Error(), "required") {
			t.Errorf("%v: %v", args, err)
		}
	}
	many := make([]string, maxWhatIfReplans+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name": "%d", "layer_bytes": 1, "layer_compute_us": 1, "layers": 1}`, i)
	}
	in := "[" + strings.Join(many, ",") + "]"
	if _, err := runBwsched(t, in, "--cap-gbps", "1", "--requests", "-"); err == nil || !strings.Contains(err.Error(), "ttft-opt") {
		t.Errorf("%v", err)
	}
	if _, err := runBwsched(t, in, "--cap-gbps", "1", "--requests", "-", "--policy", "equal"); err != nil {
		t.Error(err)
	}
}

// TestBwschedTeaches: the example of the help works as it stands.
func TestBwschedTeaches(t *testing.T) {
	help, err := runBwsched(t, "", "--help")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(help, "<<'END'\n")
	example, _, _ = strings.Cut(example, "END\n")
	out, err := runBwsched(t, example, "--cap-gbps", "50", "--policy", "cal-stall-opt", "--requests", "-")
	if err != nil || !strings.Contains(out, "archive") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := runBwsched(t, "[]", "--cap-gbps", "50", "--requests", "-", "--json"); err != nil || out != "[]\n" {
		t.Errorf("of nothing: %q, %v", out, err)
	}
}
