package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// CalibrateReport is the result of a Calibrate. What was not found out is nil.
type CalibrateReport struct {
	Command   string        `json:"command"`
	Machine   Machine       `json:"machine"`
	GPU       string        `json:"gpu"`
	Transport string        `json:"transport"`
	Rounds    int           `json:"rounds"`
	Note      string        `json:"note,omitempty"`
	Sizes     []SizeReport  `json:"sizes"`
	Threshold *int64        `json:"mode_threshold_bytes,omitempty"`
	Curves    []CurveReport `json:"curves,omitempty"`
	Margin    *float64      `json:"margin_bytes_per_s,omitempty"`
}

// SizeReport is one payload, delivered layerwise and chunkwise.
type SizeReport struct {
	Chunks       int       `json:"chunks"`
	PayloadBytes int64     `json:"payload_bytes"`
	ComputeUs    float64   `json:"layer_compute_us"`
	Layer        float64   `json:"layer_ttft_ms"` // medians
	Chunk        float64   `json:"chunk_ttft_ms"`
	Saved        float64   `json:"saved_percent"` // by layerwise delivery; median over the rounds
	RawLayer     []float64 `json:"rounds_layer_ttft_ms"`
	RawChunk     []float64 `json:"rounds_chunk_ttft_ms"`
}

func (s *SizeReport) add(layer, chunk time.Duration) {
	s.RawLayer, s.RawChunk = append(s.RawLayer, millis(layer)), append(s.RawChunk, millis(chunk))
}

// CurveReport is how one kind of request answers to its rate, in bytes per
// second.
type CurveReport struct {
	Class      string        `json:"class"`
	Skipped    string        `json:"skipped,omitempty"` // why there are no points
	LayerBytes int64         `json:"layer_bytes,omitempty"`
	ComputeUs  float64       `json:"layer_compute_us,omitempty"`
	ZeroStall  float64       `json:"zero_stall_bytes_per_s,omitempty"` // r*
	Top        float64       `json:"transport_bytes_per_s,omitempty"`  // with the link not held
	Knee       *float64      `json:"knee_bytes_per_s,omitempty"`       // nil: none was seen
	Points     []PointReport `json:"points,omitempty"`
}

// PointReport is one rate. Times are seconds above the compute itself.
type PointReport struct {
	Rate  float64   `json:"rate_bytes_per_s"`
	Added float64   `json:"added_s"` // median
	Eq3   float64   `json:"eq3_s"`   // predicted
	Raw   []float64 `json:"rounds_added_s"`
}

// slower is how much slower layerwise delivery may be, in percent, and still be
// called no worse: less is not told from the machine's moods.
const slower = 1

// finish works out the medians, the threshold, and the margin.
func (r *CalibrateReport) finish() {
	for i := range r.Sizes {
		s := &r.Sizes[i]
		var saved []float64
		for k := range s.RawLayer {
			saved = append(saved, 100*(1-s.RawLayer[k]/s.RawChunk[k]))
		}
		s.Layer, s.Chunk, s.Saved = median(s.RawLayer), median(s.RawChunk), median(saved)
	}
	r.Threshold = threshold(r.Sizes)
	var margins []float64
	for i := range r.Curves {
		c := &r.Curves[i]
		for k := range c.Points {
			c.Points[k].Added = median(c.Points[k].Raw)
		}
		if knee, ok := c.knee(); ok {
			c.Knee = &knee
			margins = append(margins, max(0, knee-c.ZeroStall))
		}
	}
	if len(margins) > 0 {
		m := median(margins)
		r.Margin = &m
	}
}

// threshold is the smallest payload from which on layerwise delivery is no
// slower than chunkwise: 0 if that is so of all that were measured, as the
// smallest is one chunk, and nil if it is not so of the largest.
func threshold(sizes []SizeReport) *int64 {
	var found *int64
	for i := len(sizes) - 1; i >= 0 && sizes[i].Saved >= -slower; i-- {
		at := sizes[i].PayloadBytes
		if i == 0 {
			at = 0
		}
		found = &at
	}
	return found
}

// knee is the rate from which more gains less than a compute window, as by
// Eq. 3 the zero-stall rate is.
func (c *CurveReport) knee() (float64, bool) {
	var points []bwsched.Point
	for _, p := range c.Points {
		for _, added := range p.Raw {
			points = append(points, bwsched.Point{Rate: p.Rate, Added: added, Weight: 1})
		}
	}
	h := bwsched.NewHull(points)
	if h == nil {
		return 0, false
	}
	return h.Knee(c.ComputeUs / 1e6)
}

// WriteTable prints the report for people.
func (r *CalibrateReport) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "Over %s, %d rounds, %s, %d cores. The GPU is %s.\n\n", r.Transport, r.Rounds, r.Machine.CPU, r.Machine.Cores, r.GPU)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "chunks\tpayload\tlayer computes µs\tlayerwise TTFT ms\tchunkwise TTFT ms\tsaved %\t")
	for _, s := range r.Sizes {
		fmt.Fprintf(t, "%d\t%s\t%.0f\t%.2f\t%.2f\t%+.1f\t\n", s.Chunks, byteSize(s.PayloadBytes), s.ComputeUs, s.Layer, s.Chunk, s.Saved)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case r.Threshold == nil:
		fmt.Fprintln(w, "\nMode threshold: none found. Chunkwise delivery is faster for the largest payload measured: try larger ones.")
	case *r.Threshold == 0:
		fmt.Fprintln(w, "\nMode threshold: 0. Layerwise delivery is no slower for any payload measured.")
	default:
		fmt.Fprintf(w, "\nMode threshold: %s (%d bytes). From there on layerwise delivery is no slower.\n", byteSize(*r.Threshold), *r.Threshold)
	}
	for _, c := range r.Curves {
		if c.Skipped != "" {
			fmt.Fprintf(w, "\n%s: not swept: %s.\n", c.Class, c.Skipped)
			continue
		}
		fmt.Fprintf(w, "\n%s: zero-stall rate %.3f GB/s, transport %.3f GB/s\n\n", c.Class, c.ZeroStall/1e9, c.Top/1e9)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "GB/s\tof zero-stall\tadded ms\tEq. 3 ms\t")
		for _, p := range c.Points {
			fmt.Fprintf(t, "%.3f\t%.2f\t%.1f\t%.1f\t\n", p.Rate/1e9, p.Rate/c.ZeroStall, 1000*p.Added, 1000*p.Eq3)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if c.Knee == nil {
			fmt.Fprintln(w, "No knee: TTFT falls up to the highest rate measured, or is flat from the lowest.")
		} else {
			fmt.Fprintf(w, "Knee: %.3f GB/s, %+.3f GB/s from the zero-stall rate.\n", *c.Knee/1e9, (*c.Knee-c.ZeroStall)/1e9)
		}
	}
	if r.Margin != nil {
		fmt.Fprintf(w, "\nMargin: %.3f GB/s (%.2f Gbps), the median over the knees.\n", *r.Margin/1e9, *r.Margin*8/1e9)
	}
	if r.Note != "" {
		fmt.Fprintln(w, "\n"+r.Note)
	}
	return nil
}
