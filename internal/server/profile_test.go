package server

import (
	"math"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/profile"
)

// TestLinkPolicyKnowsCurves: a profile's curves reach the policies that learn,
// for the classes they are of.
func TestLinkPolicyKnowsCurves(t *testing.T) {
	curves := &bwsched.Curves{}
	for range 3 {
		for rate, added := range map[float64]float64{1e9: 0.2, 2e9: 0.1, 3e9: 0.05, 6e9: 0.05} {
			curves.Observe("chat", rate, added)
		}
	}
	chat := bwsched.Request{LayerBytes: 1e6, Compute: time.Millisecond, Layers: 8, Class: "chat"}
	other := chat
	other.Class = "other"
	for _, c := range []struct {
		policy      string
		calibration *profile.Profile
		want        float64 // of chat
	}{
		{"hull-opt", &profile.Profile{Curves: curves}, 3e9},
		{"hull-opt", &profile.Profile{}, 1e9},
		{"hull-opt", nil, 1e9},
		{"stall-opt", &profile.Profile{Curves: curves}, 1e9},
	} {
		p, err := linkPolicy(Options{Policy: c.policy, Calibration: c.calibration})
		if err != nil {
			t.Fatal(err)
		}
		if got := bwsched.Target(p, chat); math.Abs(got-c.want) > 1 {
			t.Errorf("%s, %+v: target %g, want %g", c.policy, c.calibration, got, c.want)
		}
		if got := bwsched.Target(p, other); math.Abs(got-1e9) > 1 {
			t.Errorf("%s, %+v: target %g of a class that was not measured", c.policy, c.calibration, got)
		}
	}
}
