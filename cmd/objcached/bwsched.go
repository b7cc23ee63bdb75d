package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/sim"
)

func init() { commands = append(commands, bwschedCommand) }

// Bounds of what bwsched reads: a plan is made for every event of a policy that
// replans, and once for the others.
const (
	maxWhatIf        = 10000
	maxWhatIfReplans = 1000
	maxWhatIfInput   = 16 << 20
)

type bwschedFlags struct {
	capGbps, marginGbps float64
	policy, requests    string
	json                bool
}

func bwschedCommand() *cobra.Command {
	var f bwschedFlags
	cmd := &cobra.Command{
		Use:   "bwsched --cap-gbps N --requests FILE",
		Short: "Show what a bandwidth policy would give to requests",
		Long: `Split a link among layerwise requests and predict their time to first token,
without a server. FILE (- is standard input) is a JSON array; each request has
a "name", "layer_bytes" (of one layer's payload, all chunks), "layer_compute_us"
(the compute window of one layer) and "layers". All arrive at once.

The policies are ` + strings.Join(bwsched.Names(), ", ") + `.

Printed are, in the order of FILE:
  target_gbps  the rate beyond which the policy sees no use in more; the
               zero-stall rate layer_bytes/layer_compute_us, for cal-stall-opt
               plus the margin
  rate_gbps    the rate it gives when the requests arrive
  stall_us     how long the compute of a layer waits for the next layer
  ttft_us      time to first token: layer 0, then for each layer the longer of
               its compute and the next one's transfer, then the last compute

Rates hold to the end, except for ttft-opt, which plans again whenever a first
layer or a request is done: its stall_us is the mean over the layers, and its
ttft_us that of the whole course, simulated. A request may start at a low rate
there, because others' first layers go before it.`,
		Example: `  objcached bwsched --cap-gbps 50 --policy cal-stall-opt --requests - <<'END'
  [{"name": "chat",    "layer_bytes": 33554432,  "layer_compute_us": 29870, "layers": 32},
   {"name": "archive", "layer_bytes": 234881024, "layer_compute_us": 75750, "layers": 32}]
  END
  objcached bwsched --cap-gbps 50 --policy ttft-opt --requests mix.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.capGbps, "cap-gbps", 0, "the link's rate, 10^9 bits per second")
	fl.StringVar(&f.policy, "policy", "ttft-opt", "how to split the link")
	fl.Float64Var(&f.marginGbps, "margin-gbps", 5, "what cal-stall-opt adds to the zero-stall rate")
	fl.StringVar(&f.requests, "requests", "", "JSON file of requests, - for standard input")
	fl.BoolVar(&f.json, "json", false, "print a JSON array")
	for _, name := range []string{"cap-gbps", "requests"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that is not there
		}
	}
	return cmd
}

func (f *bwschedFlags) run(stdin io.Reader, out io.Writer) error {
	if !(f.capGbps > 0) || f.capGbps > 1e9 {
		return fmt.Errorf("--cap-gbps %v must be above 0 and at most 1e9", f.capGbps)
	}
	p, err := bwsched.ByName(f.policy, f.marginGbps*sim.Gbps)
	if err != nil {
		return err
	}
	reqs, err := f.read(stdin)
	if err != nil {
		return err
	}
	answers, err := whatIf(p, f.capGbps*sim.Gbps, reqs)
	if err != nil {
		return err
	}
	return showWhatIf(out, answers, f.json)
}

func (f *bwschedFlags) read(stdin io.Reader) (_ []sim.Request, err error) {
	in, name := stdin, "standard input"
	if f.requests != "-" {
		file, err := os.Open(f.requests)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in, name = file, f.requests
	}
	b, err := io.ReadAll(io.LimitReader(in, maxWhatIfInput+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxWhatIfInput {
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxWhatIfInput)
	}
	reqs, err := parseWhatIf(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return reqs, nil
}

// parseWhatIf reads a JSON array of requests. Errors name the entry, counted
// from 0, and the field.
func parseWhatIf(b []byte) ([]sim.Request, error) {
	var entries []json.RawMessage
	if err := json.Unmarshal(b, &entries); err != nil {
		return nil, fmt.Errorf("not a JSON array of requests: %w", err)
	}
	if len(entries) > maxWhatIf {
		return nil, fmt.Errorf("%d requests, the limit is %d", len(entries), maxWhatIf)
	}
	reqs := make([]sim.Request, len(entries))
	for i, raw := range entries {
		var err error
		if reqs[i], err = parseEntry(raw); err != nil {
			if name := reqs[i].Name; name != "" {
				return nil, fmt.Errorf("entry %d (%q): %w", i, name, err)
			}
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return reqs, nil
}

func parseEntry(raw json.RawMessage) (r sim.Request, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return r, errors.New("not a JSON object")
	}
	known := []string{"name", "layer_bytes", "layer_compute_us", "layers"}
	for _, name := range known {
		if _, ok := fields[name]; !ok {
			return r, fmt.Errorf("%s is missing", name)
		}
	}
	if err := json.Unmarshal(fields["name"], &r.Name); err != nil || r.Name == "" {
		return r, errors.New("name must be a string that is not empty")
	}
	if len(fields) > len(known) {
		var extra []string
		for name := range fields {
			if !slices.Contains(known, name) {
				extra = append(extra, name)
			}
		}
		return r, fmt.Errorf("unknown field %q", slices.Min(extra))
	}
	if r.LayerBytes, err = between(fields["layer_bytes"], 1, 1e15); err != nil {
		return r, fmt.Errorf("layer_bytes %w", err)
	}
	compute, err := between(fields["layer_compute_us"], 1e-3, 1e12)
	if err != nil {
		return r, fmt.Errorf("layer_compute_us %w", err)
	}
	r.Compute = time.Duration(math.Round(compute * 1e3))
	layers, err := between(fields["layers"], 1, 1024)
	if err != nil {
		return r, fmt.Errorf("layers %w", err)
	}
	if r.Layers = int(layers); float64(r.Layers) != layers {
		return r, fmt.Errorf("layers must be a whole number, not %v", layers)
	}
	return r, nil
}

func between(raw json.RawMessage, low, high float64) (float64, error) {
	var v *float64
	if err := json.Unmarshal(raw, &v); err != nil || v == nil || *v < low || *v > high {
		return 0, fmt.Errorf("must be a number from %v to %v, not %.40s", low, high, raw)
	}
	return *v, nil
}

// whatIfAnswer is what becomes of one request.
type whatIfAnswer struct {
	Name       string  `json:"name"`
	TargetGbps float64 `json:"target_gbps"`
	RateGbps   float64 `json:"rate_gbps"`
	StallUs    float64 `json:"stall_us"`
	TTFTUs     float64 `json:"ttft_us"`
}

func whatIf(p bwsched.Policy, capacity float64, in []sim.Request) ([]whatIfAnswer, error) {
	reqs, rates := make([]bwsched.Request, len(in)), make([]float64, len(in))
	for i, r := range in {
		reqs[i] = bwsched.Request{LayerBytes: r.LayerBytes, Compute: r.Compute, Layers: r.Layers}
	}
	p.Rates(capacity, reqs, rates)
	answers := make([]whatIfAnswer, len(in))
	for i, r := range reqs {
		answers[i] = whatIfAnswer{
			Name: in[i].Name, TargetGbps: bwsched.Target(p, r) / sim.Gbps, RateGbps: rates[i] / sim.Gbps,
			StallUs: bwsched.Stall(rates[i], r) * 1e6, TTFTUs: bwsched.TTFT(rates[i], r) * 1e6,
		}
	}
	if !bwsched.Replans(p) {
		return answers, nil
	}
	if len(in) > maxWhatIfReplans {
		return nil, fmt.Errorf("%d requests, the limit for %s is %d", len(in), p.Name(), maxWhatIfReplans)
	}
	results, err := sim.Run(in, sim.Options{Capacity: capacity, Policy: p})
	if err != nil {
		return nil, err
	}
	for i, res := range results {
		answers[i].TTFTUs = res.TTFT * 1e6
		answers[i].StallUs = (res.Added - res.Ready[0]) * 1e6 / float64(max(1, in[i].Layers-1))
	}
	return answers, nil
}

func showWhatIf(w io.Writer, answers []whatIfAnswer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(answers)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "target Gbps\trate Gbps\tstall ms\tTTFT ms\t  name")
	rate, ttft := 0.0, 0.0
	for _, a := range answers {
		fmt.Fprintf(t, "%.2f\t%.2f\t%.3f\t%.1f\t  %s\n", a.TargetGbps, a.RateGbps, a.StallUs/1e3, a.TTFTUs/1e3, printable(a.Name))
		rate, ttft = rate+a.RateGbps, ttft+a.TTFTUs
	}
	fmt.Fprintf(t, "\t%.2f\t\t%.1f\t  total\n", rate, ttft/1e3)
	return t.Flush()
}

// printable keeps a name from a file from moving the cursor or the columns.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
