package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// PathsReport is the result of a Paths.
type PathsReport struct {
	Command      string  `json:"command"`
	Machine      Machine `json:"machine"`
	Geometry     `json:"geometry"`
	PayloadBytes int64         `json:"payload_bytes"`
	Rounds       int           `json:"rounds"`
	Concurrency  int           `json:"concurrency"` // of the requests for single objects
	Things       []ThingReport `json:"things"`
	// AggOverSlices is Agg's speed over that of Direct with a request for each
	// (layer, chunk), as a client without aggregation must send to compute layer
	// by layer; AggOverChunks over Direct with a request for each chunk. Medians
	// of the rounds' ratios.
	AggOverSlices float64       `json:"agg_over_direct_by_slice"`
	AggOverChunks float64       `json:"agg_over_direct_by_chunk"`
	Puts          []ThingReport `json:"puts,omitempty"`
	Sweep         []SweepReport `json:"sweep,omitempty"`
}

// SweepReport is one aggregation size.
type SweepReport struct {
	AggBytes int64 `json:"agg_bytes"`
	Slices   int64 `json:"slices"` // of one layer that are gathered at a time (Table A7)
	ThingReport
}

// withLimit is row i with the ratio to its own limit.
func withLimit(things []thing, samples [][]Sample, i int, bytes int64) ThingReport {
	row := rowOf(things[i], samples[i], bytes)
	row.Limit = limitOf(things, samples, i)
	return row
}

func (r *PathsReport) fill(things []thing, samples [][]Sample) {
	at := map[string][]Sample{}
	for i := range things {
		at[things[i].key] = samples[i]
		r.Things = append(r.Things, withLimit(things, samples, i, r.PayloadBytes))
	}
	r.AggOverSlices = ratio(at[pathDirectSlices], at[pathAgg])
	r.AggOverChunks = ratio(at[pathDirect], at[pathAgg])
}

// WriteTable prints the report for people.
func (r *PathsReport) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d chunks of %d layers of %s = %s, %d rounds, %s, %d cores\n\n",
		r.Chunks, r.Layers, byteSize(r.Slice), byteSize(r.PayloadBytes), r.Rounds, r.Machine.CPU, r.Machine.Cores)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(row ThingReport, name string) {
		limit := "-"
		if row.Limit > 0 {
			limit = fmt.Sprintf("%.2f", row.Limit)
		}
		fmt.Fprintf(t, "%.3f\t%.3f\t%.3f\t%s\t%.1f\t%.1f\t%.3f\t%.3f\t  %s\t\n",
			row.GBps, row.Min, row.Max, limit, row.Layer0, row.Total, row.Client, row.Server, name)
	}
	const head = "GB/s\tmin\tmax\tof its limit\tlayer 0 ms\ttotal ms\tclient s/GB\tserver s/GB\t\t"
	fmt.Fprintln(t, head)
	for _, row := range r.Things {
		line(row, row.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nS3RDMA Agg is %.1f times as fast as S3RDMA Direct by slice, %.1f times as by chunk.\n", r.AggOverSlices, r.AggOverChunks)
	if len(r.Puts) > 0 {
		fmt.Fprintf(w, "\nStoring the chunks:\n\n")
		fmt.Fprintln(t, head)
		for _, row := range r.Puts {
			line(row, row.Name)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(r.Sweep) > 0 {
		fmt.Fprintf(w, "\nS3RDMA Agg by aggregation size:\n\n")
		fmt.Fprintln(t, head)
		for _, s := range r.Sweep {
			line(s.ThingReport, fmt.Sprintf("%s, %d slices", byteSize(s.AggBytes), s.Slices))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nGB/s, layer 0, total and s/GB (processor time per 10^9 bytes of the measuring process and of the server's)\n")
	fmt.Fprintf(w, "are medians of the rounds; a ratio is the median of the rounds' ratios. Requests for single objects run %d at a time.\n", r.Concurrency)
	_, err := fmt.Fprintln(w, "Every byte of every row was checked before the rounds.")
	return err
}
