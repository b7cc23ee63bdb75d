package bench

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/profile"
)

// TestCalibrate sweeps two sizes and the rates of the smallest prefix against
// whole servers.
func TestCalibrate(t *testing.T) {
	srv := &restarter{t: t, dir: t.TempDir()}
	links := map[float64]int{}
	b := Calibrate{
		MaxPayload: 4 << 20, Contexts: []int{4096}, Hits: []float64{12.5}, Transport: overShm, Rounds: 1, Memory: 1 << 30, HoldsLink: true,
		Start: func(ctx context.Context, link float64) (Target, error) {
			links[link]++
			return srv.start(ctx, link, "equal", 0, 50*time.Millisecond)
		},
		Progress: func(title string, total int64) Progress { return &counter{t: t, title: title, total: total} },
	}
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sizes) != 2 || r.Sizes[1].PayloadBytes != 4<<20 || len(r.Sizes[0].RawChunk) != 4 || r.Sizes[0].Layer <= 0 {
		t.Errorf("%+v", r.Sizes)
	}
	if len(r.Curves) != 1 {
		t.Fatalf("%+v", r.Curves)
	}
	// A machine so busy that it cannot move 0.26 GB/s says so, and is no failure.
	if c := r.Curves[0]; c.Class != "4K,12.5%" || c.Top <= 0 || (c.Skipped == "") != (len(c.Points) > 0) {
		t.Errorf("%+v", c)
	}
	for _, p := range r.Curves[0].Points {
		if links[p.Rate] != 1 || len(p.Raw) != 1 || p.Added <= 0 {
			t.Errorf("%+v, played %d times", p, links[p.Rate])
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "Mode threshold") || !strings.Contains(table.String(), "4K,12.5%") {
		t.Errorf("%s, %v", table.String(), err)
	}
	var file bytes.Buffer
	if err := r.Profile().Write(&file); err != nil {
		t.Fatal(err)
	}
	if p, err := profile.Read(&file); err != nil || !reflect.DeepEqual(p.ModeThreshold, r.Threshold) || len(p.Windows) < 8 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestCalibrateFinish: measurements that follow Eq. 3 give the zero-stall rate
// as the knee, and those that lag behind it by a rate give that rate as margin.
func TestCalibrateFinish(t *testing.T) {
	for _, lag := range []float64{0, 3e8} {
		r := &CalibrateReport{Transport: overShm}
		for _, w := range []Window{{65536, 50, 8 * time.Second, "A8"}, {4096, 50, 185 * time.Millisecond, "A8"}, {65536, 12.5, 11 * time.Second, "A1"}} {
			c := CurveReport{Class: w.class(), LayerBytes: w.LayerBytes(), ComputeUs: float64(w.Layer()) / 1e3, ZeroStall: w.Required()}
			q := bwsched.Request{LayerBytes: float64(w.LayerBytes()), Compute: w.Layer(), Layers: modelLayers}
			for f := 0.5; f < 8; f *= 1.02 {
				rate := f*c.ZeroStall + lag
				c.Points = append(c.Points, PointReport{Rate: rate, Raw: []float64{bwsched.Added(rate-lag, q)}})
			}
			r.Curves = append(r.Curves, c)
		}
		r.finish()
		// The least that was measured is X_0 at 8 times the rate, not 0: the
		// knee is where a window more than that is added.
		if r.Margin == nil || math.Abs(*r.Margin-lag) > 0.02*5e8+1e7 {
			t.Errorf("lag %v: margin %v", lag, r.Margin)
		}
		p := r.Profile()
		if p.Margin != r.Margin || p.ModeThreshold != nil || len(p.Windows) != 9 || p.Windows[8].Class != "64K,12.5%" {
			t.Errorf("%+v", p)
		}
		if points := p.Curves.Class("4K,50%").Points(); len(points) == 0 || len(points) > bwsched.MaxPoints {
			t.Errorf("%d points", len(points))
		}
		// 64K at 12.5 % has the size of 16K at 50 %: only who says how long it computes is taken for it.
		if class, _ := p.Resolve(32, 8192*4096, 0); class != "16K,50%" {
			t.Error(class)
		}
		if class, _ := p.Resolve(32, 8192*4096, 11*time.Second/32); class != "64K,12.5%" {
			t.Error(class)
		}
	}
	// Too few points above the knee are none.
	r := &CalibrateReport{Curves: []CurveReport{{Class: "a", ComputeUs: 1000, ZeroStall: 1e9, Points: []PointReport{{Rate: 8e8, Raw: []float64{1}}, {Rate: 1e9, Raw: []float64{0.5}}}}}}
	if r.finish(); r.Margin != nil || r.Curves[0].Knee != nil {
		t.Errorf("%+v", r)
	}
}

func TestThreshold(t *testing.T) {
	at := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		saved []float64
		want  *int64
	}{
		{[]float64{5, 5, 5}, at(0)},
		{[]float64{-0.5, 0, -0.9}, at(0)}, // noise
		{[]float64{-30, 5, 5}, at(200)},
		{[]float64{5, -30, 5}, at(300)}, // not before it stays so
		{[]float64{5, 5, -30}, nil},
		{nil, nil},
	} {
		var sizes []SizeReport
		for i, s := range tc.saved {
			sizes = append(sizes, SizeReport{PayloadBytes: int64(100 * (i + 1)), Saved: s})
		}
		if got := threshold(sizes); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v: %v", tc.saved, got)
		}
	}
}

func TestCalibrateRefuses(t *testing.T) {
	good := Calibrate{MaxPayload: 4 << 20, Contexts: []int{4096}, Hits: []float64{50}, Transport: overShm, Rounds: 1, Memory: 1 << 30}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Calibrate){
		"rounds":    func(b *Calibrate) { b.Rounds = 0 },
		"payload":   func(b *Calibrate) { b.MaxPayload = 1 << 20 },
		"memory":    func(b *Calibrate) { b.Memory = 5 << 20 },
		"context":   func(b *Calibrate) { b.Contexts = []int{5} },
		"transport": func(b *Calibrate) { b.Transport = "" },
	} {
		b := good
		spoil(&b)
		if _, err := b.Run(t.Context()); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}
