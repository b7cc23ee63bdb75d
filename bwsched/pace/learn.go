package pace

import (
	"math"
	"strconv"

	"github.com/objcached/objcached/bwsched"
)

// A link whose policy learns keeps the response of each class of requests from
// its own deliveries: the rate that was granted once layer 0 was there, and what
// the layers' times add to the TTFT (bwsched.Curves). A class is one tenant's:
// nobody's plans follow from what another's clients do. It begins as what
// Config.Curves knows of the class, and fades as newer deliveries come.

// learner is a flow's measurement, under the link's lock.
type learner struct {
	class string    // the tenant's own; "": nothing is learnt
	ready []float64 // when each layer was whole, in seconds since Join
	from  float64   // when the first was, in ns
	area  float64   // the flow's, then
}

// learnFrom makes the class of a flow that joins.
func (l *Link) learnFrom(s *Spec) learner {
	if l.learnt == nil || !s.pooled() || s.Layers < 2 {
		return learner{}
	}
	class := s.Class
	if class == "" {
		class = like(s)
	}
	own := s.Tenant + "\x00" + class
	if l.learnt.Class(own) == nil && l.cfg.Curves != nil {
		l.learnt.Begin(own, l.cfg.Curves.Class(class))
	}
	return learner{class: own, ready: make([]float64, 0, s.Layers)}
}

// like is a class for requests that nobody has named one for: those whose sizes
// and windows differ by less than a tenth or so.
func like(s *Spec) string {
	step := func(v float64) int64 { return int64(math.Round(math.Log(v) / math.Log(1.1))) }
	b := strconv.AppendInt(nil, int64(s.Layers), 10)
	b = strconv.AppendInt(append(b, '/'), step(float64(s.LayerBytes)), 10)
	return string(strconv.AppendInt(append(b, '/'), step(float64(s.Compute)), 10))
}

// learnLayer counts a layer that is whole now. With the last one the delivery
// is a measurement; one that breaks off before is none.
func (f *Flow) learnLayer(now float64) {
	k := &f.learn
	if k.class == "" || len(k.ready) == cap(k.ready) {
		return
	}
	if k.ready = append(k.ready, (now-f.joined)/1e9); len(k.ready) == 1 {
		f.settle(now)
		k.from, k.area = now, f.area
	}
	if len(k.ready) < f.spec.Layers || now <= k.from {
		return
	}
	f.settle(now)
	f.l.learnt.ObserveDelivery((f.area-k.area)/(now-k.from), k.ready, bwsched.Request{
		LayerBytes: float64(f.spec.LayerBytes), Compute: f.spec.Compute, Layers: f.spec.Layers, Class: k.class})
	f.l.stats.Learnt++
}
