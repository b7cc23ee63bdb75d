package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bench"
	"github.com/objcached/objcached/internal/rate"
)

func newBenchTTFTCmd() *cobra.Command {
	var f benchFlags
	b := bench.TTFT{Progress: progress}
	var contexts, hits []string
	var out string
	var memory size
	var capGbps float64
	cmd := &cobra.Command{
		Use:   "ttft",
		Short: "Play prefills whose cached prefix comes from the store",
		Long: `Plays prefills of Llama 3.1 8B (32 layers, 4096 bytes per token and layer):
sends the request for the cached prefix, waits for layer 0, computes it while
the next layers come, and so on to the last. TTFT is when the last layer is
computed. A timer stands for the GPU: it computes for as long as the ObjectCache
paper measured an A100 to, and nothing is copied to it.

Beside each, in the same rounds:

  opt-local-LW   the same prefill with everything in local memory, layer-major
  delivery only  the same request with nothing computed: the transport's rate,
                 from which Eq. 3 predicts the TTFT
  chunkwise      the same bytes chunk by chunk: no layer before the last byte

Every byte of every way is checked before the rounds. A prefix takes its size
twice, in the page cache and in the client's buffer (7 GiB each for 64K tokens
at 87.5 %); what is larger than --memory is skipped, and the report says so.`,
		Example: `  # Everything: an hour
  objcached bench ttft --out results

  # A look, in half a minute
  objcached bench ttft --contexts 4K --g 64 --transport shm

  # As on a 10 Gbps link
  objcached bench ttft --contexts 4K --cap-gbps 10

  # Long contexts on a small machine: 8 times fewer bytes, the same windows
  objcached bench ttft --contexts 64K --scale 8`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.StringSliceVar(&contexts, "contexts", []string{"4K", "16K", "32K", "64K"}, "context lengths in tokens")
	fs.StringSliceVar(&hits, "hits", []string{"12.5", "50", "87.5"}, "percent of the context that is cached")
	fs.IntSliceVar(&b.Grains, "g", []int{16, 64, 256}, "tokens per chunk")
	fs.StringSliceVar(&b.Transports, "transport", []string{"stream", "shm"}, "stream (response bodies) and shm (shared memory; the store must be on this host)")
	fs.IntVar(&b.Rounds, "rounds", 3, "rounds at 64K tokens, and up to 5 times as many at shorter contexts; medians are reported")
	fs.IntVar(&b.Scale, "scale", 1, "play with this many times fewer bytes")
	fs.Var(&memory, "memory", "most memory to take (default: what is available, less 1 GiB)")
	fs.Float64Var(&capGbps, "cap-gbps", 0, "hold the store's link to this (serve --link-rate), not with --endpoint; 0: as fast as it can")
	fs.StringVar(&out, "out", "", "directory for ttft.json and ttft.png; made if there is none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if b.Contexts, err = parseTokens(contexts); err != nil {
			return err
		}
		if b.Hits, err = parseHits(hits); err != nil {
			return err
		}
		if err := b.Check(); err != nil {
			return err
		}
		if b.Link = int64(capGbps * 1e9 / 8); b.Link < 0 || b.Link > 0 && f.target.Endpoint != "" {
			return errors.New("--cap-gbps is 0 or more, and holds the link of a store that is started here, not that of --endpoint")
		}
		if b.Link > 0 {
			f.serve = append(f.serve, "--link-rate", rate.Rate(b.Link).String())
		}
		f.shm = slices.Contains(b.Transports, "shm")
		b.Memory = memoryOr(memory)
		s, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		b.Target, b.Command, b.Keep = f.target, commandLine(cmd), f.keep
		r, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		return errors.Join(f.show(cmd.OutOrStdout(), r), results(out, "ttft", r))
	}
	return cmd
}

// parseTokens reads context lengths like 4K or 4096.
func parseTokens(texts []string) (ns []int, err error) {
	for _, text := range texts {
		number, factor := text, 1
		if k, ok := strings.CutSuffix(strings.ToUpper(text), "K"); ok {
			number, factor = k, 1024
		}
		n, err := strconv.Atoi(number)
		if err != nil || n <= 0 || n > 1<<30 {
			return nil, fmt.Errorf("--contexts %q: a number of tokens is written like 4096 or 64K", text)
		}
		ns = append(ns, n*factor)
	}
	return ns, nil
}

// parseHits reads hit rates in percent.
func parseHits(texts []string) (hits []float64, err error) {
	for _, text := range texts {
		h, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("--hits %q: a hit rate is a percentage like 12.5", text)
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// plotted is a report with a picture.
type plotted interface {
	report
	Plot(file string) error
}

// results writes a report and its picture to a directory, "" for none.
func results(dir, name string, r plotted) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, name+".json"))
	if err != nil {
		return err
	}
	return errors.Join(bench.WriteJSON(file, r), file.Close(), r.Plot(filepath.Join(dir, name+".png")))
}
