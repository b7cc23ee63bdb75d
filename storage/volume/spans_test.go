package volume

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// naive is the free set as one bool per block.
type naive struct {
	free   []bool
	cursor int64
}

// runs lists the maximal runs of free blocks.
func (m *naive) runs() (out []run) {
	for i := int64(0); i < int64(len(m.free)); i++ {
		if !m.free[i] {
			continue
		}
		from := i
		for i < int64(len(m.free)) && m.free[i] {
			i++
		}
		out = append(out, run{from, i - from})
	}
	return out
}

func (m *naive) set(at, n int64, free bool) {
	for i := at; i < at+n; i++ {
		m.free[i] = free
	}
}

func (m *naive) is(at, n int64, free bool) bool {
	for i := at; i < at+n; i++ {
		if m.free[i] != free {
			return false
		}
	}
	return true
}

func (m *naive) take(n int64) (int64, bool) {
	for _, from := range []int64{m.cursor, 0} {
		for _, r := range m.runs() {
			if r.at >= from && r.n >= n {
				m.set(r.at, n, false)
				m.cursor = r.at + n
				return r.at, true
			}
		}
	}
	return 0, false
}

func (m *naive) give(at, n int64) bool {
	if !m.is(at, n, false) {
		return false
	}
	m.set(at, n, true)
	for _, r := range m.runs() {
		if r.at <= at && at < r.at+r.n && r.at < m.cursor && m.cursor <= at+n {
			m.cursor = r.at
		}
	}
	return true
}

// compare checks the tree's shape and that both hold the same runs.
func compare(a *allocator, m *naive) error {
	var got []run
	var walk func(t int32, top uint64) (longest int64, err error)
	walk = func(t int32, top uint64) (int64, error) {
		if t == 0 {
			return 0, nil
		}
		nd := a.spans.nodes[t]
		if nd.prio > top {
			return 0, fmt.Errorf("node %+v lies below one of priority %d", nd, top)
		}
		l, err := walk(nd.left, nd.prio)
		if err != nil {
			return 0, err
		}
		got = append(got, run{nd.start, nd.n})
		r, err := walk(nd.right, nd.prio)
		if err != nil {
			return 0, err
		}
		if w := max(l, r, nd.n); nd.longest != w {
			return 0, fmt.Errorf("node %+v: longest is %d", nd, w)
		}
		return nd.longest, nil
	}
	longest, err := walk(a.spans.root, 1<<64-1)
	if err != nil {
		return err
	}
	want := m.runs()
	var total int64
	for i, r := range want {
		total += r.n
		if i >= len(got) || got[i] != r {
			return fmt.Errorf("runs are %v, want %v", got, want)
		}
		longest = max(longest, r.n)
	}
	if len(got) != len(want) || a.spans.total != total || a.spans.count != len(want) || a.spans.longest() != longest || a.cursor != m.cursor {
		return fmt.Errorf("runs %v total %d count %d longest %d cursor %d, want %v cursor %d",
			got, a.spans.total, a.spans.count, a.spans.longest(), a.cursor, want, m.cursor)
	}
	return nil
}

// step does one operation on both.
func step(a *allocator, m *naive, kind byte, x, y int64) error {
	size := int64(len(m.free))
	at := x % size
	n := 1 + y%min(size-at, 16)
	switch kind % 5 {
	case 0, 1:
		g, gok := a.take(n)
		w, wok := m.take(n)
		if g != w || gok != wok {
			return fmt.Errorf("take %d: %d %v, want %d %v", n, g, gok, w, wok)
		}
	case 2:
		if g, w := a.give(at, n), m.give(at, n); g != w {
			return fmt.Errorf("give [%d,+%d): %v, want %v", at, n, g, w)
		}
	case 3:
		w := m.is(at, n, true)
		if w {
			m.set(at, n, false)
		}
		if g := a.spans.carve(at, n); g != w {
			return fmt.Errorf("carve [%d,+%d): %v, want %v", at, n, g, w)
		}
		if g, w := a.spans.free(at, n), !m.is(at, n, false); g != w {
			return fmt.Errorf("free [%d,+%d): %v, want %v", at, n, g, w)
		}
	case 4:
		n = min(n*2, a.spans.total)
		before := m.runs()
		pieces := a.takePieces(n)
		var sum int64
		for _, p := range pieces {
			if !m.is(p.at, p.n, true) {
				return fmt.Errorf("piece %v was not free", p)
			}
			m.set(p.at, p.n, false)
			m.cursor = p.at + p.n
			sum += p.n
		}
		if sum != n || len(pieces) != fewest(before, n) {
			return fmt.Errorf("%d blocks of %v in %v", n, before, pieces)
		}
	}
	return compare(a, m)
}

