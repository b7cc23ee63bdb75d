package pace

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// BenchmarkPlan plans an epoch of 10,000 flows that all wait; the target is
// under 5 ms.
func BenchmarkPlan(b *testing.B) {
	for _, name := range bwsched.Names() {
		for _, limited := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/tenants=%v", name, limited), func(b *testing.B) {
				policy, err := bwsched.ByName(name, 625e6)
				if err != nil {
					b.Fatal(err)
				}
				cfg := Config{Capacity: 12.5e9, Policy: policy, MaxFlows: 10_000}
				if limited {
					cfg.Tenants = map[string]Limits{"0": {Weight: 2}, "1": {MinRate: 1e9, MaxRate: 3e9}, "2": {MaxRate: 4e9}}
				}
				s := newSim(b, cfg)
				for i := range cfg.MaxFlows {
					spec := Spec{LayerBytes: int64(16<<10 + i*1000), Layers: 32, Compute: time.Duration(1+i%50) * ms}
					if limited {
						spec.Tenant = fmt.Sprint(i % 5)
					}
					p := s.join(spec)
					s.l.ask(p.f, 1<<20, s.l.now())
				}
				b.ReportAllocs()
				for b.Loop() {
					s.clock.advance(time.Second)
					s.l.mark(s.l.now(), true)
				}
			})
		}
	}
}

// BenchmarkTake is the cost of a Take that need not wait.
func BenchmarkTake(b *testing.B) {
	l, err := New(Config{Capacity: 1e15, Policy: bwsched.Equal{}})
	if err != nil {
		b.Fatal(err)
	}
	f, err := l.Join(context.Background(), Spec{LayerBytes: 1, Layers: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Take(context.Background(), 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPaceAccuracy takes layers on the system's clock at a rate and
// reports the rate that was reached over the one that was granted, over the
// whole run, and of all runs of ten layers the part that was within 2 % of what
// it should be. One iteration is one layer. What else runs on the machine shows.
func BenchmarkPaceAccuracy(b *testing.B) {
	for _, c := range []struct {
		layer int64
		rate  float64
	}{{64 << 10, 50e6}, {256 << 10, 125e6}, {1 << 20, 125e6}, {1 << 20, 1.25e9}, {4 << 20, 1.25e9}, {14 << 20, 1.25e9}, {14 << 20, 12.5e9}} {
		b.Run(fmt.Sprintf("layer=%dKiB/rate=%gMBps", c.layer>>10, c.rate/1e6), func(b *testing.B) {
			l, err := New(Config{Capacity: 2 * c.rate, Policy: table{rates: map[string]float64{"": c.rate}}})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			f, err := l.Join(ctx, Spec{LayerBytes: c.layer, Layers: 1 << 30, Compute: 1})
			if err != nil {
				b.Fatal(err)
			}
			layer := func() time.Time {
				for left := c.layer; left > 0; {
					n := min(left, f.Quantum())
					if err := f.Take(ctx, n); err != nil {
						b.Fatal(err)
					}
					left -= n
				}
				return time.Now()
			}
			times := []time.Time{layer()}
			for b.Loop() {
				times = append(times, layer())
			}
			each := float64(c.layer) / c.rate
			last := len(times) - 1
			b.ReportMetric(each*float64(last)/times[last].Sub(times[0]).Seconds(), "achieved/granted")
			within := 0
			for i := 10; i <= last; i++ {
				if off := times[i].Sub(times[i-10]).Seconds()/(10*each) - 1; max(off, -off) <= 0.02 {
					within++
				}
			}
			if last >= 10 {
				b.ReportMetric(100*float64(within)/float64(last-9), "%within2%")
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLateness sleeps for 100 µs at a time and reports how late it wakes,
// by the pacer's clock and by a timer of the runtime.
func BenchmarkLateness(b *testing.B) {
	const d = 100 * time.Microsecond
	late := func(b *testing.B, sleep func()) {
		var total time.Duration
		n := 0
		for b.Loop() {
			start := time.Now()
			sleep()
			total += time.Since(start) - d
			n++
		}
		b.ReportMetric(float64(total.Microseconds())/float64(n), "µs-late")
	}
	b.Run("pacer", func(b *testing.B) {
		done := make(chan struct{})
		go func() { // its thread ends with it
			defer close(done)
			c := systemClock()
			c.Begin()
			late(b, func() { c.SleepUntil(c.Now() + int64(d)) })
		}()
		<-done
	})
	b.Run("time.Sleep", func(b *testing.B) { late(b, func() { time.Sleep(d) }) })
}
