package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
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
	Key    string  `json:"key"`
	Name   string  `json:"name"`
	GBps   float64 `json:"gb_per_s"` // median of the rounds, 10^9 bytes per second
	Min    float64 `json:"gb_per_s_min"`
	Max    float64 `json:"gb_per_s_max"`
	Layer0 float64 `json:"layer0_ms"` // median
	Total  float64 `json:"total_ms"`  // median
	Memory float64 `json:"of_memory"` // median over rounds of this / bare memory of the same round
	HTTP   float64 `json:"of_bare_http"`
	Limit  float64 `json:"of_own_limit,omitempty"` // the same against its own limit, if it has one
	// Processor seconds per 10^9 bytes of payload, of the measuring process and
	// of the server's; medians. A server whose time cannot be told has 0.
	Client float64       `json:"cpu_client_s_per_gb"`
	Server float64       `json:"cpu_server_s_per_gb"`
	Raw    []RoundReport `json:"rounds"`
}

// RoundReport is one run.
type RoundReport struct {
	GBps   float64 `json:"gb_per_s"`
	Layer0 float64 `json:"layer0_ms"`
	Total  float64 `json:"total_ms"`
	Client float64 `json:"cpu_client_s_per_gb"`
	Server float64 `json:"cpu_server_s_per_gb"`
}

// fill works the rows out; things 0 and 1 are the limits.
func (r *LayerwiseReport) fill(things []thing, samples [][]Sample) {
	for i, t := range things {
		row := rowOf(t, samples[i], r.PayloadBytes)
		row.Memory, row.HTTP = ratio(samples[0], samples[i]), ratio(samples[1], samples[i])
		row.Limit = limitOf(things, samples, i)
		r.Things = append(r.Things, row)
	}
}

// ratio is the speed of a thing over that of another: the median of the rounds'.
func ratio(other, s []Sample) float64 {
	var q []float64
	for k := range s {
		q = append(q, other[k].Total.Seconds()/s[k].Total.Seconds())
	}
	return median(q)
}

// limitOf is the ratio of thing i to its own limit; 0: it has none.
func limitOf(things []thing, samples [][]Sample, i int) float64 {
	for k := range things {
		if things[i].limit != "" && things[k].key == things[i].limit {
			return ratio(samples[k], samples[i])
		}
	}
	return 0
}

// rowOf works out a row but for what it is compared with.
func rowOf(t thing, samples []Sample, bytes int64) ThingReport {
	row := ThingReport{Key: t.key, Name: t.name}
	var speed, layer0, total, client, server []float64
	for _, s := range samples {
		rr := RoundReport{GBps: gbps(bytes, s.Total), Layer0: millis(s.Layer0), Total: millis(s.Total),
			Client: secondsPerGB(s.Client, bytes), Server: secondsPerGB(s.Server, bytes)}
		row.Raw = append(row.Raw, rr)
		speed, layer0, total = append(speed, rr.GBps), append(layer0, rr.Layer0), append(total, rr.Total)
		client, server = append(client, rr.Client), append(server, rr.Server)
	}
	row.Min, row.Max = slices.Min(speed), slices.Max(speed)
	row.GBps, row.Layer0, row.Total = median(speed), median(layer0), median(total)
	row.Client, row.Server = median(client), median(server)
	return row
}

// WriteTable prints the report for people.
func (r *LayerwiseReport) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d chunks of %d layers of %s = %s, %d rounds, %s, %d cores\n\n",
		r.Chunks, r.Layers, byteSize(r.Slice), byteSize(r.PayloadBytes), r.Rounds, r.Machine.CPU, r.Machine.Cores)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "GB/s\tmin\tmax\tof bare HTTP\tof memory\tlayer 0 ms\ttotal ms\tclient s/GB\tserver s/GB\t\t")
	for _, row := range r.Things {
		fmt.Fprintf(t, "%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t%.1f\t%.1f\t%.3f\t%.3f\t  %s\t\n",
			row.GBps, row.Min, row.Max, row.HTTP, row.Memory, row.Layer0, row.Total, row.Client, row.Server, row.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nGB/s, layer 0 and total are medians of the rounds; a ratio is the median of the rounds' ratios;\n")
	fmt.Fprintf(w, "s/GB is processor time per 10^9 bytes of the measuring process and of the server's.\n")
	fmt.Fprintf(w, "The bare HTTP loops write %s and %s at a time (each its best of %d sizes); plain GETs run %d at a time.\n",
		byteSize(r.BareWriteBytes), byteSize(r.MarkedWriteBytes), len(writeSizes), r.Concurrency)
	for _, row := range r.Things {
		if row.Limit > 0 {
			fmt.Fprintf(w, "%s: %.2f of its own limit, the row above it.\n", row.Name, row.Limit)
		}
	}
	if asked := slices.ContainsFunc(r.Things, func(t ThingReport) bool { return t.Key == "layerwise" }); asked && !r.Native {
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
