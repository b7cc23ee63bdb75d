package server

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
)

func TestDeliveryObserver(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := NewDeliveryObserver(reg)
	o.Delivered(deliver.Report{Mode: descriptor.Layer, Requested: 5, Matched: 3, Layers: 2, Bytes: 600, FirstLayer: time.Second, Total: 3 * time.Second})
	o.Delivered(deliver.Report{Mode: descriptor.Chunk, Requested: 1, Matched: 1, Bytes: 50, Err: errors.New("gone")})
	o.Refused("deliveries at one time")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	for name, want := range map[string]float64{
		"objcached_deliveries_total layer whole": 1, "objcached_deliveries_total chunk broken": 1,
		"objcached_delivered_bytes_total layer": 600, "objcached_delivered_bytes_total chunk": 50,
		"objcached_delivery_chunks_total matched": 4, "objcached_delivery_chunks_total missing": 2,
		"objcached_deliveries_truncated_total":                      1,
		"objcached_deliveries_refused_total deliveries at one time": 1,
		"objcached_first_layer_seconds":                             1,
		"objcached_delivery_seconds layer":                          3,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
