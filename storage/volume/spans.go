package volume

// spans is the set of free runs of blocks: a treap ordered by address in which
// every node knows the longest run below it, so that finding the first run
// that is long enough, finding the longest, taking and giving back are
// O(log n). Neighbouring runs are always merged.
//
// Addresses are block numbers with the volume in the upper bits (see addr);
// the last block of a volume's number space is never used, so runs of two
// volumes never touch.
//
// Nodes live in one slice and refer to each other by index: a store with a
// million holes gives the garbage collector one object to look at.
type spans struct {
	nodes []spanNode // nodes[0] is the empty tree
	spare int32      // chain of unused nodes, through left
	root  int32
	total int64 // blocks in all runs
	count int
}

type spanNode struct {
	start, n    int64
	longest     int64 // over this node and all below it
	prio        uint64
	left, right int32
}

// prio spreads keys that come in patterns; a treap's depth rests on it.
func prio(key int64) uint64 { // splitmix64
	z := uint64(key) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *spans) alloc(start, n int64) int32 {
	nd := spanNode{start: start, n: n, longest: n, prio: prio(start)}
	s.total += n
	s.count++
	if i := s.spare; i != 0 {
		s.spare = s.nodes[i].left
		s.nodes[i] = nd
		return i
	}
	if len(s.nodes) == 0 {
		s.nodes = append(s.nodes, spanNode{})
	}
	s.nodes = append(s.nodes, nd)
	return int32(len(s.nodes) - 1)
}

func (s *spans) release(i int32) {
	s.total -= s.nodes[i].n
	s.count--
	s.nodes[i] = spanNode{left: s.spare}
	s.spare = i
}

func (s *spans) pull(i int32) {
	nd := &s.nodes[i]
	nd.longest = max(nd.n, s.nodes[nd.left].longest, s.nodes[nd.right].longest)
}

// split cuts tree t into runs that start below key and the rest.
func (s *spans) split(t int32, key int64) (lo, hi int32) {
	if t == 0 {
		return 0, 0
	}
	if s.nodes[t].start < key {
		l, h := s.split(s.nodes[t].right, key)
		s.nodes[t].right = l
		s.pull(t)
		return t, h
	}
	l, h := s.split(s.nodes[t].left, key)
	s.nodes[t].left = h
	s.pull(t)
	return l, t
}

// join is the inverse of split: all of lo lies below all of hi.
func (s *spans) join(lo, hi int32) int32 {
	switch {
	case lo == 0:
		return hi
	case hi == 0:
		return lo
	case s.nodes[lo].prio > s.nodes[hi].prio:
		r := s.join(s.nodes[lo].right, hi)
		s.nodes[lo].right = r
		s.pull(lo)
		return lo
	default:
		l := s.join(lo, s.nodes[hi].left)
		s.nodes[hi].left = l
		s.pull(hi)
		return hi
	}
}

// before returns the run with the highest start below key, after the one with
// the lowest start at or above it; 0 if there is none.
func (s *spans) before(key int64) int32 {
	var best int32
	for t := s.root; t != 0; {
		if s.nodes[t].start < key {
			best, t = t, s.nodes[t].right
		} else {
			t = s.nodes[t].left
		}
	}
	return best
}

func (s *spans) after(key int64) int32 {
	var best int32
	for t := s.root; t != 0; {
		if s.nodes[t].start >= key {
			best, t = t, s.nodes[t].left
		} else {
			t = s.nodes[t].right
		}
	}
	return best
}

// free reports whether any block of [start, start+n) is in the set.
func (s *spans) free(start, n int64) bool {
	i := s.before(start + n) // index 0 has no blocks
	return i != 0 && s.nodes[i].start+s.nodes[i].n > start
}

// insert adds [start, start+n), n > 0, and returns the run it has become part
// of. It returns false, and changes nothing, if any of it is there already.
func (s *spans) insert(start, n int64) (from int64, ok bool) {
	if s.free(start, n) {
		return 0, false
	}
	end := start + n
	if i := s.before(start); i != 0 && s.nodes[i].start+s.nodes[i].n == start {
		start = s.nodes[i].start
		s.unlink(start)
	}
	if i := s.after(end); i != 0 && s.nodes[i].start == end {
		end += s.nodes[i].n
		s.unlink(s.nodes[i].start)
	}
	s.link(start, end-start)
	return start, true
}

func (s *spans) link(start, n int64) {
	i := s.alloc(start, n)
	lo, hi := s.split(s.root, start)
	s.root = s.join(s.join(lo, i), hi)
}

// unlink removes the run that starts at start.
func (s *spans) unlink(start int64) {
	lo, rest := s.split(s.root, start)
	one, hi := s.split(rest, start+1)
	s.root = s.join(lo, hi)
	s.release(one)
}

// carve takes exactly [start, start+n), n > 0, out of the set. It returns
// false, and changes nothing, if not all of it is there.
func (s *spans) carve(start, n int64) bool {
	i := s.before(start + 1)
	if i == 0 {
		return false
	}
	from, end := s.nodes[i].start, s.nodes[i].start+s.nodes[i].n
	if end < start+n {
		return false
	}
	if from == start {
		s.cutFront(from, n)
		return true
	}
	s.resize(from, start-from)
	if end > start+n {
		s.link(start+n, end-start-n)
	}
	return true
}

// cutFront takes the first n blocks of the run that starts at start. The
// node stays where it is in the tree: its new start is still below the next
// run's. (Its priority stays the old start's, which is as good as any.)
func (s *spans) cutFront(start, n int64) {
	i := s.at(start)
	if s.nodes[i].n == n {
		s.unlink(start)
		return
	}
	s.total -= n
	s.edit(s.root, start, start+n, s.nodes[i].n-n)
}

func (s *spans) resize(start, n int64) {
	s.total -= s.nodes[s.at(start)].n - n
	s.edit(s.root, start, start, n)
}

func (s *spans) at(start int64) int32 { return s.after(start) }

// edit gives the run at key a new start and length and mends longest above it.
func (s *spans) edit(t int32, key, start, n int64) {
	nd := &s.nodes[t]
	switch {
	case key < nd.start:
		s.edit(nd.left, key, start, n)
	case key > nd.start:
		s.edit(nd.right, key, start, n)
	default:
		nd.start, nd.n = start, n
	}
	s.pull(t)
}

// longest is the length of the longest run.
func (s *spans) longest() int64 {
	if s.root == 0 {
		return 0
	}
	return s.nodes[s.root].longest
}

// fit returns the start of the first run at or above from that has n blocks.
func (s *spans) fit(t int32, from, n int64) (int64, bool) {
	if t == 0 || s.nodes[t].longest < n {
		return 0, false
	}
	nd := &s.nodes[t]
	if nd.start >= from {
		if at, ok := s.fit(nd.left, from, n); ok {
			return at, true
		}
		if nd.n >= n {
			return nd.start, true
		}
	}
	return s.fit(nd.right, from, n)
}

// first returns the lowest run of the set at or above from.
func (s *spans) first(from int64) (start, n int64, ok bool) {
	i := s.after(from)
	return s.nodeStart(i), s.nodeLen(i), i != 0
}

func (s *spans) nodeStart(i int32) int64 {
	if i == 0 {
		return 0
	}
	return s.nodes[i].start
}

func (s *spans) nodeLen(i int32) int64 {
	if i == 0 {
		return 0
	}
	return s.nodes[i].n
}
