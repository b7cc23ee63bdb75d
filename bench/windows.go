package bench

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/objcached/objcached/bwsched/sim"
)

// Llama 3.1 8B, the model of the ObjectCache paper's evaluation: 32 layers of 8
// KV heads of 128 dimensions in two bytes each.
const (
	modelLayers     = 32
	modelTokenBytes = 2 * 8 * 128 * 2 // K and V of one token in one layer (Eq. 1)
)

// Window is how long a prefill computes when part of its context is cached.
type Window struct {
	Context int           // tokens
	Hit     float64       // percent of them that are cached
	Total   time.Duration // of all layers
	Source  string        // the paper's table, or "fit"
}

// Layer is the compute window of one layer, c in §3.6: every layer computes
// equally long.
func (w Window) Layer() time.Duration { return w.Total / modelLayers }

// Cached is the number of cached tokens.
func (w Window) Cached() int { return int(float64(w.Context) * w.Hit / 100) }

// LayerBytes is s: the bytes of one layer of the cached tokens.
func (w Window) LayerBytes() int64 { return int64(w.Cached()) * modelTokenBytes }

// Required is the zero-stall rate r* = s/c in bytes per second.
func (w Window) Required() float64 { return float64(w.LayerBytes()) / w.Layer().Seconds() }

// The quadratic law of prefill through the two points of Table A1: so many
// milliseconds for each token that is computed, and for each pair of tokens
// that attend to each other.
const (
	lawToken = 0.0824749
	lawPair  = 1.63542e-6
)

// lawWindow is how long the law says that a prefill computes.
func lawWindow(context, cached float64) time.Duration {
	return ofMillis(lawToken*(context-cached) + lawPair*(context*context-cached*cached))
}

//go:embed windows.txt
var windowsText string

// Windows are the compute windows of the paper's configurations, by context
// and hit rate.
func Windows() []Window {
	ws, err := parseWindows(windowsText)
	if err != nil {
		panic(err) // the text is part of the program, and a test reads it
	}
	for _, c := range sim.Configs() { // Table A8
		var context int
		var hit float64
		if _, err := fmt.Sscanf(c.Name, "%dK,%g%%", &context, &hit); err != nil {
			panic(fmt.Sprintf("configuration %q: %v", c.Name, err)) // likewise
		}
		ws = append(ws, Window{context * 1024, hit, c.Compute * time.Duration(c.Layers), "A8"})
	}
	slices.SortStableFunc(ws, func(a, b Window) int {
		return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.Hit, b.Hit))
	})
	return ws
}

func parseWindows(text string) ([]Window, error) {
	var ws []Window
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d has %d fields, not 4", i+1, len(f))
		}
		context, err1 := strconv.Atoi(f[0])
		hit, err2 := strconv.ParseFloat(f[1], 64)
		total, err3 := time.ParseDuration(f[2] + "ms")
		if err1 != nil || err2 != nil || err3 != nil || context <= 0 || !(hit > 0 && hit < 100) || total <= 0 {
			return nil, fmt.Errorf("line %d: %q is no window", i+1, line)
		}
		ws = append(ws, Window{context, hit, total, f[3]})
	}
	return ws, nil
}
