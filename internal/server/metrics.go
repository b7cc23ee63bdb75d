package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/storage/object"
	"github.com/objcached/objcached/transport/fabric"
	"github.com/objcached/objcached/transport/registry"
)

// registerStore exposes the sizes and counters of a store.
func registerStore(reg prometheus.Registerer, stats func() object.Stats) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func(object.Stats) int64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "objcached_store_" + name, Help: help},
			func() float64 { return float64(value(stats())) })
	}
	gauge("capacity_bytes", "The most that the volumes may grow to.", func(s object.Stats) int64 { return s.Blob.Capacity })
	gauge("reserved_bytes", "Bytes in extents, rounded up to their alignment.", func(s object.Stats) int64 { return s.Blob.Reserved })
	gauge("volumes", "Volume files.", func(s object.Stats) int64 { return int64(s.Blob.Volumes) })
	gauge("garbage", "Dropped objects and parts whose extents are not free yet.", func(s object.Stats) int64 { return s.Garbage })
	gauge("open_objects", "Objects that are pinned by readers.", func(s object.Stats) int64 { return s.OpenObjects })
	counter := func(name, help string, value func(object.Stats) int64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: "objcached_store_" + name, Help: help},
			func() float64 { return float64(value(stats())) })
	}
	counter("corrupt_blocks_total", "Blocks that did not match their CRC.", func(s object.Stats) int64 { return s.CorruptBlocks })
	counter("doubtful_commits_total", "Commits whose outcome was left open by an error.", func(s object.Stats) int64 { return s.Doubtful })
}

// registerMemory exposes what clients' memory holds.
func registerMemory(reg prometheus.Registerer, stats func() registry.Stats) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func(registry.Stats) int64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "objcached_memory_" + name, Help: help},
			func() float64 { return float64(value(stats())) })
	}
	gauge("registered_bytes", "Bytes of clients' memory that are registered.", func(s registry.Stats) int64 { return s.Bytes })
	gauge("registrations", "Registrations of clients' memory.", func(s registry.Stats) int64 { return int64(s.Registrations) })
	gauge("pending", "Registrations that are not confirmed yet.", func(s registry.Stats) int64 { return int64(s.Pending) })
	gauge("transfers", "Deliveries into clients' memory under way.", func(s registry.Stats) int64 { return int64(s.Transfers) })
}

// registerFabric exposes what delivery over libfabric holds.
func registerFabric(reg prometheus.Registerer, stats func() fabric.Stats) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func(fabric.Stats) int64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "objcached_fabric_" + name, Help: help},
			func() float64 { return float64(value(stats())) })
	}
	gauge("buffers", "Staging buffers.", func(s fabric.Stats) int64 { return int64(s.Buffers) })
	gauge("buffer_bytes", "Bytes of one staging buffer.", func(s fabric.Stats) int64 { return int64(s.BufferBytes) })
	gauge("buffers_free", "Staging buffers that nobody holds.", func(s fabric.Stats) int64 { return int64(s.Free) })
	gauge("buffers_waiting", "Deliveries' workers that wait for a staging buffer.", func(s fabric.Stats) int64 { return int64(s.Waiting) })
	gauge("clients", "Clients whose memory is reached.", func(s fabric.Stats) int64 { return int64(s.Remotes) })
	gauge("writes", "Writes queued or under way.", func(s fabric.Stats) int64 { return int64(s.Writes) })
}

// registerConns exposes the connections of a listener.
func registerConns(reg prometheus.Registerer, l *connLimit) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "objcached_connections", Help: "Open connections of the S3 endpoint."},
		func() float64 { return float64(l.open.Load()) })
	f.NewCounterFunc(prometheus.CounterOpts{Name: "objcached_connections_refused_total", Help: "Connections closed because too many were open."},
		func() float64 { return float64(l.refused.Load()) })
}

// deliveries counts what the KV deliveries do.
type deliveries struct {
	total      *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	chunks     *prometheus.CounterVec
	firstLayer *prometheus.HistogramVec
	duration   *prometheus.HistogramVec
	refused    *prometheus.CounterVec
}

func newDeliveries(reg prometheus.Registerer) *deliveries {
	f := promauto.With(reg)
	buckets := prometheus.ExponentialBuckets(0.0002, 2, 18)
	return &deliveries{
		total: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_deliveries_total", Help: "KV deliveries by mode and how they ended."}, []string{"mode", "result"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_delivered_bytes_total", Help: "Payload bytes of KV deliveries."}, []string{"mode"}),
		chunks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_delivered_chunks_total", Help: "Chunks that deliveries asked for, by whether they were there."}, []string{"found"}),
		firstLayer: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "objcached_delivery_first_layer_seconds", Help: "Time until the first layer was ready.", Buckets: buckets}, []string{"mode"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "objcached_delivery_seconds", Help: "Time until the last layer was ready.", Buckets: buckets}, []string{"mode"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "objcached_deliveries_refused_total", Help: "KV deliveries refused because of a limit."}, []string{"limit"}),
	}
}

var _ deliver.Observer = (*deliveries)(nil)

// Delivered implements deliver.Observer.
func (d *deliveries) Delivered(r deliver.Report) {
	mode, result := string(r.Mode), "whole"
	if r.Err != nil {
		result = "broken"
	}
	d.total.WithLabelValues(mode, result).Inc()
	d.bytes.WithLabelValues(mode).Add(float64(r.Bytes))
	d.chunks.WithLabelValues("yes").Add(float64(r.Matched))
	d.chunks.WithLabelValues("no").Add(float64(r.Requested - r.Matched))
	if r.Layers > 0 {
		d.firstLayer.WithLabelValues(mode).Observe(r.FirstLayer.Seconds())
	}
	if r.Err == nil {
		d.duration.WithLabelValues(mode).Observe(r.Total.Seconds())
	}
}

// Refused implements deliver.Observer.
func (d *deliveries) Refused(limit string) { d.refused.WithLabelValues(limit).Inc() }
