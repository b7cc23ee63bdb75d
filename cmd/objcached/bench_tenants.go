package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bench"
	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/internal/rate"
)

func newBenchTenantsCmd() *cobra.Command {
	var f benchFlags
	b := bench.Tenants{Progress: progress}
	var out string
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "Run prefills that share a link, under each bandwidth policy",
		Long: `Runs the workloads A, B and C of the ObjectCache paper live: 4 or 6 prefills of
Llama 3.1 8B at once, each by a client of its own, against one store whose link
is held to 80 or 50 Gbps and shared by a policy. Prints, for each policy, what
that adds to the prefills' time to first token, summed over the requests, beside
what a simulator of Eq. 3 predicts.

Bytes and caps are divided by --scale, so that every time stays what it was in
the paper. A timer stands for the GPU. The store is started anew for each run,
with --link-rate, --policy, --margin and --epoch. One run lasts 9 to 25 s, a
round of everything five minutes; --speed divides bytes and times.

Policies: ` + strings.Join(bwsched.Names(), ", ") + `.
hull-opt is left out unless it is named: it learns from deliveries, and a store
that was just started has none.`,
		Example: `  # Everything, with the picture: half an hour
  objcached bench tenants --out results

  # A look, in a minute
  objcached bench tenants --workloads A --rounds 3 --speed 4`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.addOwn(fs)
	fs.StringSliceVar(&b.Workloads, "workloads", []string{"A", "B", "C"}, "which workloads")
	fs.StringSliceVar(&b.Policies, "policies", slices.DeleteFunc(bwsched.Names(), func(n string) bool { return n == "hull-opt" }), "which policies")
	fs.StringVar(&b.Transport, "transport", "shm", "stream (response bodies) or shm (shared memory)")
	fs.IntVar(&b.Rounds, "rounds", 5, "rounds; medians are reported")
	fs.IntVar(&b.Scale, "scale", 16, "divide bytes and caps by this")
	fs.IntVar(&b.Speed, "speed", 1, "divide bytes and times by this; --scale times --speed must divide 128")
	fs.Float64Var(&b.MarginGbps, "margin-gbps", 5, "margin of cal-stall-opt, before --scale")
	fs.DurationVar(&b.Epoch, "epoch", 50*time.Millisecond, "how long the policies that do not follow the requests hold rates, before --speed")
	fs.StringVar(&out, "out", "", "directory for tenants.json and tenants.png; made if there is none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := b.Check(); err != nil {
			return err
		}
		f.shm = b.Transport == "shm"
		s, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		b.Start = func(ctx context.Context, link float64, policy string, margin float64, epoch time.Duration) (bench.Target, error) {
			var flags []string
			if link > 0 {
				flags = linkFlags(link, policy, margin, epoch)
			}
			err := s.restart(ctx, &f, flags...)
			return f.target, err
		}
		b.Command = commandLine(cmd)
		r, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		return errors.Join(f.show(cmd.OutOrStdout(), r), results(out, "tenants", r))
	}
	return cmd
}

// linkFlags are the flags of serve for a link; rates in bytes per second.
func linkFlags(link float64, policy string, margin float64, epoch time.Duration) []string {
	return []string{"--link-rate", rate.Rate(link).String(), "--policy", policy, "--margin", rate.Rate(margin).String(), "--epoch", epoch.String()}
}
