package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// LayerwiseReport is the result of a Layerwise.
type LayerwiseReport struct {
	Command          string  `json:"command"`
	Machine          Machine `json:"machine"`
	Geometry         `json:"geometry"`
	PayloadBytes     int64 `json:"payload_bytes"`
	Rounds           int   `json:"rounds"`
	Concurrency      int   `json:"concurrency"` // of the plain S3 GETs
	BareWriteBytes   int64 `json:"bare_write_bytes"`
	MarkedWriteBytes int64 `json:"bare_marked_write_bytes"` // of the loop whose reader has a low-water mark
	// Native says that the store served the layer-major body itself.
	Native bool `json:"native"`
	// ServerRSSAnonPeak is the server's resident memory beyond the page cache,
	// in bytes; 0 if the server was not started by the benchmark.
	ServerRSSAnonPeak int64         `json:"server_rss_anon_peak_bytes"`
	Things            []ThingReport `json:"things"`
}

// ThingReport is one row.
type ThingReport struct {
	Key    string        `json:"key"`
	Name   string        `json:"name"`
	GBps   float64       `json:"gb_per_s"` // median of the rounds, 10^9 bytes per second
	Min    float64       `json:"gb_per_s_min"`
	Max    float64       `json:"gb_per_s_max"`
	Layer0 float64       `json:"layer0_ms"` // median
	Total  float64       `json:"total_ms"`  // median
	Memory float64       `json:"of_memory"` // median over rounds of this / bare memory of the same round
	HTTP   float64       `json:"of_bare_http"`
	Limit  float64       `json:"of_own_limit,omitempty"` // the same against its own limit, if it has one
	Raw    []RoundReport `json:"rounds"`
}

// RoundReport is one run.
type RoundReport struct {
	GBps   float64 `json:"gb_per_s"`
	Layer0 float64 `json:"layer0_ms"`
	Total  float64 `json:"total_ms"`
}

// fill works the rows out; things 0 and 1 are the limits.
func (r *LayerwiseReport) fill(things []thing, samples [][]Sample) {
	ratio := func(i, limit int) float64 {
		var q []float64
		for k := range samples[i] {
			q = append(q, samples[limit][k].Total.Seconds()/samples[i][k].Total.Seconds())
		}
		return median(q)
	}
	for i, t := range things {
		row := ThingReport{Key: t.key, Name: t.name, Memory: ratio(i, 0), HTTP: ratio(i, 1)}
		for k := range things {
			if t.limit != "" && things[k].key == t.limit {
				row.Limit = ratio(i, k)
			}
		}
		var speed, layer0, total []float64
		for _, s := range samples[i] {
			rr := RoundReport{GBps: gbps(r.PayloadBytes, s.Total), Layer0: millis(s.Layer0), Total: millis(s.Total)}
			row.Raw = append(row.Raw, rr)
			speed, layer0, total = append(speed, rr.GBps), append(layer0, rr.Layer0), append(total, rr.Total)
			if row.Min == 0 || rr.GBps < row.Min {
				row.Min = rr.GBps
			}
			row.Max = max(row.Max, rr.GBps)
		}
		row.GBps, row.Layer0, row.Total = median(speed), median(layer0), median(total)
		r.Things = append(r.Things, row)
	}
}

// WriteTable prints the report for people.
func (r *LayerwiseReport) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d chunks of %d layers of %s = %s, %d rounds, %s, %d cores\n\n",
		r.Chunks, r.Layers, byteSize(r.Slice), byteSize(r.PayloadBytes), r.Rounds, r.Machine.CPU, r.Machine.Cores)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "GB/s\tmin\tmax\tof bare HTTP\tof memory\tlayer 0 ms\ttotal ms\t\t")
	for _, row := range r.Things {
		fmt.Fprintf(t, "%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t%.1f\t%.1f\t  %s\t\n",
			row.GBps, row.Min, row.Max, row.HTTP, row.Memory, row.Layer0, row.Total, row.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nGB/s, layer 0 and total are medians of the rounds; a ratio is the median of the rounds' ratios.\n")
	fmt.Fprintf(w, "The bare HTTP loops write %s and %s at a time (each its best of %d sizes); plain GETs run %d at a time.\n",
		byteSize(r.BareWriteBytes), byteSize(r.MarkedWriteBytes), len(writeSizes), r.Concurrency)
	for _, row := range r.Things {
		if row.Limit > 0 {
			fmt.Fprintf(w, "%s: %.2f of its own limit, the row before it.\n", row.Name, row.Limit)
		}
	}
	if !r.Native {
		fmt.Fprintln(w, "The store has no layerwise GET: GetLayers used ranged GETs.")
	}
	if r.ServerRSSAnonPeak > 0 {
		fmt.Fprintf(w, "Server memory beyond the page cache: at most %s.\n", byteSize(r.ServerRSSAnonPeak))
	}
	_, err := fmt.Fprintln(w, "Every byte of every row was checked before the rounds.")
	return err
}

// WriteJSON writes a report with its raw rounds.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
