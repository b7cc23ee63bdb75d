package pace

import "container/heap"

// queue holds the flows that have a rate and waiters, the one due first on top.
type queue struct {
	flows []*Flow
	// skew is by how much the time of these flows, waiting or not, runs ahead
	// of the link's, in ns: that is what has been lent.
	skew float64
}

// top is the flow due first, or nil.
func (q *queue) top() *Flow {
	if len(q.flows) == 0 {
		return nil
	}
	return q.flows[0]
}

// rebase takes the skew off the times of all flows of the queue, waiting or not,
// which changes nothing between them. It would grow for as long as the link
// lives, and the times would have fewer and fewer digits left.
func (q *queue) rebase(all []*Flow) {
	for _, f := range all {
		if f.q == q {
			f.due -= q.skew
		}
	}
	q.skew = 0
}

// Len implements heap.Interface, as do Less, Swap, Push and Pop.
func (q *queue) Len() int           { return len(q.flows) }
func (q *queue) Less(i, j int) bool { return q.flows[i].due < q.flows[j].due }
func (q *queue) Swap(i, j int) {
	h := q.flows
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	f := x.(*Flow)
	f.at = len(q.flows)
	q.flows = append(q.flows, f)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(q.flows) - 1
	f := q.flows[last]
	q.flows[last] = nil
	q.flows = q.flows[:last]
	f.at = -1
	return f
}

// sort puts the flow where it belongs: out of the queue if it has no rate or
// no waiter, else in its place.
func (f *Flow) sort() {
	switch in := f.first != nil && f.rate > 0; {
	case f.at >= 0 && in:
		heap.Fix(f.q, f.at)
	case f.at >= 0:
		heap.Remove(f.q, f.at)
	case in:
		heap.Push(f.q, f)
	}
}

// wait is how long the flow has to wait until it is due, in ns; 0 or less if it is.
func (f *Flow) wait(now float64) float64 { return f.due - now - f.q.skew }

// next is the flow to be served next, and how long it has to wait; nil if
// nobody waits. Flows that borrow need not wait if no other flow is due: their
// time is put forward for all of them alike, so that what is lent goes to
// those who wait in proportion to their rates.
func (l *Link) next(now float64) (*Flow, float64) {
	f, g := l.own.top(), l.borrow.top()
	switch {
	case g == nil && f == nil:
		return nil, 0
	case g == nil:
		return f, f.wait(now)
	case f != nil && f.wait(now) <= min(0, g.wait(now)):
		return f, f.wait(now)
	}
	return g, l.lend(g, now)
}

// lend puts the time of the flows that borrow forward if the link has nothing
// else to send, until g is due.
func (l *Link) lend(g *Flow, now float64) float64 {
	if w := g.wait(now); w <= 0 || l.due > now {
		return w
	}
	g.q.skew = g.due - now
	return 0
}
