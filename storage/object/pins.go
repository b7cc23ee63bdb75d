package object

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// gate tells the reaper when everybody who may have seen a record that is
// gone by now has had the time to pin it. Readers never wait at it.
//
// There are two counters and a phase that says which one newcomers use. pass
// turns the phase and waits until those counted in the old one have left.
type gate struct {
	phase  atomic.Uint32
	in     [2]atomic.Int64
	passMu sync.Mutex
	left   chan struct{} // holds one: someone was the last to leave an old phase
}

func newGate() *gate { return &gate{left: make(chan struct{}, 1)} }

// enter must be followed by a lookup and pin of bounded length, then leave
// with the value it returned.
func (g *gate) enter() uint32 {
	for {
		p := g.phase.Load() & 1
		g.in[p].Add(1)
		if g.phase.Load()&1 == p {
			return p
		}
		g.leave(p) // pass turned the phase in between and may not see us
	}
}

func (g *gate) leave(p uint32) {
	if g.in[p].Add(-1) == 0 && g.phase.Load()&1 != p {
		select {
		case g.left <- struct{}{}:
		default:
		}
	}
}

// pass returns when everyone who had entered before it was called has left.
func (g *gate) pass() {
	g.passMu.Lock()
	defer g.passMu.Unlock()
	old := g.phase.Add(1)&1 ^ 1
	for g.in[old].Load() != 0 {
		<-g.left // perhaps a note from an earlier pass: look again
	}
}

// pins counts the readers of each object id.
type pins struct{ shards [64]pinShard }

type pinShard struct {
	mu sync.Mutex
	m  map[ID]pin
	_  [40]byte // one cache line each
}

type pin struct {
	n       int
	garbage *garbage // set when the reaper waits for the last reader
}

func (p *pins) shard(id *ID) *pinShard {
	return &p.shards[binary.LittleEndian.Uint64(id[8:])%uint64(len(p.shards))]
}

func (p *pins) pin(id *ID) {
	s := p.shard(id)
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[ID]pin)
	}
	e := s.m[*id]
	e.n++
	s.m[*id] = e
	s.mu.Unlock()
}

// unpin returns the garbage that waited for this last reader, if any.
func (p *pins) unpin(id *ID) *garbage {
	s := p.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.m[*id]
	if e.n--; e.n > 0 {
		s.m[*id] = e
		return nil
	}
	delete(s.m, *id)
	return e.garbage
}

// park leaves g with a reader of its bytes and reports whether there is one.
// When the last of those readers has left, g is to be parked again: it may
// have others. A multipart object's segments can be pinned one by one, by a
// scrub that met them as parts.
func (p *pins) park(g *garbage) bool {
	if p.parkAt(g, &g.id) {
		return true
	}
	rec := record{segs: g.segs}
	for i := range rec.segments() {
		if id := rec.segmentID(i); p.parkAt(g, &id) {
			return true
		}
	}
	return false
}

func (p *pins) parkAt(g *garbage, id *ID) bool {
	s := p.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.m[*id]
	if ok {
		e.garbage = g
		s.m[*id] = e
	}
	return ok
}

// usage counts running calls and open objects, so that Close can wait for them.
type usage struct {
	n    atomic.Int64
	shut atomic.Bool
	last chan struct{} // holds one
}

// enter reports false once the store is closing.
func (u *usage) enter() bool {
	u.n.Add(1)
	if u.shut.Load() {
		u.leave()
		return false
	}
	return true
}

func (u *usage) leave() {
	if u.n.Add(-1) == 0 && u.shut.Load() {
		select {
		case u.last <- struct{}{}:
		default:
		}
	}
}

// shutOnce turns newcomers away and reports whether this call was the first.
func (u *usage) shutOnce() bool { return u.shut.CompareAndSwap(false, true) }

// wait returns when all have left. It is called once, after shutOnce.
func (u *usage) wait() {
	for u.n.Load() != 0 {
		<-u.last
	}
}
