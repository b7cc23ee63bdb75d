package gateway

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// admission bounds the requests in flight. Beyond the bound a request waits in
// a short queue, and beyond that it is told to slow down: never a hang.
type admission struct {
	slots     chan struct{}
	queued    atomic.Int64
	maxQueue  int64
	wait      time.Duration
	perTenant int

	mu      sync.Mutex
	tenants map[string]int // requests in flight; only kept with perTenant
}

func newAdmission(slots, queue, perTenant int, wait time.Duration) *admission {
	return &admission{
		slots: make(chan struct{}, slots), maxQueue: int64(max(queue, 0)), wait: wait,
		perTenant: perTenant, tenants: map[string]int{},
	}
}

// enter takes a slot; the caller calls leave if it got one.
func (a *admission) enter(ctx context.Context) bool {
	select {
	case a.slots <- struct{}{}:
		return true
	default:
	}
	defer a.queued.Add(-1)
	if a.queued.Add(1) > a.maxQueue {
		return false
	}
	t := time.NewTimer(a.wait)
	defer t.Stop()
	select {
	case a.slots <- struct{}{}:
		return true
	case <-t.C:
		return false
	case <-ctx.Done():
		return false
	}
}

func (a *admission) leave() { <-a.slots }

// enterTenant counts one request of a tenant, or says that it has too many.
func (a *admission) enterTenant(name string) (release func(), ok bool) {
	if a.perTenant <= 0 {
		return func() {}, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tenants[name] >= a.perTenant {
		return nil, false
	}
	a.tenants[name]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.tenants[name]--; a.tenants[name] == 0 {
			delete(a.tenants, name)
		}
	}, true
}

// admitted lets a bounded number of requests through.
func (g *Gateway) admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		if !g.admit.enter(hr.Context()) {
			g.metrics.slowDowns.Inc()
			g.renderError(w, requestOf(hr), slowDown("too many requests are in flight"))
			return
		}
		defer g.admit.leave()
		next.ServeHTTP(w, hr)
	})
}