// fewest is the least number of runs that n blocks can be cut from.
func fewest(runs []run, n int64) int {
	var lens []int64
	for _, r := range runs {
		lens = append(lens, r.n)
	}
	count := 0
	for n > 0 {
		best := 0
		for i := range lens {
			if lens[i] > lens[best] {
				best = i
			}
		}
		n -= lens[best]
		lens[best] = 0
		count++
	}
	return count
}

func newPair(size int64) (*allocator, *naive) {
	a, m := new(allocator), &naive{free: make([]bool, size)}
	a.spans.insert(0, size)
	m.set(0, size, true)
	return a, m
}

func TestAllocatorAgainstNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		a, m := newPair(1 + r.Int64N(300))
		for i := range 1500 {
			kind, x, y := byte(r.UintN(5)), r.Int64N(1<<40), r.Int64N(1<<40)
			if err := step(a, m, kind, x, y); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		// Given back, all of it is one run again.
		for i, f := range m.free {
			if !f {
				a.give(int64(i), 1)
			}
		}
		if a.spans.count != 1 || a.spans.longest() != int64(len(m.free)) {
			t.Fatalf("seed %d: %d runs at the end", seed, a.spans.count)
		}
	}
}

func FuzzAllocator(f *testing.F) {
	f.Add([]byte{64, 0, 9, 1, 2, 0, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 600 {
			return
		}
		a, m := newPair(1 + int64(in[0]))
		for in = in[1:]; len(in) >= 3; in = in[3:] {
			if err := step(a, m, in[0], int64(in[1]), int64(in[2])); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestVolumesDoNotTouch(t *testing.T) {
	t.Parallel()
	var a allocator
	const size = maxVolSize
	for v := range uint32(3) {
		a.add(v, size)
	}
	if a.spans.count != 3 {
		t.Fatalf("%d runs", a.spans.count)
	}
	a.take(10)
	at, _ := a.take(1)
	if v, off := place(at); v != 0 || off != 10*4096 {
		t.Fatalf("volume %d at %d", v, off)
	}
	a.drop(1)
	if a.spans.count != 2 || a.spans.free(addr(1, 0), 1<<blockBits-1) || !a.spans.free(addr(2, 0), 1) {
		t.Fatal("drop took the wrong blocks")
	}
	if v, off := place(addr(maxVolume, maxVolSize-4096)); v != maxVolume || off != maxVolSize-4096 || addr(maxVolume, maxVolSize) < 0 {
		t.Fatalf("the last block has no address: %d %d", v, off)
	}
}

// Next fit: what is taken one after another lies together though holes that
// would do are free below.
func TestAllocatorKeepsTogether(t *testing.T) {
	t.Parallel()
	a, _ := newPair(1000)
	for range 50 {
		a.take(8)
	}
	for i := range int64(25) { // holes of 8
		a.give(i*16, 8)
	}
	last, _ := a.take(8)
	if last != 400 {
		t.Fatalf("at %d, want after the last one", last)
	}
	// An aborted write's space is the next one's.
	a.give(last, 8)
	if again, _ := a.take(8); again != last {
		t.Fatalf("at %d, want %d again", again, last)
	}
	// At the end it goes round.
	a.cursor = 1000
	if at, ok := a.take(8); !ok || at != 0 {
		t.Fatalf("%d %v", at, ok)
	}
}

// holes returns an allocator with n holes of one block.
func holes(n int64) *allocator {
	var a allocator
	for i := range n {
		a.spans.insert(2*i, 1)
	}
	return &a
}

func TestSpansDepth(t *testing.T) {
	t.Parallel()
	a := holes(1 << 15) // in order: the worst for a tree that does not balance
	var depth func(t int32) int
	depth = func(t int32) int {
		if t == 0 {
			return 0
		}
		return 1 + max(depth(a.spans.nodes[t].left), depth(a.spans.nodes[t].right))
	}
	if d := depth(a.spans.root); d > 60 {
		t.Fatalf("%d levels for 2^15 runs", d)
	}
}

func BenchmarkAllocator(b *testing.B) {
	for _, n := range []int64{1 << 10, 1 << 20} {
		a := holes(n)
		a.spans.insert(4*n, 1<<30)
		r := rand.New(rand.NewPCG(1, 1))
		b.Run(fmt.Sprintf("take-give/holes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				at, ok := a.take(16)
				if !ok || !a.give(at, 16) {
					b.Fatal("full")
				}
			}
		})
		b.Run(fmt.Sprintf("carve-give/holes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				at := r.Int64N(n) * 2
				if !a.spans.carve(at, 1) || !a.give(at, 1) {
					b.Fatal("not free")
				}
			}
		})
	}
}

// BenchmarkRestore is start-up: a million live extents in order of address,
// a hole after each.
func BenchmarkRestore(b *testing.B) {
	for b.Loop() {
		var a allocator
		a.spans.insert(0, 1<<32)
		for i := range int64(1 << 20) {
			if !a.spans.carve(i*3, 2) {
				b.Fatal("not free")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(1<<20), "ns/extent")
}
