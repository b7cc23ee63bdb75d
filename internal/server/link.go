package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/tenant"
)

// openLink makes the link that KV deliveries share, or returns nil if they
// are not paced.
func openLink(o Options, limits map[string]tenant.Limits) (*pace.Link, error) {
	if o.LinkRate == 0 {
		if len(limits) > 0 {
			o.Logger.Warn("the tenants' limits have no effect without a link rate", "tenants", len(limits))
		}
		return nil, nil
	}
	policy, err := linkPolicy(o)
	if err != nil {
		return nil, err
	}
	cfg := pace.Config{Capacity: float64(o.LinkRate), Policy: policy, Epoch: o.Epoch, Tenants: make(map[string]pace.Limits, len(limits))}
	if c := o.Calibration; c != nil {
		cfg.Curves = c.Curves
	}
	for name, l := range limits {
		cfg.Tenants[name] = pace.Limits(l)
	}
	link, err := pace.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	o.Logger.Info("KV deliveries are paced", "rate", o.LinkRate.String(), "policy", o.Policy)
	return link, nil
}

// linkPolicy makes the policy, and tells it what calibration has found out.
func linkPolicy(o Options) (bwsched.Policy, error) {
	p, err := bwsched.ByName(o.Policy, float64(o.Margin))
	if err == nil && o.Calibration != nil && o.Calibration.Curves != nil {
		bwsched.UseCurves(p, o.Calibration.Curves) // nobody observes them: they stay as they were read
	}
	return p, err
}

// registerLink exposes what a link does.
func registerLink(reg prometheus.Registerer, policy string, stats func() pace.Stats) {
	f := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"policy": policy}, reg))
	gauge := func(name, help string, labels prometheus.Labels, value func(pace.Stats) float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "objcached_link_" + name, Help: help, ConstLabels: labels},
			func() float64 { return value(stats()) })
	}
	gauge("capacity_bytes_per_second", "What KV deliveries may send together.", nil, func(s pace.Stats) float64 { return s.Capacity })
	gauge("granted_bytes_per_second", "Sum of the rates that are granted.", nil, func(s pace.Stats) float64 { return s.Granted })
	const flows = "Deliveries on the link: in the policy's pool, or with a fair share outside of it."
	gauge("flows", flows, prometheus.Labels{"share": "pool"}, func(s pace.Stats) float64 { return float64(s.Pool) })
	gauge("flows", flows, prometheus.Labels{"share": "fair"}, func(s pace.Stats) float64 { return float64(s.Outside) })
	gauge("waiting", "Pieces of deliveries that wait for leave.", nil, func(s pace.Stats) float64 { return float64(s.Waiting) })
	counter := func(name, help string, value func(pace.Stats) float64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: "objcached_link_" + name, Help: help},
			func() float64 { return value(stats()) })
	}
	counter("bytes_total", "Bytes that were given leave.", func(s pace.Stats) float64 { return float64(s.Bytes) })
	counter("wait_seconds_total", "Time that pieces have waited for leave, together.", func(s pace.Stats) float64 { return s.Waited.Seconds() })
	counter("plans_total", "Plans of rates made.", func(s pace.Stats) float64 { return float64(s.Plans) })
	counter("learnt_total", "Deliveries from which a policy that learns has taken a point of its curves.", func(s pace.Stats) float64 { return float64(s.Learnt) })
	counter("refused_total", "Deliveries refused because of a limit of the link.", func(s pace.Stats) float64 { return float64(s.Refused) })
}
