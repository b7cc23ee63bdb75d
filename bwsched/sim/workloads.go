package sim

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Gbps is a rate in bytes per second.
const Gbps = 1e9 / 8

// Shape of the model of Table A8.
const (
	paperLayers     = 32
	paperTokenBytes = 4096 // per layer
)

// A Workload is a set of requests that share a link.
type Workload struct {
	Name     string
	Capacity float64 // bytes per second
	Requests []Request
}

//go:embed workloads.txt
var workloadsText string

// Workloads returns the paper's workloads A, B and C. The class of a request is
// its name, like "16K,87.5%".
func Workloads() []Workload {
	w, _, err := parseWorkloads(workloadsText)
	if err != nil {
		panic("sim: the embedded workloads: " + err.Error()) // a test reads them
	}
	return w
}

// Configs returns the configurations of Table A8, smallest context first.
func Configs() []Request {
	_, c, err := parseWorkloads(workloadsText)
	if err != nil {
		panic("sim: the embedded workloads: " + err.Error())
	}
	return c
}

// Scale returns the workload on a link of another speed: bytes and capacity by
// one factor, so that every time stays what it was.
func (w Workload) Scale(factor float64) Workload {
	out := Workload{Name: w.Name, Capacity: w.Capacity * factor, Requests: make([]Request, len(w.Requests))}
	for i, r := range w.Requests {
		r.LayerBytes *= factor
		out.Requests[i] = r
	}
	return out
}

func parseWorkloads(text string) (workloads []Workload, configs []Request, err error) {
	byName := map[string]Request{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case f[0] == "config" && len(f) == 4:
			tokens, err := strconv.Atoi(f[2])
			if err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", n, err)
			}
			total, err := time.ParseDuration(f[3] + "ms")
			if err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", n, err)
			}
			r := Request{Name: f[1], Class: f[1], LayerBytes: float64(tokens * paperTokenBytes), Compute: total / paperLayers, Layers: paperLayers}
			byName[r.Name] = r
			configs = append(configs, r)
		case f[0] == "workload" && len(f) > 3:
			gbps, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", n, err)
			}
			w := Workload{Name: f[1], Capacity: gbps * Gbps}
			for _, name := range f[3:] {
				r, ok := byName[name]
				if !ok {
					return nil, nil, fmt.Errorf("line %d: no config %q", n, name)
				}
				w.Requests = append(w.Requests, r)
			}
			workloads = append(workloads, w)
		default:
			return nil, nil, fmt.Errorf("line %d: cannot read %q", n, strings.TrimSpace(line))
		}
	}
	return workloads, configs, nil
}
