package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bench"
	"github.com/objcached/objcached/bwsched/profile"
)

func init() { commands = append(commands, calibrateCommand) }

func calibrateCommand() *cobra.Command {
	var f benchFlags
	b := bench.Calibrate{Progress: progress}
	var contexts, hits []string
	var out string
	var memory size
	payload := size(256 << 20)
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure a deployment and write a profile for serve",
		Long: `Plays prefills of Llama 3.1 8B (a timer stands for the GPU) and writes what it
finds to a file for serve --profile:

  the mode threshold   the payload from which layer by layer is no slower than
                       chunk by chunk: what delivery auto goes by
  the margin           how far above the zero-stall rate (bytes of a layer over
                       the time it computes) the knee of the TTFT curve lies:
                       what policy cal-stall-opt adds
  the curves           TTFT at each rate, for the policies that learn
  compute windows      how long a layer computes, by the size of the prefix: for
                       requests that do not say so (layer_compute_us wins)

Without --endpoint a store is started on a directory of its own (--data says
where, --serve-flag how) and its link held to one rate after another. The link
of a store at --endpoint cannot be held from here: then rates are not swept, and
the profile has no margin and no curves.

A rate sweep needs a transport that is faster than the zero-stall rate; requests
for which it is not are left out, and the report says so.`,
		Example: `  # This machine, on the disk that will hold the store: two minutes
  objcached calibrate --data /srv/kv --out profile.json
  objcached serve --data /srv/kv/store --profile profile.json

  # The mode threshold alone, of a store that runs
  objcached calibrate --endpoint http://10.0.0.1:9000 --out profile.json

  # A profile with Table A8's compute windows ships in profiles/
  objcached serve --data ./data --link-rate 10Gbps --profile profiles/llama-3.1-8b-a100.json`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.StringVar(&out, "out", "profile.json", "file to write the profile to")
	fs.Var(&payload, "max-payload", "largest payload of the sweep of sizes")
	fs.StringSliceVar(&contexts, "contexts", []string{"4K", "16K"}, "context lengths, in tokens, of the requests whose rates are swept")
	fs.StringSliceVar(&hits, "hits", []string{"50"}, "percent of the context that is cached, of the same")
	fs.StringVar(&b.Transport, "transport", "stream", "stream (response bodies) or shm (shared memory; the store must be on this host)")
	fs.IntVar(&b.Rounds, "rounds", 5, "rounds; medians are reported")
	fs.Var(&memory, "memory", "most memory to take (default: what is available, less 1 GiB)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if b.Contexts, err = parseTokens(contexts); err != nil {
			return err
		}
		if b.Hits, err = parseHits(hits); err != nil {
			return err
		}
		b.MaxPayload, b.Memory = int64(payload), memoryOr(memory)
		if err := b.Check(); err != nil {
			return err
		}
		f.shm = b.Transport == "shm"
		s, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		b.Command, b.Keep, b.HoldsLink = commandLine(cmd), f.keep, f.target.PID != 0
		held := 0.0
		b.Start = func(ctx context.Context, link float64) (bench.Target, error) {
			if link == held || !b.HoldsLink {
				return f.target, nil
			}
			var flags []string
			if link > 0 {
				flags = linkFlags(link, "equal", 0, 50*time.Millisecond)
			}
			held = link
			err := s.restart(ctx, &f, flags...)
			return f.target, err
		}
		r, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		if err := writeProfile(out, r.Profile()); err != nil {
			return err
		}
		if err := f.show(cmd.OutOrStdout(), r); err != nil || f.json == "-" {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nWritten to %s, for serve --profile.\n", out)
		return err
	}
	return cmd
}

// memoryOr is how much memory a benchmark may take.
func memoryOr(flag size) int64 {
	if flag > 0 {
		return int64(flag)
	}
	return bench.AvailableMemory() - 1<<30
}

// writeProfile writes a file that is either the old one or the new one.
func writeProfile(name string, p *profile.Profile) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".profile-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // of no effect once it is renamed
	if err := errors.Join(p.Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// readProfile reads a profile for serve.
func readProfile(name string) (*profile.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}
