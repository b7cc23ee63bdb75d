package bwsched_test

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/sim"
)

// lines returns the fields of a file's lines, less comments and empty ones.
func lines(t testing.TB, name string) [][]string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, strings.Fields(l))
		}
	}
	return out
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func policy(t testing.TB, name string, margin float64) bwsched.Policy {
	t.Helper()
	p, err := bwsched.ByName(name, margin)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// requests is a workload as the policies see it when it arrives.
func requests(w sim.Workload) []bwsched.Request {
	var reqs []bwsched.Request
	for _, r := range w.Requests {
		reqs = append(reqs, bwsched.Request{LayerBytes: r.LayerBytes, Compute: r.Compute, Layers: r.Layers, Class: r.Class})
	}
	return reqs
}

func workload(t testing.TB, name string) sim.Workload {
	t.Helper()
	for _, w := range sim.Workloads() {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("no workload %s", name)
	return sim.Workload{}
}

// TestTableA9 holds the five policies to the paper's rates: 14 requests, 70 of
// them, to the last digit printed and one more for its rounding.
func TestTableA9(t *testing.T) {
	names := []string{"equal", "kv-prop", "bw-prop", "stall-opt", "cal-stall-opt"}
	var w sim.Workload
	seen, row := 0, 0
	for _, f := range lines(t, "testdata/table-a9.txt") {
		if f[0] == "workload" {
			w, row = workload(t, f[1]), 0
			continue
		}
		if w.Requests[row].Name != f[0] {
			t.Fatalf("workload %s has %s where the table has %s", w.Name, w.Requests[row].Name, f[0])
		}
		for i, name := range names {
			rates := make([]float64, len(w.Requests))
			policy(t, name, 5*sim.Gbps).Rates(w.Capacity, requests(w), rates)
			got, want := rates[row]/sim.Gbps, number(t, f[i+1])
			if math.Abs(got-want) > 0.02 {
				t.Errorf("%s %s %s: %.3f Gbps, the paper has %.2f", w.Name, f[0], name, got, want)
			}
			seen++
		}
		row++
	}
	if seen != 70 {
		t.Errorf("compared %d values, want 70", seen)
	}
}

// TestScenarios plays testdata/scenarios.txt.
func TestScenarios(t *testing.T) {
	type scenario struct {
		name     string
		capacity float64
		policy   bwsched.Policy
		reqs     []bwsched.Request
		want     []float64
	}
	var all []*scenario
	for _, f := range lines(t, "testdata/scenarios.txt") {
		if f[0] == "scenario" {
			all = append(all, &scenario{name: strings.Join(f[1:], " ")})
			continue
		}
		s := all[len(all)-1]
		switch f[0] {
		case "capacity":
			s.capacity = number(t, f[1])
		case "policy":
			margin := 0.0
			if len(f) > 2 {
				margin = number(t, f[2])
			}
			s.policy = policy(t, f[1], margin)
		default:
			c, err := time.ParseDuration(f[1])
			if err != nil {
				t.Fatal(err)
			}
			s.reqs = append(s.reqs, bwsched.Request{LayerBytes: number(t, f[0]), Compute: c, Layers: int(number(t, f[2])), Started: f[3] == "started"})
			s.want = append(s.want, number(t, f[5]))
		}
	}
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			got := make([]float64, len(s.reqs))
			s.policy.Rates(s.capacity, s.reqs, got)
			for i := range got {
				if math.Abs(got[i]-s.want[i]) > 1e-9 {
					t.Fatalf("%v, want %v", got, s.want)
				}
			}
		})
	}
	if len(all) < 15 {
		t.Errorf("%d scenarios", len(all))
	}
}
