package pace

import (
	"testing"
	"time"
)

// TestLendingForEver: what has been lent over a long time (here at once, by a
// flow that has next to no rate of its own) leaves the shares of who lends next
// as they are.
func TestLendingForEver(t *testing.T) {
	const c = 1e9
	s := newSim(t, Config{Capacity: c, Policy: table{rates: map[string]float64{"tiny": 1e-6, "a": 0.1e9, "b": 0.3e9}, replans: true}})
	tiny := s.join(pooled("tiny", 1<<20))
	tiny.quantum = 128 << 10
	s.play(time.Second)
	near(t, "alone", float64(tiny.moved), c, 0.02)

	a, b := s.join(pooled("a", 1<<20)), s.join(pooled("b", 1<<20))
	tiny.stopped = true
	a.quantum, b.quantum = 128<<10, 128<<10
	s.play(20 * ms)
	a.moved, b.moved = 0, 0
	s.play(2 * time.Second)
	near(t, "the first borrower", float64(a.moved)/2, c/4, 0.01)
	near(t, "the second borrower", float64(b.moved)/2, c*3/4, 0.01)
}
