package pace

import (
	"errors"
	"testing"
	"time"
)

// TestDueBeyondTheClock: a flow of next to no rate is due later than a clock
// can say. The pacer sleeps then, until something changes.
func TestDueBeyondTheClock(t *testing.T) {
	l, c := linked(t, Config{Capacity: 1e9, Policy: table{rates: map[string]float64{"a": 1e-9}}})
	f := join(t, l, pooled("a", 1<<20))
	if err := f.Take(t.Context(), 64<<10); err != nil {
		t.Fatal(err)
	}
	done := take(t.Context(), f, 64<<10)
	waits(l, 1)
	parked := make(chan int64, 1)
	go func() { parked <- c.parked() }()
	select {
	case until := <-parked:
		if until <= c.Now() {
			t.Errorf("asleep until %d, it is %d", until, c.Now())
		}
	case <-time.After(10 * time.Second):
		t.Error("the pacer never sleeps")
	}
	f.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

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
