package deliver

import (
	"errors"
	"testing"

	"github.com/objcached/objcached/descriptor"
)

// TestTenantsShare: one tenant cannot hold all deliveries or all open chunks,
// and what is closed is its own again.
func TestTenantsShare(t *testing.T) {
	d := desc(t, 10, 2, 100)
	f := newFake(d)
	for _, c := range []struct {
		name string
		cfg  Config
		most int
		over string
	}{
		{"deliveries", Config{MaxDeliveries: 8, Share: true}, 6, "deliveries of this tenant at one time"},
		{"chunks", Config{MaxOpen: 80, Share: true}, 6, "chunks open of this tenant at one time"},
		{"alone", Config{MaxOpen: 80}, 8, "chunks open at one time"},
	} {
		dl := New(f, c.cfg)
		for round := range 2 {
			var held []*Delivery
			var err error
			for err == nil && len(held) < 20 {
				var y *Delivery
				if y, err = dl.PrepareFor(t.Context(), "greedy", "b", d); err == nil {
					held = append(held, y)
				}
			}
			var busy *descriptor.BusyError
			if len(held) != c.most || !errors.As(err, &busy) || busy.Limit != c.over {
				t.Errorf("%s, round %d: %d deliveries, then %v", c.name, round, len(held), err)
			}
			y, err := dl.PrepareFor(t.Context(), "other", "b", d)
			if (err == nil) != c.cfg.Share {
				t.Errorf("%s: another tenant got %v", c.name, err)
			}
			if err == nil {
				held = append(held, y)
			}
			for _, y := range held {
				if err := y.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(dl.held.tenants) != 0 || dl.held.all != (holding{}) {
				t.Errorf("%s: left behind %+v", c.name, dl.held.all)
			}
		}
	}
}
