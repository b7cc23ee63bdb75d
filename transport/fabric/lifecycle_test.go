//go:build fabric && cgo

package fabric

import (
	"bytes"
	"errors"
	"testing"
)

// TestLeavesNothing: what is opened is closed again, many times over.
func TestLeavesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		layer := less(200_000, 20_000)
		if small {
			cfg.WriteBytes = 64 << 10
		}
		want := turn(0)[:2*layer]
		round := func() {
			d, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				m, err := NewMemory(cfg, int64(2*layer))
				if err != nil {
					t.Fatal(err)
				}
				r, err := d.Remote(m.Address())
				if err != nil {
					t.Fatal(err)
				}
				for tag := range int64(2) {
					tr, err := r.Open(t.Context(), Window{Length: int64(2 * layer), Tag: tag, Layers: 2})
					if err != nil {
						t.Fatal(err)
					}
					for l := range 2 {
						if err := errors.Join(send(tr, want, l*layer, (l+1)*layer, 16<<10), tr.LayerReady(l)); err != nil {
							t.Fatal(err)
						}
					}
					if err := tr.Close(); err != nil {
						t.Fatal(err)
					}
					if !m.Wait(tag, Over, patience) || !bytes.Equal(m.Bytes()[:2*layer], want) {
						t.Fatal("the delivery has not arrived")
					}
				}
				if err := errors.Join(r.Close(), m.Close(patience)); err != nil {
					t.Fatal(err)
				}
				<-r.Gone()
				<-m.Gone()
			}
			if st := d.Stats(); st.Remotes != 0 || st.Free != st.Buffers {
				t.Errorf("left behind: %+v", st)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		round() // what libraries keep for good
		before := holds(t)
		for range 5 {
			round()
		}
		settles(t, before)
	})
}
