package profile

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/sim"
)

func ptr[T any](v T) *T { return &v }

func sample() *Profile {
	c := &bwsched.Curves{}
	c.Observe("16K,50%", 1e9, 0.07)
	c.Observe("16K,50%", 2e9, 0.03)
	return &Profile{
		Version: 1, Note: "a test", ModeThreshold: ptr(int64(512 << 20)), Margin: ptr(6.25e8), Curves: c,
		Windows: []Window{{"16K,50%", 32, 32 << 20, 29871.5}, {"64K,50%", 32, 128 << 20, 271024.7}, {"64K,50%, tall", 80, 128 << 20, 5}},
	}
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Note != "a test" || *got.ModeThreshold != 512<<20 || *got.Margin != 6.25e8 || !reflect.DeepEqual(got.Windows, sample().Windows) {
		t.Errorf("%+v", got)
	}
	if points := got.Curves.Class("16K,50%").Points(); len(points) != 2 || points[1].Rate != 2e9 || points[1].Added != 0.03 {
		t.Errorf("%+v", points)
	}
	// What says nothing is nil, and stays so.
	b.Reset()
	if err := (&Profile{Version: 1}).Write(&b); err != nil || b.String() != "{\n  \"version\": 1\n}\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if got, err := Read(&b); err != nil || got.ModeThreshold != nil || got.Margin != nil || got.Curves != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                               "unexpected end",
		`[]`:                             "cannot unmarshal",
		`{}`:                             "version is 0",
		`{"version": 2, "later": true}`:  "version is 2, this program reads 1",
		`{"version": 1, "margin": 3}`:    "unknown field \"margin\"",
		`{"version": 1} {}`:              "after top-level value",
		`{"version": 1, "version": "1"}`: "cannot unmarshal",
		`{"version": 1, "mode_threshold_bytes": -1}`:                                                                              "mode_threshold_bytes is -1",
		`{"version": 1, "mode_threshold_bytes": 1.5}`:                                                                             "mode_threshold_bytes",
		`{"version": 1, "margin_bytes_per_s": -1}`:                                                                                "margin_bytes_per_s is -1",
		`{"version": 1, "compute_windows": [{"class": "", "layers": 1, "layer_bytes": 1, "layer_compute_us": 1}]}`:                "compute_windows[0]: class",
		`{"version": 1, "compute_windows": [{"class": "a", "layers": 0, "layer_bytes": 1, "layer_compute_us": 1}]}`:               "layers is 0",
		`{"version": 1, "compute_windows": [{"class": "a", "layers": 1, "layer_bytes": -1, "layer_compute_us": 1}]}`:              "layer_bytes is -1",
		`{"version": 1, "compute_windows": [{"class": "a", "layers": 1, "layer_bytes": 1}]}`:                                      "layer_compute_us must be",
		`{"version": 1, "compute_windows": [{"class": "a", "layers": 1, "layer_bytes": 1, "layer_compute_us": 1e12}]}`:            "at most a day",
		`{"version": 1, "compute_windows": [{"class": "a", "layers": 1, "layer_bytes": 1, "layer_compute_us": 1, "context": 4}]}`: "unknown field",
		`{"version": 1, "curves": {"a": [{"rate_bytes_per_s": 0, "added_s": 1, "weight": 1}]}}`:                                   "class \"a\": point 0",
		`{"version": 1, "curves": {"": []}}`:                                                                                      "a name has",
		`{"version": 1, "compute_windows": [` + strings.Repeat(`{},`, MaxWindows) + `{}]}`:                                        "the limit is 4096",
		strings.Repeat(" ", MaxBytes+1):                                                                                           "more than",
	} {
		if p, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %+v, %v; want an error with %q", text, p, err, want)
		}
	}
	if err := (&Profile{}).Write(&bytes.Buffer{}); err == nil {
		t.Error("a profile without version was written")
	}
}

func TestResolve(t *testing.T) {
	p := sample()
	const c = 29871500 * time.Nanosecond
	for _, tc := range []struct {
		layers  int
		bytes   int64
		compute time.Duration
		class   string
		window  time.Duration
	}{
		{32, 32 << 20, 0, "16K,50%", c},
		{32, 33 << 20, 0, "16K,50%", c},               // 3 % off
		{32, 34 << 20, 0, "", 0},                      // 6 % off
		{31, 32 << 20, 0, "", 0},                      // another model
		{32, 32 << 20, c + c/50, "16K,50%", c + c/50}, // the descriptor wins
		{32, 32 << 20, 2 * c, "", 2 * c},              // another GPU: no class, and still the descriptor's
		{32, 1, time.Second, "", time.Second},
		{80, 128 << 20, 0, "64K,50%, tall", 5 * time.Microsecond},
		{32, 0, 0, "", 0},
	} {
		if class, window := p.Resolve(tc.layers, tc.bytes, tc.compute); class != tc.class || window != tc.window {
			t.Errorf("%+v: %q, %v", tc, class, window)
		}
	}
	if class, window := (*Profile)(nil).Resolve(32, 32<<20, time.Second); class != "" || window != time.Second {
		t.Errorf("%q, %v", class, window)
	}
	// Of two that are near, the nearer.
	p.Windows = []Window{{"a", 1, 1000, 1}, {"b", 1, 1010, 2}, {"c", 1, 1020, 3}}
	if class, _ := p.Resolve(1, 1012, 0); class != "b" {
		t.Error(class)
	}
}

// TestExample: the profile that ships has the windows of Table A8, and tells
// them apart by size alone.
func TestExample(t *testing.T) {
	f, err := os.Open("../../profiles/llama-3.1-8b-a100.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if p.ModeThreshold != nil || p.Margin != nil || p.Curves != nil {
		t.Error("what depends on the deployment is not for an example to say")
	}
	for _, c := range sim.Configs() {
		class, window := p.Resolve(c.Layers, int64(c.LayerBytes), 0)
		if d := window - c.Compute; class != c.Name || d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("%s: %q, %v, want %v", c.Name, class, window, c.Compute)
		}
	}
	if len(p.Windows) != len(sim.Configs()) {
		t.Errorf("%d windows, Table A8 has %d", len(p.Windows), len(sim.Configs()))
	}
}
