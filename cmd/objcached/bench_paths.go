package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bench"
)

func newBenchPathsCmd() *cobra.Command {
	var f benchFlags
	b := bench.Paths{Layerwise: bench.Layerwise{StartBare: startBare, Progress: progress}}
	slice := size(64 << 10)
	var sweep []string
	cmd := &cobra.Command{
		Use:   "paths",
		Short: "Get one prefix by the five S3 paths and compare them",
		Long: `Gets the same N chunks of L layers of S bytes by the five paths of an S3 store
with access to the client's memory, in turns, each beside a bare loop that does
the same unavoidable work in the same run:

  S3TCP          a plain GET for each chunk
  S3RDMA Buffer  a GET for each chunk into the client's memory, staged in the server's
  S3RDMA Direct  the same without staging; and once more with a GET for each (layer, chunk)
  S3RDMA Batch   one request for all chunks, chunk by chunk
  S3RDMA Agg     one request for all chunks, layer by layer

Then the chunks are stored by the first three. At last the store is started
again with each aggregation size of --sweep, how many bytes of a layer are
gathered at a time, and S3RDMA Agg is measured anew. A store given by --endpoint
is not started again, so there is no sweep.

Every byte of every row is checked once before the rounds. The client needs
N*L*S bytes of memory, the disk twice that.`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.IntVar(&b.Chunks, "chunks", 224, "chunks in the prefix, N")
	fs.IntVar(&b.Layers, "layers", 32, "layers of the model, L")
	fs.Var(&slice, "slice", "bytes of one layer of one chunk, S; Llama 3.1 8B has 4KiB a token, so the default is G=16")
	fs.IntVar(&b.Rounds, "rounds", 9, "rounds; medians are reported")
	fs.IntVar(&b.Concurrency, "concurrency", 8, "requests for single objects under way at a time")
	fs.BoolVar(&b.Puts, "puts", true, "also store the chunks, by S3TCP, S3RDMA Buffer and S3RDMA Direct")
	fs.StringSliceVar(&sweep, "sweep", []string{"512KiB", "1MiB", "2MiB", "4MiB", "8MiB"}, "aggregation sizes; empty for none")
	transport := f.addTransport(fs, "shm", "shm (memory shared on this host) or fabric (libfabric)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := f.setTransport(*transport, "shm", "fabric"); err != nil {
			return err
		}
		b.Fabric = f.fabric
		for _, v := range sweep {
			var n size
			if err := n.Set(v); err != nil {
				return fmt.Errorf("--sweep: %w", err)
			}
			b.Sweep = append(b.Sweep, int64(n))
		}
		s, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		b.Slice, b.Dir, b.Target, b.Command = int64(slice), s.dir, f.target, commandLine(cmd)
		b.Keep = f.keep || f.target.PID != 0
		if s.stopServer != nil {
			b.Restart = func(ctx context.Context, size int64) (bench.Target, error) {
				err := s.restart(ctx, &f, fmt.Sprintf("--agg-size=%d", size))
				return f.target, err
			}
		}
		r, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		return f.show(cmd.OutOrStdout(), r)
	}
	return cmd
}
