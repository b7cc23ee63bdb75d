package pebblekv

import (
	"math"
	"sync/atomic"
)

// gate lets calls in until it is closed, and waits for those inside. (Pebble
// panics when it is used after, or closed during, a call.) It is no RWMutex
// because a call may be made from within a call, a Get from a Scan's
// callback, and with a closer waiting an RWMutex would hang both.
type gate struct {
	n       atomic.Int64 // calls inside, plus shut once closed
	drained chan struct{}
}

const shut = math.MinInt64 / 2

func (g *gate) init() { g.drained = make(chan struct{}, 1) }

func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.n.Add(-1) == shut {
		select {
		case g.drained <- struct{}{}:
		default:
		}
	}
}

// close returns false if it has been called before; only the first waits.
func (g *gate) close() bool {
	for {
		n := g.n.Load()
		if n < 0 {
			return false
		}
		if g.n.CompareAndSwap(n, n+shut) {
			if n > 0 {
				<-g.drained
			}
			return true
		}
	}
}

func (g *gate) closed() bool { return g.n.Load() < 0 }
