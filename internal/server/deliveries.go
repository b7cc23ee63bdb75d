package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
)

// deliveries turns what the data path reports into metrics.
type deliveries struct {
	total      *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	chunks     *prometheus.CounterVec
	truncated  prometheus.Counter
	refused    *prometheus.CounterVec
	firstLayer prometheus.Histogram
	duration   *prometheus.HistogramVec
}

// NewDeliveryObserver registers the metrics of layerwise deliveries with reg
// and returns the observer that keeps them.
func NewDeliveryObserver(reg prometheus.Registerer) deliver.Observer {
	f := promauto.With(reg)
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 18)
	return &deliveries{
		total: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_deliveries_total", Help: "Layerwise GETs begun, by mode and by whether the payload was whole."}, []string{"mode", "result"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_delivered_bytes_total", Help: "Payload bytes of layerwise GETs."}, []string{"mode"}),
		chunks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_delivery_chunks_total", Help: "Chunks named by layerwise GETs, by whether they were matched."}, []string{"result"}),
		truncated: f.NewCounter(prometheus.CounterOpts{
			Name: "objcached_deliveries_truncated_total", Help: "Layerwise GETs that served a shorter prefix than was asked for."}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_deliveries_refused_total", Help: "Layerwise GETs refused because of a limit."}, []string{"limit"}),
		firstLayer: f.NewHistogram(prometheus.HistogramOpts{
			Name: "objcached_first_layer_seconds", Help: "Time from the parsed request to its first layer written out, in layer mode.", Buckets: seconds}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "objcached_delivery_seconds", Help: "Time from the parsed request to the end of its payload.", Buckets: seconds}, []string{"mode"}),
	}
}

func (d *deliveries) Delivered(r deliver.Report) {
	mode, result := string(r.Mode), "whole"
	if r.Err != nil {
		result = "broken"
	}
	d.total.WithLabelValues(mode, result).Inc()
	d.bytes.WithLabelValues(mode).Add(float64(r.Bytes))
	d.chunks.WithLabelValues("matched").Add(float64(r.Matched))
	d.chunks.WithLabelValues("missing").Add(float64(r.Requested - r.Matched))
	if r.Matched < r.Requested {
		d.truncated.Inc()
	}
	if r.Mode == descriptor.Layer && r.Layers > 0 {
		d.firstLayer.Observe(r.FirstLayer.Seconds())
	}
	d.duration.WithLabelValues(mode).Observe(r.Total.Seconds())
}

func (d *deliveries) Refused(limit string) { d.refused.WithLabelValues(limit).Inc() }
