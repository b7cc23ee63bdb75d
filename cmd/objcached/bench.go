package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/objcached/objcached/bench"
	"github.com/objcached/objcached/transport/fabric"
)

func init() { commands = append(commands, newBenchCmd) }

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a store beside the machine's own limits",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newBenchLayerwiseCmd(), newBenchPathsCmd(), newBenchTTFTCmd(), newBenchTenantsCmd(), newBenchReplayCmd(), newBareServerCmd())
	return cmd
}

// benchFlags are what the benchmarks share.
type benchFlags struct {
	target bench.Target
	data   string
	json   string
	keep   bool
	serve  []string
	shm    bool // the store that is started takes shared memory
	fabric bench.Fabric
}

func (f *benchFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.target.Endpoint, "endpoint", "", "store to measure, like http://127.0.0.1:9000 (default: start one of our own on a new store)")
	fs.StringVar(&f.target.AccessKey, "access-key", os.Getenv("OBJCACHED_ACCESS_KEY"), "access key of --endpoint (or OBJCACHED_ACCESS_KEY)")
	fs.StringVar(&f.target.SecretKey, "secret-key", os.Getenv("OBJCACHED_SECRET_KEY"), "secret key of --endpoint (or OBJCACHED_SECRET_KEY)")
	fs.StringVar(&f.target.Bucket, "bucket", "objcached-bench", "bucket; made if it does not exist")
	f.addOwn(fs)
	// A default from the environment must not show up in the help text.
	fs.Lookup("access-key").DefValue, fs.Lookup("secret-key").DefValue = "", ""
}

// addOwn adds the flags of a benchmark that starts its own store.
func (f *benchFlags) addOwn(fs *pflag.FlagSet) {
	if f.target.Bucket == "" {
		f.target.Bucket = "objcached-bench"
	}
	fs.StringVar(&f.data, "data", "", "directory for temporary data (default: the system's)")
	fs.StringVar(&f.json, "json", "", `write the report as JSON to this file, "-" for standard output in place of the table`)
	fs.BoolVar(&f.keep, "keep", false, "leave the store's directory, or the chunks in --bucket, behind")
	fs.StringArrayVar(&f.serve, "serve-flag", nil, "one more flag for the store that is started, like --serve-flag=--verify=off; may be repeated")
}

// addTransport defines --transport and what belongs to it.
func (f *benchFlags) addTransport(fs *pflag.FlagSet, value, usage string) *string {
	fs.StringVar(&f.fabric.Provider, "fabric-provider", "tcp;ofi_rxm", "with --transport fabric: the libfabric provider")
	fs.StringVar(&f.fabric.Node, "fabric-node", "127.0.0.1", "with --transport fabric: address of the device")
	return fs.String("transport", value, usage)
}

// setTransport sets what the store is started with.
func (f *benchFlags) setTransport(name string, known ...string) error {
	if !slices.Contains(known, name) {
		return fmt.Errorf("--transport %q: it is one of %s", name, strings.Join(known, ", "))
	}
	f.shm = name == "shm"
	if name != "fabric" {
		f.fabric = bench.Fabric{}
	} else if !fabric.Built {
		return fabric.ErrNotBuilt
	}
	return nil
}

// session is what one benchmark works in.
type session struct {
	dir        string
	stops      []func() error
	stopServer func() error // of our own; nil: the store is another's
	log        *os.File
}

// open makes a temporary directory and, without --endpoint, starts a store in it.
func (f *benchFlags) open(ctx context.Context) (_ *session, err error) {
	s := &session{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp(f.data, "objcached-bench-"); err != nil {
		return nil, err
	}
	own := f.target.Endpoint == ""
	if !own || !f.keep {
		s.stops = append(s.stops, func() error { return os.RemoveAll(s.dir) })
	} else {
		fmt.Fprintln(os.Stderr, "objcached bench: the store stays in", s.dir)
	}
	if !own {
		return s, nil
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "serve.log")); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, s.log.Close, func() error { return s.stopServer() })
	s.stopServer = func() error { return nil }
	return s, s.start(ctx, f)
}

// start starts a store on the session's directory.
func (s *session) start(ctx context.Context, f *benchFlags, more ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	f.target.AccessKey, f.target.SecretKey = "bench", "bench-secret-of-a-store-on-loopback"
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--data", filepath.Join(s.dir, "store")}, f.serve...)
	if f.shm {
		args = append(args, "--shm-listen", filepath.Join(s.dir, "shm.sock"))
	}
	if f.fabric.Provider != "" {
		args = append(args, "--fabric-provider", f.fabric.Provider, "--fabric-node", f.fabric.Node)
	}
	p, err := bench.StartProcess(ctx, s.log, []string{
		"OBJCACHED_ACCESS_KEY=" + f.target.AccessKey, "OBJCACHED_SECRET_KEY=" + f.target.SecretKey,
	}, exe, append(args, more...)...)
	if err != nil {
		return errors.Join(err, tail(s.log.Name()))
	}
	s.stopServer = p.Stop
	f.target.Endpoint, f.target.PID = p.URL, p.PID()
	return nil
}

