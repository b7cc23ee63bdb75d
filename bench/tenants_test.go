package bench

import (
	"bytes"
	"context"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/sim"
	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/internal/rate"
	"github.com/objcached/objcached/internal/server"
)

// restarter starts whole servers on one directory, one at a time.
type restarter struct {
	t    *testing.T
	dir  string
	stop func()
	seen []string // policies, in order
}

func (r *restarter) start(_ context.Context, link float64, policy string, margin float64, epoch time.Duration) (Target, error) {
	if r.stop != nil {
		r.stop()
	} else {
		r.t.Cleanup(func() { r.stop() })
	}
	r.seen = append(r.seen, policy)
	s, err := server.Open(r.t.Context(), server.Options{
		Dir: filepath.Join(r.dir, "store"), Listen: "127.0.0.1:0", Capacity: 256 << 20, VolumeSize: 64 << 20, ShmListen: filepath.Join(r.dir, "s"),
		RootAccessKey: clienttest.AccessKey, RootSecretKey: clienttest.SecretKey,
		LinkRate: rate.Rate(link), Policy: policy, Margin: rate.Rate(margin), Epoch: epoch,
	}, io.Discard)
	if err != nil {
		r.stop = func() {}
		return Target{}, err
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, io.Discard) }()
	r.stop = func() {
		stop()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
	return Target{Endpoint: s.URL(), AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: "tenants"}, nil
}

