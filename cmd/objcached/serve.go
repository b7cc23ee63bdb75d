package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/internal/rate"
	"github.com/objcached/objcached/internal/server"
	"github.com/objcached/objcached/storage"
)

// Environment of serve. Secrets do not go into flags, which others can see.
const (
	envAccessKey = "OBJCACHED_ACCESS_KEY"
	envSecretKey = "OBJCACHED_SECRET_KEY"
)

type serveFlags struct {
	server.Options
	capacity, volumeSize, scrubRate, threshold, shmBytes, aggSize, fabricBuffers size
	verify, logFormat, logLevel, profile                                         string
}

func serveCommand() *cobra.Command { return new(serveFlags).command() }

func (f *serveFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve --data DIR",
		Short: "Serve S3 and the KV requests on a directory",
		Long: `Serve S3 and the KV requests on the store in a directory, which is made if
there is none.

The root pair, which may do everything, comes from the environment variables
OBJCACHED_ACCESS_KEY and OBJCACHED_SECRET_KEY. Without them one is made, kept
in the directory and printed once.

Further users come from a YAML file:

  users:
    - name: prefill
      tenant: llama
      access_key: PREFILL
      secret_key: some long secret
      buckets: ["llama-*"]     # patterns: * is any run, ? any one character
  tenants:                     # what they may have of the link, all optional
    - name: llama
      weight: 2                # guaranteed part of what minimum rates leave
      min_rate: 1Gbps          # guaranteed besides
      max_rate: 8Gbps

With --link-rate the KV deliveries share a link of that rate: a policy gives
each its rate, from the bytes and the compute window (layer_compute_us) of its
layers. Chunk-mode deliveries and those without a window get equal shares.
Plain S3 requests are not paced.

The server says "listening on URL" on standard output when it is ready; its
log goes to standard error. SIGTERM or SIGINT lets the requests in flight
finish and closes the store; a second signal ends the program at once.`,
		Example: `  # A store in ./data, reached from this machine only
  objcached serve --data ./data

  # Open to the network with TLS, users of its own, and bucket.kv.example.com
  objcached serve --data /srv/kv --listen 0.0.0.0:9000 --domain kv.example.com \
      --tls-cert cert.pem --tls-key key.pem --credentials users.yaml

  # Layers straight into the memory of clients on this host
  objcached serve --data ./data --shm-listen /run/objcached/shm.sock

  # Layers into the memory of clients on other hosts, by RDMA (make build-fabric)
  objcached serve --data /srv/kv --listen 0.0.0.0:9000 --fabric-provider 'verbs;ofi_rxm' \
      --fabric-interface ens1f0

  # KV deliveries share 10 Gbps so that prefills wait least
  objcached serve --data ./data --link-rate 10Gbps --policy ttft-opt

  # The same, by what objcached calibrate found out about this machine
  objcached serve --data ./data --link-rate 10Gbps --profile profile.json

  # Read every block again once a week, at 100 MiB/s
  objcached serve --data ./data --scrub-interval 168h --scrub-rate 100MiB

  # What it is doing
  curl http://127.0.0.1:9001/metrics
  curl http://127.0.0.1:9001/healthz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.useProfile(cmd); err != nil {
				return err
			}
			if err := f.finish(cmd.ErrOrStderr()); err != nil {
				return err
			}
			s, err := server.Open(cmd.Context(), f.Options, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return s.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Dir, "data", "", "directory of the store (required)")
	fl.StringVar(&f.Listen, "listen", "127.0.0.1:9000", "address to serve S3 on; port 0 takes a free one")
	fl.StringVar(&f.AdminListen, "admin-listen", "127.0.0.1:9001", "address of /metrics, /healthz and /verify, for operators only; empty for none")
	fl.StringVar(&f.Credentials, "credentials", "", "YAML file of users")
	fl.StringVar(&f.TLSCert, "tls-cert", "", "certificate chain, PEM")
	fl.StringVar(&f.TLSKey, "tls-key", "", "private key, PEM")
	fl.StringSliceVar(&f.Domains, "domain", nil, "domain below which a host name is a bucket: bucket.domain; may be repeated")
	fl.StringVar(&f.Region, "region", "us-east-1", "region that clients sign for")
	fl.StringVar(&f.verify, "verify", "always", "when reads check the CRC of each block: always, first-read (once per start) or off")
	fl.Var(&f.threshold, "mode-threshold", "payload from which a layerwise GET with delivery auto goes layer by layer; below it goes chunk by chunk")
	fl.Var(&f.aggSize, "agg-size", "bytes of one layer that are gathered at a time on their way to a client's memory (default: chosen for each request, 512KiB or less)")
	fl.Var(&f.LinkRate, "link-rate", "what KV deliveries may send together, like 10Gbps or 1.25GB/s; 0: they are not paced")
	fl.StringVar(&f.Policy, "policy", "ttft-opt", "how the link is shared: "+strings.Join(bwsched.Names(), ", "))
	f.Margin = 5e9 / 8
	fl.Var(&f.Margin, "margin", "what cal-stall-opt adds to the rates at which transfers hide behind computing")
	fl.DurationVar(&f.Epoch, "epoch", 50*time.Millisecond, "how long rates hold; ttft-opt also plans at every arrival, first layer and finish")
	fl.StringVar(&f.profile, "profile", "", "file that objcached calibrate wrote: mode threshold and margin, unless their flags are given, curves, and compute windows of requests that do not say theirs")
	fl.StringVar(&f.ShmListen, "shm-listen", "", "path of a Unix socket, made with mode 0600, at which clients on this host hand over memory for layers to be put into; empty for none")
	fl.Var(&f.shmBytes, "shm-bytes", "most memory that clients may hand over or register, on all ways together (default half of the machine's); one tenant at most three quarters of it if there is a --credentials file")
	fl.StringVar(&f.Fabric.Provider, "fabric-provider", "", "libfabric provider by which layers go into the memory of clients on other hosts: 'verbs;ofi_rxm' (RoCE, InfiniBand), efa (AWS), 'tcp;ofi_rxm' (any network, without RDMA), shm; empty for none. Needs a binary of make build-fabric")
	fl.StringVar(&f.Fabric.Interface, "fabric-interface", "", "network interface whose device is used, like ens1f0; objcached doctor lists them (default: the fastest with an RDMA device, for verbs; else the provider chooses)")
	fl.StringVar(&f.Fabric.Node, "fabric-node", "", "address of the device to use, in place of --fabric-interface")
	fl.Var(&f.fabricBuffers, "fabric-buffers", "memory registered with the device for data on its way, all deliveries together; pieces of it are as large as --agg-size, or 1MiB (default 64MiB)")
	fl.Var(&f.capacity, "capacity", "most that the store may take (default: 90 % of what is free)")
	fl.Var(&f.volumeSize, "volume-size", "size of new volume files (default: chosen by the store)")
	fl.IntVar(&f.MaxConnections, "max-connections", 0, "connections open; others are closed (default: 8192, or half of the descriptors of the process if that is less)")
	fl.IntVar(&f.MaxRequests, "max-requests", 256, "requests in flight; as many may wait, and others get 503 SlowDown")
	fl.IntVar(&f.MaxPerTenant, "max-requests-per-tenant", 0, "requests in flight of one tenant; 0: three quarters of --max-requests if there is a --credentials file, else no limit; negative: no limit")
	fl.DurationVar(&f.StallTimeout, "stall-timeout", 30*time.Second, "how long a client may stop reading or sending before it is dropped")
	fl.DurationVar(&f.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "how long requests in flight may take to finish at the end")
	fl.DurationVar(&f.ScrubInterval, "scrub-interval", 0, "time between background scrubs of the whole store; 0: none")
	fl.Var(&f.scrubRate, "scrub-rate", "bytes per second that a background scrub reads; 0: as fast as it can")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug (a line for every request), info, warn or error")
	fl.BoolVar(&f.Profile, "pprof", false, "serve /debug/pprof on the admin address")
	if err := cmd.MarkFlagRequired("data"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// useProfile reads the profile. Flags that were given win over it.
func (f *serveFlags) useProfile(cmd *cobra.Command) (err error) {
	if f.profile == "" {
		return nil
	}
	if f.Calibration, err = readProfile(f.profile); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if t := f.Calibration.ModeThreshold; t != nil && !cmd.Flags().Changed("mode-threshold") {
		f.threshold = size(*t)
	}
	if m := f.Calibration.Margin; m != nil && !cmd.Flags().Changed("margin") {
		f.Margin = rate.Rate(*m)
	}
	return nil
}

// finish turns the flags and the environment into options.
func (f *serveFlags) finish(log io.Writer) (err error) {
	f.Capacity, f.VolumeSize = int64(f.capacity), int64(f.volumeSize)
	f.ScrubRate, f.ModeThreshold = int64(f.scrubRate), int64(f.threshold)
	f.ShmBytes, f.AggSize = int64(f.shmBytes), int64(f.aggSize)
	f.FabricBytes = int64(f.fabricBuffers)
	if err := f.checkFabric(); err != nil {
		return err
	}
	if f.Options.Verify, err = verifyMode(f.verify); err != nil {
		return err
	}
	if f.Logger, err = newLogger(log, f.logFormat, f.logLevel); err != nil {
		return err
	}
	if !slices.Contains(bwsched.Names(), f.Policy) {
		return fmt.Errorf("--policy %q: it is one of %s", f.Policy, strings.Join(bwsched.Names(), ", "))
	}
	if f.Epoch <= 0 {
		return fmt.Errorf("--epoch %v: it must be above 0", f.Epoch)
	}
	if (f.TLSCert == "") != (f.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	f.RootAccessKey, f.RootSecretKey = os.Getenv(envAccessKey), os.Getenv(envSecretKey)
	if (f.RootAccessKey == "") != (f.RootSecretKey == "") {
		return fmt.Errorf("%s and %s go together", envAccessKey, envSecretKey)
	}
	return nil
}

// checkFabric refuses flags that would do nothing.
func (f *serveFlags) checkFabric() error {
	c := &f.Fabric
	switch {
	case c.Provider == "" && (c.Interface != "" || c.Node != "" || f.FabricBytes != 0):
		return errors.New("--fabric-interface, --fabric-node and --fabric-buffers go with --fabric-provider")
	case c.Interface != "" && c.Node != "":
		return errors.New("--fabric-interface and --fabric-node are two ways to say the same: give one")
	}
	return nil
}

func verifyMode(name string) (storage.VerifyMode, error) {
	switch name {
	case "always":
		return storage.VerifyAlways, nil
	case "first-read":
		return storage.VerifyFirstRead, nil
	case "off":
		return storage.VerifyOff, nil
	}
	return 0, fmt.Errorf("--verify %q: it is always, first-read or off", name)
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: it is debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: it is text or json", format)
}