// restart starts the store anew, with more flags.
func (s *session) restart(ctx context.Context, f *benchFlags, more ...string) error {
	err := s.stopServer()
	s.stopServer = func() error { return nil }
	if err != nil {
		return err
	}
	return s.start(ctx, f, more...)
}

// close stops and removes what open made, the last first.
func (s *session) close() error {
	var errs []error
	for _, stop := range slices.Backward(s.stops) {
		errs = append(errs, stop())
	}
	s.stops = nil
	return errors.Join(errs...)
}

// tail is the end of a log as an error: why a server did not start.
func tail(name string) error {
	data, err := os.ReadFile(name)
	if err != nil || len(data) == 0 {
		return err
	}
	return errors.New(string(data[max(0, len(data)-2000):]))
}

// startBare runs the bare server as a process of its own, like the store.
func startBare(ctx context.Context, file string, g bench.Geometry) (bench.BareServer, error) {
	exe, err := os.Executable()
	if err != nil {
		return bench.BareServer{}, err
	}
	p, err := bench.StartProcess(ctx, os.Stderr, nil, exe, "bench", "bare-server", "--file", file,
		"--chunks", strconv.Itoa(g.Chunks), "--layers", strconv.Itoa(g.Layers), "--slice", strconv.FormatInt(g.Slice, 10))
	if err != nil {
		return bench.BareServer{}, err
	}
	return bench.BareServer{URL: p.URL, PID: p.PID(), Stop: p.Stop}, nil
}

// newBareServerCmd is the other side of the bare HTTP loop.
func newBareServerCmd() *cobra.Command {
	var file string
	var g bench.Geometry
	slice := size(64 << 10)
	cmd := &cobra.Command{
		Use:    "bare-server",
		Short:  "Serve a chunk file layer by layer with a minimal handler (used by bench layerwise)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			g.Slice = int64(slice)
			return bareServer(cmd, file, g)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "chunk file")
	cmd.Flags().IntVar(&g.Chunks, "chunks", 0, "chunks in the file")
	cmd.Flags().IntVar(&g.Layers, "layers", 0, "layers of a chunk")
	cmd.Flags().Var(&slice, "slice", "bytes of one layer of one chunk")
	return cmd
}

func bareServer(cmd *cobra.Command, file string, g bench.Geometry) error {
	h, err := bench.NewBareHandler(file, g)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go func() { // whoever started it has gone when standard input ends
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
		cancel()
	}()
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // Serve returns
	defer stop()
	fmt.Fprintf(cmd.OutOrStdout(), "listening on http://%s\n", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// report is what the benchmarks print.
type report interface{ WriteTable(w io.Writer) error }

// show prints the table, the JSON, or both.
func (f *benchFlags) show(out io.Writer, r report) error {
	if f.json == "-" {
		return bench.WriteJSON(out, r)
	}
	if err := r.WriteTable(out); err != nil || f.json == "" {
		return err
	}
	file, err := os.Create(f.json)
	if err != nil {
		return err
	}
	return errors.Join(bench.WriteJSON(file, r), file.Close())
}

// commandLine is the command that makes a figure, fit to be published: flags
// that were set, without secrets, directories and addresses.
func commandLine(cmd *cobra.Command) string {
	parts := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		v := f.Value.String()
		switch f.Name {
		case "access-key", "secret-key", "data", "json", "keep", "out":
			return
		case "endpoint":
			v = "URL"
		case "trace":
			v = filepath.Base(v)
		case "serve-flag":
			v = strings.Trim(v, "[]")
		case "contexts", "hits", "g", "transport", "workloads", "policies":
			v = strings.Trim(v, "[]") // lists, where they are
		}
		parts = append(parts, "--"+f.Name+" "+v)
	})
	return strings.Join(parts, " ")
}

// noProgress is for output that no one watches.
type noProgress struct{}

func (noProgress) Add(int64) {}
func (noProgress) Done()     {}

// terminalProgress is a bar on standard error.
type terminalProgress struct{ bar *progressbar.ProgressBar }

func (p terminalProgress) Add(n int64) { _ = p.bar.Add64(n) } // a terminal that is gone is no failure
func (p terminalProgress) Done()       { _ = p.bar.Finish(); _ = p.bar.Clear() }

// progress makes bars if standard error is a terminal.
func progress(title string, total int64) bench.Progress {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return noProgress{}
	}
	return terminalProgress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
	)}
}