// TestTenants runs workload A, 128 times smaller, against whole servers.
func TestTenants(t *testing.T) {
	srv := &restarter{t: t, dir: t.TempDir()}
	b := Tenants{
		Workloads: []string{"A"}, Policies: []string{"cal-stall-opt", "ttft-opt"}, Transport: overShm, Rounds: 1, Scale: 16, Speed: 8,
		MarginGbps: 5, Epoch: 80 * time.Millisecond, Start: srv.start,
		Progress: func(title string, total int64) Progress { return &counter{t: t, title: title, total: total} },
	}
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(srv.seen, " "); got != "  cal-stall-opt ttft-opt" { // to store, with no limit, then each
		t.Errorf("started for %q", got)
	}
	w := r.Workloads[0]
	if len(r.Workloads) != 1 || w.CapGbps != 5 || math.Abs(w.ComputeMs-(955.89+281.76+8672.79+2423.90)/8) > 0.01 || r.EpochMs != 10 {
		t.Errorf("%+v", w)
	}
	for _, p := range w.runs() {
		if len(p.Requests) != 4 || len(p.Raw) != 1 || p.Total <= w.ComputeMs || p.Added <= 0 || (p.Predicted > 0) == (p.Name == "") {
			t.Errorf("%+v", p)
		}
		for _, q := range p.Requests {
			if q.Added <= 0 || len(q.Raw) != 1 {
				t.Errorf("%+v", q)
			}
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "ttft-opt adds") || !strings.Contains(table.String(), "64K,87.5%") {
		t.Errorf("%s, %v", table.String(), err)
	}
	file := filepath.Join(t.TempDir(), "x.png")
	if err := r.Plot(file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 400 {
		t.Error(err)
	}
}

// TestTenantsPredicts: cut down to size, the workloads are those of the paper,
// and what is predicted of them is what the simulator says of those.
func TestTenantsPredicts(t *testing.T) {
	for _, cut := range []struct{ scale, speed int }{{1, 1}, {16, 1}, {16, 8}, {1, 128}} {
		b := Tenants{Workloads: []string{"C", "A"}, Policies: bwsched.Names(), Transport: overStream, Rounds: 1,
			Scale: cut.scale, Speed: cut.speed, MarginGbps: 5, Epoch: time.Second}
		loads, err := b.loads()
		if err != nil {
			t.Fatal(err)
		}
		if got := loads[0].tenants; len(got) != 6 || got[5].chunks != 57344/16/cut.scale/cut.speed || got[0].chunks != 8192/16/cut.scale/cut.speed {
			t.Errorf("%+v: %+v", cut, got)
		}
		reports, err := b.predict(loads)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := reports[1].find("cal-stall-opt").PredictedBatch*float64(cut.speed), 480.9; math.Abs(got-want) > 10 {
			t.Errorf("%+v: calibrated held to the end adds %v ms to workload A, about %v by hand", cut, got, want)
		}
		for i, w := range []sim.Workload{sim.Workloads()[2], sim.Workloads()[0]} {
			for k := range w.Requests {
				w.Requests[k].Arrive = time.Duration(k) * time.Millisecond
			}
			for k, name := range bwsched.Names() {
				p, _ := bwsched.ByName(name, 5*sim.Gbps)
				res, err := sim.Run(w.Requests, sim.Options{Capacity: w.Capacity, Policy: p, Epoch: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				want := 0.0
				for _, one := range res {
					want += 1000 * one.Added
				}
				// Durations are whole nanoseconds, which is all that scaling loses.
				if got := reports[i].Policies[k].Predicted * float64(cut.speed); math.Abs(got-want) > 0.002*want+0.1 {
					t.Errorf("%+v, %s, %s: %v ms, want %v", cut, w.Name, name, got, want)
				}
			}
		}
	}
}

func TestTenantsReport(t *testing.T) {
	w := &WorkloadReport{Name: "A", ComputeMs: 30,
		NoLimit:  &PolicyReport{Requests: make([]TenantReport, 2)},
		Policies: []*PolicyReport{{Name: "equal", Predicted: 12, Requests: make([]TenantReport, 2)}, {Name: "cal-stall-opt", Predicted: 4, Requests: make([]TenantReport, 2)}}}
	l := load{tenants: []tenant{{Request: sim.Request{Compute: 5 * time.Millisecond, Layers: 2}}, {Request: sim.Request{Compute: 10 * time.Millisecond, Layers: 2}}}}
	ms := func(x float64) Played { return Played{TTFT: ofMillis(x)} }
	for k := range 3 {
		w.NoLimit.add(l, []Played{ms(11), ms(21)})
		w.Policies[0].add(l, []Played{ms(14 + float64(k)), ms(26)}) // 10, 11, 12 added
		w.Policies[1].add(l, []Played{ms(12), ms(20 + float64(k))}) // 2, 3, 4 added
	}
	r := TenantsReport{Workloads: []*WorkloadReport{w}}
	r.finish()
	e, c := w.find("equal"), w.find("cal-stall-opt")
	if e.Added != 11 || e.Total != 41 || e.OverBase != 9 || e.Requests[0].Added != 5 || e.Requests[1].Added != 6 || c.Added != 3 {
		t.Errorf("%+v %+v", e, c)
	}
	if m, p := w.Gain("cal-stall-opt", "equal"); math.Abs(m-11.0/3) > 1e-9 || p != 3 {
		t.Errorf("gain %v, %v", m, p)
	}
	if m, _ := w.Gain("cal-stall-opt", "bw-prop"); !math.IsNaN(m) {
		t.Error(m)
	}
}

func TestTenantsRefuses(t *testing.T) {
	good := Tenants{Workloads: []string{"A"}, Policies: []string{"equal"}, Transport: overShm, Rounds: 1, Scale: 16, Speed: 1, Epoch: time.Second}
	for name, spoil := range map[string]func(*Tenants){
		"rounds":    func(b *Tenants) { b.Rounds = 0 },
		"scale":     func(b *Tenants) { b.Scale = 3 },
		"speed":     func(b *Tenants) { b.Speed = 16 },
		"transport": func(b *Tenants) { b.Transport = "tape" },
		"epoch":     func(b *Tenants) { b.Epoch = 0 },
		"workload":  func(b *Tenants) { b.Workloads = []string{"D"} },
		"policy":    func(b *Tenants) { b.Policies = []string{"best"} },
		"margin":    func(b *Tenants) { b.MarginGbps = -1 },
		"nothing":   func(b *Tenants) { b.Policies = nil },
	} {
		b := good
		spoil(&b)
		if _, err := b.Run(t.Context()); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}
