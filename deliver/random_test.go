package deliver

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport/transporttest"
)

// early is memory that looks, when a layer is announced, whether all of it is there.
type early struct {
	*transporttest.Memory
	whole func(layer int) bool
	wrong []int
}

func (m *early) LayerReady(layer int) error {
	if !m.whole(layer) {
		m.wrong = append(m.wrong, layer)
	}
	return m.Memory.LayerReady(layer)
}

// TestRandomGeometryIntoMemory draws everything at once: slices, layouts, modes,
// windows, missing chunks, placements, workers, their work, a link, and reads
// that fail. A layer is there when it is announced, all bytes are in the end, and
// the link gave leave for each once.
func TestRandomGeometryIntoMemory(t *testing.T) {
	manyWorkers(t)
	const b = storage.BlockSize
	r := rand.New(rand.NewPCG(21, 22))
	failed := 0
	for i := range 150 {
		s := []int64{1 + r.Int64N(40), 1 + r.Int64N(9000), 1 + r.Int64N(3*b), b / 2 * (1 + r.Int64N(4))}[r.IntN(4)]
		layout := []descriptor.Layout{descriptor.L2TD, descriptor.TwoLTD}[r.IntN(2)]
		if layout == descriptor.TwoLTD {
			s += s % 2
		}
		chunks, layers := 1+r.IntN(12), 1+r.IntN(9)
		first := r.IntN(layers)
		d := desc(t, chunks, layers, s, window(first, 1+r.IntN(layers-first)), trunc, func(d *descriptor.Descriptor) {
			d.Layout, d.Delivery = layout, []descriptor.Mode{descriptor.Layer, descriptor.Chunk}[r.IntN(2)]
			d.LayerComputeMicros = 1000 * float64(r.IntN(2))
		})
		kind, n := r.IntN(4), 1+r.IntN(chunks)
		target(t, d, kind, r)
		f := newFake(d)
		if n < chunks {
			delete(f.chunks, d.ChunkKeys[n])
		}
		f.into = r.IntN(2) == 0
		if r.IntN(3) == 0 {
			f.failAt = 1 + r.Int64N(30)
		}
		cfg := Config{Workers: 1 + r.IntN(4), AggBytes: []int64{0, 1, 5000, 1 << 20}[r.IntN(4)]}
		if r.IntN(2) == 0 {
			cfg.Link, _ = linked(t, pace.Config{Capacity: 1e6 * float64(1+r.IntN(1e6))})
		}
		name := fmt.Sprintf("%d: S=%d %s %s placement %d layers %d+%d of %d n=%d of %d, read %d fails", i, s, layout, d.Delivery, kind,
			d.FirstLayer, d.LayerCount, layers, n, chunks, f.failAt)

		want := placed(d, n)
		m := &early{Memory: transporttest.NewMemory(int(d.Target.Length))}
		m.whole = func(layer int) bool {
			upTo := *d // announced in order: the layers before are looked at again
			upTo.LayerCount = layer - d.FirstLayer + 1
			for i, c := range placed(&upTo, n) {
				if c != 0 && m.Bytes()[i] != want[i] {
					return false
				}
			}
			return true
		}
		dl := New(f, cfg)
		y := schedule(t, dl, d)
		res, err := y.DeliverInto(t.Context(), m)
		switch {
		case len(m.wrong) > 0:
			t.Fatalf("%s: layers %v were announced before they were there", name, m.wrong)
		case err != nil:
			if failed++; !errors.Is(err, errFault) {
				t.Fatalf("%s: %v", name, err)
			}
		case !bytes.Equal(m.Bytes(), want) || res.Bytes != y.Size() || len(m.Layers()) != d.LayerCount:
			t.Fatalf("%s: %d bytes, layers %v, or others than they must be", name, res.Bytes, m.Layers())
		case cfg.Link != nil && cfg.Link.Stats().Bytes != y.Size():
			t.Fatalf("%s: leave for %d bytes of %d", name, cfg.Link.Stats().Bytes, y.Size())
		}
		_ = y.Close()
		idle(t, dl, f)
		if cfg.Link != nil {
			left(t, cfg.Link)
		}
	}
	if failed == 0 {
		t.Error("no read failed")
	}
}
