package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bench"
)

func newBenchReplayCmd() *cobra.Command {
	var f benchFlags
	b := bench.Replay{Progress: progress, Now: time.Now, Sleep: sleepContext}
	slice := size(1 << 10)
	var trace, verify string
	var limit int
	cmd := &cobra.Command{
		Use:   "replay --trace FILE",
		Short: "Replay a Mooncake request trace: match, get layerwise, put what was missed",
		Long: `Replays a trace of requests (one JSON object a line: timestamp in ms,
input_length, output_length, hash_ids of 512-token prefix blocks). Each request
matches its prefix, gets what is there layer by layer and puts what it missed;
one chunk per hash id. Slices are scaled down by a factor the report states,
or the trace would be terabytes.

With --endpoint the chunks stay in the bucket under "replay/", and a second run
finds those of the first unless --salt differs.`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.StringVar(&trace, "trace", "", "trace file (needed)")
	fs.IntVar(&limit, "limit", 0, "requests to replay; 0: all")
	fs.IntVar(&b.Layers, "layers", 32, "layers of the model, L")
	fs.Var(&slice, "slice", "bytes of one layer of one chunk, S")
	fs.IntVar(&b.Concurrency, "concurrency", 4, "requests under way at a time")
	fs.Float64Var(&b.Speed, "speed", 0, "1: at the trace's times, 10: ten times as fast; 0: as fast as possible")
	fs.StringVar(&b.Salt, "salt", "", "tenant salt of the keys: runs with another find nothing of each other")
	fs.StringVar(&verify, "verify", string(bench.VerifySample), "bytes that are checked on arrival: sample, full or off")
	if err := cmd.MarkFlagRequired("trace"); err != nil {
		panic(err) // the flag is defined above
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if limit < 0 {
			return fmt.Errorf("--limit is %d", limit)
		}
		if b.Trace, err = readTraceFile(trace, limit); err != nil {
			return err
		}
		s, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		b.Slice, b.Target, b.Verify, b.Command = int64(slice), f.target, bench.Verify(verify), commandLine(cmd)
		r, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		if err := f.show(cmd.OutOrStdout(), r); err != nil {
			return err
		}
		if r.Errors > 0 {
			return fmt.Errorf("%d of %d requests failed", r.Errors, r.Requests)
		}
		return nil
	}
	return cmd
}

func readTraceFile(name string, limit int) ([]bench.TraceRequest, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return bench.ReadTrace(file, limit)
}

func sleepContext(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
