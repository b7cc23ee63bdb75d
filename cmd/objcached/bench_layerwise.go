package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bench"
)

func newBenchLayerwiseCmd() *cobra.Command {
	var f benchFlags
	b := bench.Layerwise{StartBare: startBare, Progress: progress}
	slice := size(64 << 10)
	var shapes string
	cmd := &cobra.Command{
		Use:   "layerwise",
		Short: "Get one prefix in five ways and compare them",
		Long: `Gets the same N chunks of L layers of S bytes in five ways, in turns:

  the bare limit in memory     pread and CRC32C of the same slices into the same memory
  the bare limit over HTTP     a minimal handler that does only that and writes, in a process of its own
  the layer-major body         one layerwise GET through the Go client
  whole-object GETs            N of them, through plain minio-go
  ranged GETs                  one for each (layer, chunk), through plain minio-go

With --transport shm two more:

  the bare limit of it         pread and CRC32C by as many threads as there are cores
  into shared memory           one layerwise GET into a registered buffer

With --transport fabric three more; the client needs twice the memory then:

  the bare loop over it        pread into registered memory and fi_writedata of it, by another process
  the bare limit of it         the same with CRC32C
  over the fabric              one layerwise GET into a registered buffer

With --shapes the prefixes of ObjectCache's tables are measured one after the
other, in place of --chunks, --layers and --slice.

Every byte of every way is checked once before the rounds. The client needs
N*L*S bytes of memory, the disk twice that. Beside each row stands the processor
time per GB of both processes.`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.IntVar(&b.Chunks, "chunks", 224, "chunks in the prefix, N")
	fs.IntVar(&b.Layers, "layers", 32, "layers of the model, L")
	fs.Var(&slice, "slice", "bytes of one layer of one chunk, S")
	fs.IntVar(&b.Rounds, "rounds", 9, "rounds; medians are reported")
	fs.IntVar(&b.Concurrency, "concurrency", 4, "plain GETs under way at a time")
	transport := f.addTransport(fs, "stream", "stream (response bodies), or beside them shm (shared memory; the store must be on this host) or fabric (libfabric)")
	fs.StringVar(&shapes, "shapes", "", "shapes to measure in one go: all, or some of n224-s16k, n224-s64k, n3584-s16k, n3584-s64k, n14-s1m")
	fs.StringSliceVar(&b.Skip, "skip", nil, "rows to leave out: layerwise, whole, ranged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := f.setTransport(*transport, "stream", "shm", "fabric"); err != nil {
			return err
		}
		b.Shm, b.Fabric = f.shm, f.fabric
		var set []bench.Shape
		if shapes != "" {
			if set, err = bench.ParseShapes(shapes); err != nil {
				return fmt.Errorf("--shapes: %w", err)
			}
		}
		s, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		b.Slice, b.Dir, b.Target, b.Command = int64(slice), s.dir, f.target, commandLine(cmd)
		b.Keep = f.keep || f.target.PID != 0 // a store of our own goes as a whole
		if set != nil {
			b.Keep = f.keep // the next shape needs the space
			r, err := (&bench.LayerwiseSet{Layerwise: b, Shapes: set}).Run(cmd.Context())
			if err != nil {
				return err
			}
			return f.show(cmd.OutOrStdout(), r)
		}
		r, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		return f.show(cmd.OutOrStdout(), r)
	}
	return cmd
}
