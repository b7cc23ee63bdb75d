package deliver

import (
	"sync"

	"github.com/objcached/objcached/descriptor"
)

// limits counts what all deliveries of a Deliverer hold. Nothing waits here: a
// request that does not fit is refused, and its client comes back.
type limits struct {
	maxDeliveries, maxOpen, maxWindow int64

	mu         sync.Mutex
	deliveries int64
	open       int64 // chunk objects
	window     int64 // bytes
}

// enter admits a delivery of n chunks.
func (l *limits) enter(n int) *descriptor.BusyError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deliveries >= l.maxDeliveries {
		return &descriptor.BusyError{Limit: "deliveries at one time"}
	}
	// A delivery larger than the limit itself runs when it is alone.
	if l.open > 0 && l.open+int64(n) > l.maxOpen {
		return &descriptor.BusyError{Limit: "chunks open at one time"}
	}
	l.deliveries++
	l.open += int64(n)
	return nil
}

// giveBack returns n chunks that a delivery turned out not to need.
func (l *limits) giveBack(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open -= int64(n)
}

// leave ends a delivery that holds n chunks.
func (l *limits) leave(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliveries--
	l.open -= int64(n)
}

// takeWindow grants up to want bytes of window memory, as much as is left.
func (l *limits) takeWindow(want int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := max(0, min(want, l.maxWindow-l.window))
	l.window += got
	return got
}

func (l *limits) giveWindow(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.window -= n
}
