//go:build fabric && cgo

package fabric

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
)

// blind is a memory without a device, to be told immediates.
func blind() *Memory {
	m := &Memory{all: make([]byte, ControlBytes), wake: -1}
	m.changed.L = &sync.Mutex{}
	return m
}

// cell writes an epoch's cell as a server does.
func (m *Memory) cell(slot, at int, n uint32, gen uint16, epoch int) {
	c := m.all[cellAt(0, slot, at):]
	binary.LittleEndian.PutUint32(c, n)
	binary.LittleEndian.PutUint16(c[4:], gen)
	binary.LittleEndian.PutUint16(c[6:], uint16(epoch))
}

func TestImmediate(t *testing.T) {
	for _, c := range []struct {
		gen  uint32
		slot int
		what int
		want uint32
	}{
		{1, 0, immReady, 0x0001_0000},
		{1, 0, immReady + 1023, 0x0001_03ff},
		{2, 3, immOver, 0x0002_3400},
		{maxGeneration, 15, immCountEnd, 0xffff_fc02},
		{0, 0, immNonce, 0x0000_0fff},
		{7, 1, immWritten, 0x0007_1401},
		{7, 1, immCounted, 0x0007_1802},
	} {
		if got := immediate(c.gen, c.slot, c.what); got != c.want {
			t.Errorf("%+v: %#x", c, got)
		}
		if gen, slot, what := parseImmediate(c.want); gen != c.gen || slot != c.slot || what != c.what {
			t.Errorf("%#x: %d %d %d", c.want, gen, slot, what)
		}
	}
	if generation(MaxTag) != maxGeneration || generation(0) != 1 {
		t.Errorf("generations from %d to %d", generation(0), generation(MaxTag))
	}
}

// TestStale: immediates of an earlier delivery of the slot mark no layer of a later.
func TestStale(t *testing.T) {
	m := blind()
	ready := func(tag int64, layer int) bool { return m.Wait(tag, layer, 0) }
	const a, b, other = 5, 5 + Slots, 6
	m.note(immediate(generation(a), a, immReady))
	if !ready(a, 0) || ready(a, 1) || ready(a, Over) || ready(b, 0) || ready(other, 0) {
		t.Error("layer 0 of the first delivery")
	}
	m.note(immediate(generation(b), a, immReady))
	if !ready(a, 1) || !ready(a, Over) || !ready(b, 0) || ready(b, 1) || ready(b, Over) {
		t.Error("the second delivery has begun, so the first has passed")
	}
	for _, what := range []int{immReady + 7, immOver, immWritten + 1, immCounted, immCountEnd} {
		m.note(immediate(generation(a), a, what))
	}
	if ready(b, 1) || ready(b, 7) || ready(b, Over) {
		t.Error("a stale immediate counts")
	}
	m.note(immediate(generation(b), a, immOver))
	if !ready(b, Over) || ready(b, 1) {
		t.Error("the second delivery is over, and layer 1 never came")
	}
	// What no server of ours says does no harm.
	for imm := range uint32(1 << 16) {
		m.note(9<<16 | imm)
		m.note(imm)
	}
}

// TestStaleCell: an announcement whose cell is another delivery's says nothing.
func TestStaleCell(t *testing.T) {
	m := blind()
	m.cell(0, 0, 0, 1, 0)
	m.note(immediate(2, 0, immCounted))
	if m.Wait(Slots, 0, 0) {
		t.Error("the cell of an earlier delivery is believed")
	}
	m.cell(0, 0, 0, 2, 1)
	m.note(immediate(2, 0, immCounted))
	if m.Wait(Slots, 0, 0) {
		t.Error("the cell of another epoch is believed")
	}
	m.cell(0, 0, 0, 2, 0)
	m.note(immediate(2, 0, immCounted))
	if !m.Wait(Slots, 0, 0) {
		t.Error("the layer's own cell is not")
	}
}

// TestCounting: in whatever order writes arrive, a layer is ready when all of
// its epochs are complete, and not before.
func TestCounting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := blind()
	for round := range 300 {
		gen := uint32(round + 1)
		tag := int64(round)*Slots + 4
		layers := 1 + rng.IntN(6)
		if round%50 == 49 {
			layers = MaxLayers
		}
		type event struct{ what, epoch int }
		var events []event
		missing := make([]int, layers+1) // events of each epoch that have not come
		for e := range layers + 1 {
			for range rng.IntN(4) {
				events = append(events, event{immWritten + e, e})
			}
			missing[e] = len(events)
			if e > 0 {
				for _, n := range missing[:e] {
					missing[e] -= n
				}
			}
			if e < layers {
				m.cell(4, e, uint32(missing[e]), uint16(gen), e)
				events = append(events, event{immCounted + e, e})
			} else {
				m.cell(4, MaxLayers, uint32(missing[e]), uint16(gen), e)
				events = append(events, event{immCountEnd, e})
			}
			missing[e]++
		}
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for _, e := range events {
			m.note(immediate(gen, 4, e.what))
			missing[e.epoch]--
			whole := 0
			for whole <= layers && missing[whole] == 0 {
				whole++
			}
			for _, l := range []int{0, whole - 1, whole, layers - 1} {
				if l >= 0 && l < layers && m.Wait(tag, l, 0) != (l < whole) {
					t.Fatalf("round %d, %d layers: layer %d ready is %v, and %d are whole", round, layers, l, l >= whole, whole)
				}
			}
			if m.Wait(tag, Over, 0) != (whole > layers) {
				t.Fatalf("round %d: over with %d of %d epochs whole", round, whole, layers+1)
			}
		}
	}
}
