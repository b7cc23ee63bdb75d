package deliver

import (
	"fmt"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/descriptor"
)

// BenchmarkPacedDelivery holds whole deliveries to a rate on the system's
// clock, as a body and into memory, and reports the rate that its layers came
// at over the one granted (the first layer apart, whose first quantum need not
// wait), and the part of the runs of ten layers that were within 2 % of it.
func BenchmarkPacedDelivery(b *testing.B) {
	for _, into := range []string{"body", "memory"} {
		for _, c := range []struct {
			slice, n int64
			rate     float64
		}{{16 << 10, 16, 125e6}, {64 << 10, 16, 125e6}, {16 << 10, 64, 1.25e9}, {64 << 10, 64, 1.25e9}, {64 << 10, 224, 1.25e9}} {
			b.Run(fmt.Sprintf("%s/layer=%dKiB/rate=%gMBps", into, c.slice*c.n>>10, c.rate/1e6), func(b *testing.B) {
				const layers = 32
				d := desc(b, int(c.n), layers, c.slice, func(d *descriptor.Descriptor) { d.LayerComputeMicros = 1 })
				if into == "memory" {
					target(b, d, 0, nil)
				}
				f := newFake(d)
				w := newPlain(int(c.n * c.slice * layers))
				// The paper's policies lend nothing: more than the rate would be a mistake.
				l, err := pace.New(pace.Config{Capacity: c.rate, Policy: bwsched.Equal{}})
				if err != nil {
					b.Fatal(err)
				}
				dl := New(f, Config{Link: l})
				each := float64(c.n*c.slice) / c.rate
				took, tens, within, runs := 0.0, 0, 0, 0
				for b.Loop() {
					y := schedule(b, dl, d)
					var times []time.Duration
					if into == "memory" {
						res, err := y.DeliverInto(b.Context(), w)
						if err != nil {
							b.Fatal(err)
						}
						times = res.Layers
					} else if err := y.WriteTo(b.Context(), &stamped{start: time.Now(), times: &times}); err != nil {
						b.Fatal(err)
					}
					_ = y.Close()
					runs++
					took += (times[layers-1] - times[0]).Seconds()
					for i := 11; i < layers; i++ {
						tens++
						if off := (times[i]-times[i-10]).Seconds()/(10*each) - 1; max(off, -off) <= 0.02 {
							within++
						}
					}
				}
				b.ReportMetric(each*float64(runs*(layers-1))/took, "achieved/granted")
				b.ReportMetric(100*float64(within)/float64(tens), "%within2%")
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// stamped is a body that takes everything and notes when each layer is flushed.
type stamped struct {
	start time.Time
	times *[]time.Duration
}

func (s *stamped) Write(p []byte) (int, error) { return len(p), nil }
func (s *stamped) Flush()                      { *s.times = append(*s.times, time.Since(s.start)) }
