package bench

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// TenantsReport is the result of a Tenants.
type TenantsReport struct {
	Command    string            `json:"command"`
	Machine    Machine           `json:"machine"`
	GPU        string            `json:"gpu"`
	Transport  string            `json:"transport"`
	Rounds     int               `json:"rounds"`
	Scale      int               `json:"scale"` // the paper's bytes and caps, divided by this
	Speed      int               `json:"speed"` // bytes and times, divided by this
	MarginGbps float64           `json:"margin_gbps"`
	EpochMs    float64           `json:"epoch_ms"`
	Workloads  []*WorkloadReport `json:"workloads"`
}

// WorkloadReport is one workload.
type WorkloadReport struct {
	Name      string          `json:"name"`
	CapGbps   float64         `json:"cap_gbps"`   // after Scale
	ComputeMs float64         `json:"compute_ms"` // of all requests: their TTFTs if everything were local
	NoLimit   *PolicyReport   `json:"no_limit"`   // the same requests on a link that is not held
	Policies  []*PolicyReport `json:"policies"`
}

// PolicyReport is one policy on one workload, in milliseconds: sums over the
// requests, medians over the rounds.
type PolicyReport struct {
	Name      string  `json:"name"`
	Total     float64 `json:"total_ttft_ms"`
	Added     float64 `json:"added_ms"`     // over the compute itself
	Predicted float64 `json:"predicted_ms"` // Added, by Eq. 3
	// PredictedBatch is Predicted if rates were held until all requests have
	// finished, as in the paper, and not for an epoch.
	PredictedBatch float64        `json:"predicted_batch_ms"`
	OverBase       float64        `json:"delta_ms"` // Total over that of NoLimit (Table A12)
	Requests       []TenantReport `json:"requests"`
	Raw            []float64      `json:"rounds_added_ms"`
}

// TenantReport is one request under one policy.
type TenantReport struct {
	Name      string    `json:"name"`
	Added     float64   `json:"added_ms"`
	Predicted float64   `json:"predicted_ms"`
	Raw       []float64 `json:"rounds_added_ms"`
}

// runs are all there is to run: the policies, and no limit.
func (w *WorkloadReport) runs() []*PolicyReport {
	return append([]*PolicyReport{w.NoLimit}, w.Policies...)
}

// add notes a round.
func (p *PolicyReport) add(w load, played []Played) {
	sum := 0.0
	for i, one := range played {
		added := millis(one.TTFT) - millis(w.tenants[i].Compute)*float64(w.tenants[i].Layers)
		p.Requests[i].Raw = append(p.Requests[i].Raw, added)
		sum += added
	}
	p.Raw = append(p.Raw, sum)
}

// finish works the medians out.
func (r *TenantsReport) finish() {
	for _, w := range r.Workloads {
		for _, p := range w.runs() {
			p.Added = median(p.Raw)
			p.Total = p.Added + w.ComputeMs
			for i := range p.Requests {
				p.Requests[i].Added = median(p.Requests[i].Raw)
			}
		}
		for _, p := range w.Policies {
			p.OverBase = p.Total - w.NoLimit.Total
		}
	}
}

