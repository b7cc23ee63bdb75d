package deliver

import (
	"sync"

	"github.com/objcached/objcached/descriptor"
)

// limits counts what all deliveries of a Deliverer hold. Nothing waits here: a
// request that does not fit is refused, and its client comes back.
type limits struct {
	maxDeliveries, maxOpen, maxWindow int64
	share                             bool // leave a quarter to other tenants

	mu      sync.Mutex
	all     holding
	tenants map[string]*holding // those who hold anything
	window  int64               // bytes
}

// holding is what all deliveries or a tenant's hold.
type holding struct {
	deliveries int64
	open       int64 // chunk objects
}

// admits reports whether there is room for one more delivery, of n chunks. One
// larger than the limit itself runs when it is alone.
func (h *holding) admits(n int, deliveries, open int64) (limit string) {
	switch {
	case h.deliveries >= deliveries:
		return "deliveries"
	case h.open > 0 && h.open+int64(n) > open:
		return "chunks open"
	}
	return ""
}

// enter admits a tenant's delivery of n chunks.
func (l *limits) enter(tenant string, n int) *descriptor.BusyError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over := l.all.admits(n, l.maxDeliveries, l.maxOpen); over != "" {
		return &descriptor.BusyError{Limit: over + " at one time"}
	}
	h := l.tenants[tenant]
	if h == nil {
		h = new(holding)
	}
	if l.share {
		if over := h.admits(n, max(1, l.maxDeliveries/4*3), l.maxOpen/4*3); over != "" {
			return &descriptor.BusyError{Limit: over + " of this tenant at one time"}
		}
	}
	if l.tenants == nil {
		l.tenants = make(map[string]*holding)
	}
	l.tenants[tenant] = h
	for _, h := range [...]*holding{&l.all, h} {
		h.deliveries++
		h.open += int64(n)
	}
	return nil
}

// giveBack returns n chunks that a delivery turned out not to need.
func (l *limits) giveBack(tenant string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.open -= int64(n)
	l.tenants[tenant].open -= int64(n)
}

// leave ends a delivery that holds n chunks.
func (l *limits) leave(tenant string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range [...]*holding{&l.all, l.tenants[tenant]} {
		h.deliveries--
		h.open -= int64(n)
	}
	if *l.tenants[tenant] == (holding{}) {
		delete(l.tenants, tenant)
	}
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
