package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the front's own; those of the store are registered beside them.
type metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	bytesIn   prometheus.Counter
	bytesOut  prometheus.Counter
	inFlight  prometheus.Gauge
	slowDowns prometheus.Counter
	panics    prometheus.Counter
}

// newMetrics registers with reg; nil keeps the metrics without exposing them.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_requests_total", Help: "Requests by operation and HTTP status."}, []string{"op", "code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "objcached_request_seconds", Help: "Time from the request's headers to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18)}, []string{"op"}),
		bytesIn: f.NewCounter(prometheus.CounterOpts{
			Name: "objcached_received_bytes_total", Help: "Bytes of request bodies, as framed on the wire."}),
		bytesOut: f.NewCounter(prometheus.CounterOpts{
			Name: "objcached_sent_bytes_total", Help: "Bytes of answer bodies."}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "objcached_requests_in_flight", Help: "Requests being served or queued."}),
		slowDowns: f.NewCounter(prometheus.CounterOpts{
			Name: "objcached_slow_downs_total", Help: "Requests refused because a limit was reached."}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Name: "objcached_panics_total", Help: "Panics caught in handlers; every one is a bug."}),
	}
}