// find is the row of a policy, or nil.
func (w *WorkloadReport) find(name string) *PolicyReport {
	for _, p := range w.Policies {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Gain is how many times less policy a adds than policy b, measured and
// predicted; NaN if one of them was not run.
func (w *WorkloadReport) Gain(a, b string) (measured, predicted float64) {
	x, y := w.find(a), w.find(b)
	if x == nil || y == nil {
		return math.NaN(), math.NaN()
	}
	return y.Added / x.Added, y.Predicted / x.Predicted
}

// WriteTable prints the report for people.
func (r *TenantsReport) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "Workloads of the ObjectCache paper over %s, %d rounds, %s, %d cores\nThe GPU is %s.\n",
		r.Transport, r.Rounds, r.Machine.CPU, r.Machine.Cores, r.GPU)
	fmt.Fprintf(w, "Bytes and caps are %d times less than the paper's", r.Scale)
	if r.Speed != 1 {
		fmt.Fprintf(w, ", bytes and times another %d times", r.Speed)
	}
	fmt.Fprintf(w, "; margin %.4g Gbps, epoch %.4g ms.\n", r.MarginGbps, r.EpochMs)
	for _, wl := range r.Workloads {
		fmt.Fprintf(w, "\nWorkload %s, %d requests under %.4g Gbps: %.1f ms of compute, %.1f ms with no limit\n\n",
			wl.Name, len(wl.NoLimit.Requests), wl.CapGbps, wl.ComputeMs, wl.NoLimit.Total)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "policy\ttotal ms\tover no limit\tadded\tEq. 3\toff %\tif held to the end\t|")
		for _, q := range wl.NoLimit.Requests {
			fmt.Fprintf(t, "\t%s", q.Name)
		}
		fmt.Fprint(t, "\t\n")
		for _, p := range wl.Policies {
			fmt.Fprintf(t, "%s\t%.1f\t%+.1f\t%.1f\t%.1f\t%+.1f\t%.1f\t|", p.Name, p.Total, p.OverBase, p.Added, p.Predicted, 100*(p.Added/p.Predicted-1), p.PredictedBatch)
			for _, q := range p.Requests {
				fmt.Fprintf(t, "\t%.1f", q.Added)
			}
			fmt.Fprint(t, "\t\n")
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, pair := range [][2]string{{"cal-stall-opt", "equal"}, {"ttft-opt", "cal-stall-opt"}} {
			if m, p := wl.Gain(pair[0], pair[1]); !math.IsNaN(m) {
				fmt.Fprintf(w, "%s adds %.2f times less than %s; Eq. 3 predicts %.2f.\n", pair[0], m, pair[1], p)
			}
		}
	}
	_, err := fmt.Fprintln(w, `
Added is over the compute itself (what the prefills take if everything is local), summed over the requests; Eq. 3 is what the
simulator of the same policy predicts for it, and "if held to the end" the same if the policies that hold rates held them until
all requests have finished, as the paper did. The columns on the right are added ms per request. Medians over the rounds.
Every byte of the first round was checked.`)
	return err
}

// Plot draws what each policy adds, measured and predicted, a panel for each
// workload, as a PNG.
func (r *TenantsReport) Plot(file string) error {
	var row []*plot.Plot
	for _, w := range r.Workloads {
		p := newPlot(fmt.Sprintf("Workload %s, %.4g Gbps", w.Name, w.CapGbps), "added TTFT, all requests (ms)")
		var names []string
		high := 0.0
		var predicted, rounds plotter.XYs
		for i, one := range w.Policies {
			bar, err := plotter.NewBarChart(plotter.Values{one.Added}, vg.Points(26))
			if err != nil {
				return err
			}
			bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), palette[i%len(palette)], 0
			p.Add(bar)
			names = append(names, one.Name)
			predicted = append(predicted, plotter.XY{X: float64(i), Y: one.Predicted})
			high = max(high, one.Added, one.Predicted)
			for _, added := range one.Raw {
				rounds = append(rounds, plotter.XY{X: float64(i), Y: added})
				high = max(high, added)
			}
		}
		if err := points(p, "rounds (bars: their median)", rounds, dark, ring{}, vg.Points(2)); err != nil {
			return err
		}
		if err := points(p, "predicted by Eq. 3", predicted, black, dash{}, vg.Points(17)); err != nil {
			return err
		}
		p.NominalX(names...)
		p.X.Tick.Label.Rotation = math.Pi / 5
		p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = -0.9, -0.6
		p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
		p.Y.Min, p.Y.Max = 0, 1.25*high
		p.Legend.Left = false
		row = append(row, p)
	}
	return savePNG(file, [][]*plot.Plot{row}, 11*vg.Centimeter, 11*vg.Centimeter)
}
