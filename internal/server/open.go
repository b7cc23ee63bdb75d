package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/objcached/objcached/bwsched/profile"
	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway"
	"github.com/objcached/objcached/internal/rate"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/local"
	"github.com/objcached/objcached/tenant"
	"github.com/objcached/objcached/transport/fabric"
	"github.com/objcached/objcached/transport/registry"
	"github.com/objcached/objcached/transport/shm"
)

// Options describe a server on an embedded store: what `objcached serve` takes.
type Options struct {
	Dir           string // of the store
	Capacity      int64  // bytes; 0: 90 % of what is free
	VolumeSize    int64  // bytes; 0: the store's default
	Verify        storage.VerifyMode
	ScrubInterval time.Duration // 0: no background scrub
	ScrubRate     int64         // bytes per second; 0: unlimited

	// RootAccessKey and RootSecretKey are the pair that may do everything. If
	// both are empty, the one kept in Dir is used, and made the first time.
	RootAccessKey, RootSecretKey string
	Credentials                  string // YAML file of further users; empty: none

	Listen, AdminListen string
	TLSCert, TLSKey     string // PEM files; empty: plain HTTP
	Domains             []string
	Region              string
	MaxConnections      int // 0: DefaultMaxConnections
	MaxRequests         int
	// MaxPerTenant 0 is three quarters of MaxRequests where there are users
	// besides root, so that no tenant can take every slot by being slow.
	MaxPerTenant    int
	StallTimeout    time.Duration
	ShutdownTimeout time.Duration
	ModeThreshold   int64 // bytes; see deliver.Config.Threshold
	AggSize         int64 // bytes; see deliver.Config.AggBytes
	// LinkRate is what KV deliveries may send together; 0: they are not paced.
	LinkRate rate.Rate
	Policy   string        // see bwsched.Names
	Margin   rate.Rate     // of policy cal-stall-opt
	Epoch    time.Duration // how long the paper's policies hold rates; 0: pace.Config's default
	// Calibration is what objcached calibrate found out: curves for policies that
	// learn, classes and compute windows. Its threshold and margin are not looked
	// at here: see ModeThreshold and Margin. nil: nothing is known.
	Calibration *profile.Profile
	// ShmListen is the path of the Unix socket that takes clients' memory;
	// empty: none. ShmBytes is the most they may register, by whatever transport;
	// 0: half of the machine's. One tenant may register three quarters of it where
	// there are users besides root.
	ShmListen string
	ShmBytes  int64
	// Fabric reaches memory on other hosts by libfabric; none if it has no Provider.
	// FabricBytes is the staging memory; 0: 64 MiB.
	Fabric      fabric.Config
	FabricBytes int64
	// Transports reach clients' memory too; clients prefer the first.
	Transports []OpenTransport
	Profile    bool

	Logger *slog.Logger
}

// Open opens the store and listens. What it prints for people to read (the
// root pair it made) goes to notices.
func Open(ctx context.Context, o Options, notices io.Writer) (_ *Server, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxPerTenant == 0 && o.Credentials != "" && o.MaxRequests > 0 {
		o.MaxPerTenant = max(1, o.MaxRequests*3/4)
	}
	var conf *tls.Config
	if o.TLSCert != "" || o.TLSKey != "" {
		if conf, err = LoadTLS(o.TLSCert, o.TLSKey); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
	}
	store, err := local.Open(ctx, local.Options{
		Dir: o.Dir, Capacity: o.Capacity, VolumeSize: o.VolumeSize, Verify: o.Verify, Logger: o.Logger,
		ScrubInterval: o.ScrubInterval, ScrubRate: o.ScrubRate,
		OnCorrupt: func(e *storage.CorruptError) {
			o.Logger.Error("corrupt block", "bucket", e.Bucket, "key", e.Key, "block", e.Block)
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	users, limits, err := openTenants(o, notices)
	if err != nil {
		return nil, err
	}
	link, err := openLink(o, limits)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && link != nil {
			err = errors.Join(err, link.Close())
		}
	}()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerStore(reg, store.Stats)
	data := deliver.New(store, deliver.Config{Threshold: o.ModeThreshold, AggBytes: o.AggSize, Share: o.Credentials != "", Observer: newDeliveries(reg), Link: link, Profile: o.Calibration})
	transports := o.Transports
	if o.ShmListen != "" { // first: where it can be had, nothing is faster
		transports = append([]OpenTransport{openShm(o.ShmListen)}, transports...)
	}
	if o.Fabric.Provider != "" {
		cfg := fabricConfig(o.Fabric, o.AggSize, o.FabricBytes)
		transports = append(transports, openFabric(cfg, func(stats func() fabric.Stats) { registerFabric(reg, stats) }))
	}
	var mem gateway.Memory
	var memCloser io.Closer
	if len(transports) > 0 {
		var m *memory
		if m, err = openMemory(memoryLimits(o, registry.Config{Bytes: cmp.Or(o.ShmBytes, shm.HalfOfMemory())}), transports, o.Logger); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, m.Close())
			}
		}()
		registerMemory(reg, m.reg.Stats)
		m.data, mem, memCloser = data, m, m
	}
	if link != nil {
		registerLink(reg, o.Policy, link.Stats)
	}
	return New(Config{
		Gateway: gateway.Config{
			Store: store, Memory: mem, Tenants: users, Domains: o.Domains, Region: o.Region,
			Deliverer: gateway.DelivererFunc(func(ctx context.Context, who *tenant.Identity, bucket string, d *descriptor.Descriptor) (gateway.Delivery, error) {
				y, err := data.PrepareFor(ctx, who.Tenant, bucket, d)
				if err != nil {
					return nil, err // not a nil *Delivery in an interface
				}
				if err := y.Schedule(ctx, who.Tenant); err != nil {
					return nil, errors.Join(err, y.Close())
				}
				return y, nil
			}),
			MaxRequests: o.MaxRequests, MaxPerTenant: o.MaxPerTenant, StallTimeout: o.StallTimeout,
		},
		Memory: memCloser, Link: link,
		Listen: o.Listen, AdminListen: o.AdminListen, MaxConnections: o.MaxConnections, TLS: conf, Profile: o.Profile, Scrubber: store,
		ShutdownTimeout: o.ShutdownTimeout, Logger: o.Logger, Registry: reg,
	})
}
