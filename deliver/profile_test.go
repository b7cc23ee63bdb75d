package deliver

import (
	"io"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/bwsched/profile"
	"github.com/objcached/objcached/descriptor"
)

// TestProfile: what the policy is told of a delivery whose size the profile
// knows, and of others; a compute window in the descriptor wins.
func TestProfile(t *testing.T) {
	known := &profile.Profile{Version: profile.Version, Windows: []profile.Window{{Class: "chat", Layers: 8, LayerBytes: 3 << 20, ComputeUs: 250}}}
	says := func(us float64) func(*descriptor.Descriptor) {
		return func(d *descriptor.Descriptor) { d.LayerComputeMicros = us }
	}
	for _, c := range []struct {
		name    string
		chunks  int
		change  []func(*descriptor.Descriptor)
		class   string
		compute time.Duration // 0: outside of the pool
	}{
		{"by its size", 3, nil, "chat", 250 * time.Microsecond},
		{"a part of the layers", 3, []func(*descriptor.Descriptor){window(2, 5)}, "chat", 250 * time.Microsecond},
		{"the descriptor wins", 3, []func(*descriptor.Descriptor){says(255)}, "chat", 255 * time.Microsecond},
		{"another GPU", 3, []func(*descriptor.Descriptor){says(25)}, "", 25 * time.Microsecond},
		{"another size", 4, nil, "", 0},
		{"another size that says", 4, []func(*descriptor.Descriptor){says(9)}, "", 9 * time.Microsecond},
		{"chunk by chunk", 3, []func(*descriptor.Descriptor){inChunk}, "", 0},
	} {
		p := new(states)
		l, _ := linked(t, pace.Config{Capacity: 1e9, Policy: p})
		d := desc(t, c.chunks, 8, 1<<20, c.change...)
		y := schedule(t, New(newFake(d), Config{Link: l, Profile: known}), d)
		if st := l.Stats(); st.Pool+st.Outside != 1 || (st.Pool == 1) != (c.compute > 0) {
			t.Errorf("%s: %+v", c.name, st)
		}
		if err := y.WriteTo(t.Context(), io.Discard); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		_ = y.Close()
		var seen bwsched.Request
		if len(p.seen) > 0 {
			seen = p.seen[0]
		}
		if seen.Class != c.class || seen.Compute != c.compute {
			t.Errorf("%s: the policy was told %+v", c.name, seen)
		}
		left(t, l)
	}
}
