package bwsched

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Bounds of what is learnt.
const (
	// MaxPoints bounds the points of a curve.
	MaxPoints = 64
	// MaxClasses bounds the classes of a set of curves.
	MaxClasses = 256

	maxClassName = 256
	// forget is what a new measurement leaves of the weight of the old ones: the
	// last 256 count for two thirds.
	forget = 1 - 1.0/256
	// faded is the weight at which a point is dropped.
	faded = 1.0 / 64
)

// A Curve is the measured response of one class of requests: the added TTFT at
// each rate. Newer measurements count for more, and its size is bounded. The
// zero value is an empty curve. One goroutine at a time.
type Curve struct {
	points []Point // by rate
	hull   *Hull   // of the points; nil: to be made
}

// Observe takes a measurement: a request was delivered at rate, in bytes per
// second, and its TTFT was added seconds above the compute itself (see AddedBy).
// What is no measurement (not finite, negative) is left out.
func (c *Curve) Observe(rate, added float64) {
	p := Point{Rate: rate, Added: added, Weight: 1}
	if !p.sound() {
		return
	}
	kept := c.points[:0]
	for _, q := range c.points {
		if q.Weight *= forget; q.Weight >= faded {
			kept = append(kept, q)
		}
	}
	c.points = kept
	c.take(p)
}

// take adds a point, and joins the two of nearest rates if there are too many.
func (c *Curve) take(p Point) {
	c.hull = nil
	i, found := slices.BinarySearchFunc(c.points, p.Rate, func(q Point, rate float64) int { return cmp.Compare(q.Rate, rate) })
	if found {
		c.points[i] = c.points[i].mean(p)
		return
	}
	c.points = slices.Insert(c.points, i, p)
	if len(c.points) <= MaxPoints {
		return
	}
	near := 1
	for i := 2; i < len(c.points); i++ {
		if c.points[i].Rate/c.points[i-1].Rate < c.points[near].Rate/c.points[near-1].Rate {
			near = i
		}
	}
	c.points[near-1] = c.points[near-1].mean(c.points[near])
	c.points = slices.Delete(c.points, near, near+1)
}

// Merge adds what another server, or this one at another time, has learnt. The
// other curve is not changed.
func (c *Curve) Merge(other *Curve) {
	for _, p := range slices.Clone(other.points) {
		c.take(p)
	}
}

// Points returns the points, by rising rate.
func (c *Curve) Points() []Point { return slices.Clone(c.points) }

// Hull returns the lower convex hull, nil of an empty curve.
func (c *Curve) Hull() *Hull {
	if c.hull == nil {
		c.hull = NewHull(c.points)
	}
	return c.hull
}

// weight is for how many recent measurements the curve stands.
func (c *Curve) weight() float64 {
	w := 0.0
	for _, p := range c.points {
		w += p.Weight
	}
	return w
}

// MarshalJSON writes the points.
func (c Curve) MarshalJSON() ([]byte, error) {
	if c.points == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(c.points)
}

// UnmarshalJSON reads what MarshalJSON wrote, in any order of points.
func (c *Curve) UnmarshalJSON(b []byte) error {
	var points []Point
	if err := json.Unmarshal(b, &points); err != nil {
		return err
	}
	if len(points) > MaxPoints {
		return fmt.Errorf("%d points, the limit is %d", len(points), MaxPoints)
	}
	*c = Curve{}
	for i, p := range points {
		if !p.sound() {
			return fmt.Errorf("point %d: rate_bytes_per_s and weight must be above 0, added_s 0 or more", i)
		}
		c.take(p)
	}
	return nil
}

// Curves holds a curve for each class of requests. The zero value is empty. One
// goroutine at a time.
type Curves struct {
	classes map[string]*Curve
}

// Observe takes a measurement of a class; see Curve.Observe. A class beyond the
// bound takes the place of the one with the least recent evidence. The class ""
// has no curve.
func (s *Curves) Observe(class string, rate, added float64) {
	if class == "" || len(class) > maxClassName || !(Point{Rate: rate, Added: added, Weight: 1}).sound() {
		return
	}
	// A class that is seen no more fades too.
	for name, c := range s.classes {
		for i := range c.points {
			c.points[i].Weight *= classForget
		}
		if c.weight() < faded {
			delete(s.classes, name)
		}
	}
	s.get(class).Observe(rate, added)
}

// ObserveDelivery takes a delivery for a measurement: of class r.Class, granted
// the rate in bytes per second once its layer 0 was there (the mean, if it
// changed), layer l whole after ready[l] seconds. What the wait for layer 0 was
// depends on who else was there, so it counts as one transfer at that rate: a
// curve is about rates that are held. Deliveries of a single layer say nothing.
func (s *Curves) ObserveDelivery(granted float64, ready []float64, r Request) {
	if len(ready) < 2 || !(granted > 0) {
		return
	}
	s.Observe(r.Class, granted, transfer(granted, r)+AddedBy(ready, r.Compute, ready[0]))
}

// classForget is what a measurement leaves of the weight of other classes.
const classForget = 1 - 1.0/(256*64)

// get finds or makes a class.
func (s *Curves) get(class string) *Curve {
	if c := s.classes[class]; c != nil {
		return c
	}
	if s.classes == nil {
		s.classes = make(map[string]*Curve)
	}
	for len(s.classes) >= MaxClasses {
		least, weight := "", 0.0
		for name, c := range s.classes {
			if w := c.weight(); least == "" || w < weight || w == weight && name < least {
				least, weight = name, w
			}
		}
		delete(s.classes, least)
	}
	c := &Curve{}
	s.classes[class] = c
	return c
}

// Begin gives a class that has no curve a copy of one that is known from
// elsewhere. A nil curve begins nothing.
func (s *Curves) Begin(class string, from *Curve) {
	if from != nil && class != "" && len(class) <= maxClassName && s.Class(class) == nil {
		s.get(class).Merge(from)
	}
}

// Class returns the curve of a class, nil if there is none.
func (s *Curves) Class(class string) *Curve {
	if s == nil || class == "" {
		return nil
	}
	return s.classes[class]
}

// Names lists the classes in order.
func (s *Curves) Names() []string {
	names := make([]string, 0, len(s.classes))
	for name := range s.classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Merge adds what other has learnt; other is not changed.
func (s *Curves) Merge(other *Curves) {
	for _, name := range other.Names() {
		s.get(name).Merge(other.classes[name])
	}
}

// MarshalJSON writes an object of classes.
func (s Curves) MarshalJSON() ([]byte, error) {
	if s.classes == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(s.classes)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Curves) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if len(raw) > MaxClasses {
		return fmt.Errorf("%d classes, the limit is %d", len(raw), MaxClasses)
	}
	classes := make(map[string]*Curve, len(raw))
	for name, r := range raw {
		if name == "" || len(name) > maxClassName {
			return fmt.Errorf("class %.20q: a name has 1 to %d bytes", name, maxClassName)
		}
		c := &Curve{}
		if err := c.UnmarshalJSON(r); err != nil {
			return fmt.Errorf("class %q: %w", name, err)
		}
		classes[name] = c
	}
	s.classes = classes
	return nil
}

// minEvidence is the weight below which a curve is not yet believed.
const minEvidence = 4

// learnt is the hull of a class that there is enough evidence for, else nil.
func (s *Curves) learnt(class string) *Hull {
	c := s.Class(class)
	if c == nil {
		return nil
	}
	if h := c.Hull(); h != nil && len(h.points) > 1 && h.weight >= minEvidence {
		return h
	}
	return nil
}
