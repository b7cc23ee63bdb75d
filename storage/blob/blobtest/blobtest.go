// Package blobtest is the contract of blob.Store as tests. Every
// implementation passes it.
package blobtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/objcached/objcached/storage/blob"
)

// Config says how the suite gets its stores.
type Config struct {
	// Open returns a new, empty store, not yet restored, that can reach the
	// given capacity in bytes: a multiple of 1 MiB, and at least 4 MiB.
	// Closing it is the suite's affair.
	Open func(t testing.TB, capacity int64) blob.Store
	// Reopen, if set, opens what a store that Open gave, and that is closed by
	// now, has left.
	Reopen func(t testing.TB, s blob.Store) blob.Store
	// Crash, if set, opens what a crash at this moment would leave of a store
	// that is still open. With torn, any part of what was not sealed may have
	// reached the disk, chosen by seed; else nothing has.
	Crash func(t testing.TB, s blob.Store, torn bool, seed uint64) blob.Store
}

const mib = 1 << 20

var bg = context.Background()

// Run runs the suite.
func Run(t *testing.T, c Config) {
	for _, k := range []struct {
		name string
		fn   func(*testing.T, Config)
	}{
		{"RoundTrip", testRoundTrip},
		{"ReserveShape", testReserveShape},
		{"ReserveFewest", testReserveFewest},
		{"NoSpaceTakesNothing", testNoSpace},
		{"Contiguous", testContiguous},
		{"Range", testRange},
		{"FreeAndReuse", testFreeAndReuse},
		{"FreedReadsAsZero", testFreedReadsAsZero},
		{"FreeTwice", testFreeTwice},
		{"FreeParts", testFreeParts},
		{"RestoreGates", testRestoreGates},
		{"RestoreRejects", testRestoreRejects},
		{"Context", testContext},
		{"Closed", testClosed},
		{"Reopen", testReopen},
		{"CrashKeepsSealed", testCrash},
		{"NeverOverlap", testNeverOverlap},
		{"SealShared", testSealShared},
		{"ReadersAndWriters", testReadersAndWriters},
		{"ReadAllocs", testReadAllocs},
	} {
		t.Run(k.name, func(t *testing.T) {
			if k.name != "ReadAllocs" { // counts the whole process's allocations
				t.Parallel()
			}
			k.fn(t, c)
		})
	}
}

// open returns a new store with nothing in it.
func open(t testing.TB, c Config, capacity int64) blob.Store {
	t.Helper()
	s := c.Open(t, capacity)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	restore(t, s)
	return s
}

func restore(t testing.TB, s blob.Store, live ...blob.Extent) {
	t.Helper()
	if err := s.Restore(bg, each(live)); err != nil {
		t.Fatalf("restore: %v", err)
	}
}

func each(live []blob.Extent) func(func(blob.Extent) error) error {
	return func(yield func(blob.Extent) error) error {
		for _, e := range live {
			if err := yield(e); err != nil {
				return err
			}
		}
		return nil
	}
}

func reserve(t testing.TB, s blob.Store, size int64) []blob.Extent {
	t.Helper()
	exts, err := s.Reserve(bg, size)
	if err != nil {
		t.Fatalf("reserve %d: %v", size, err)
	}
	return exts
}

func reserveOne(t testing.TB, s blob.Store, size int64) blob.Extent {
	t.Helper()
	exts := reserve(t, s, size)
	if len(exts) != 1 || exts[0].Len != size {
		t.Fatalf("reserve %d gave %v, want one extent", size, exts)
	}
	return exts[0]
}

func free(t testing.TB, s blob.Store, exts ...blob.Extent) {
	t.Helper()
	if err := s.Free(bg, exts); err != nil {
		t.Fatalf("free: %v", err)
	}
}

func write(t testing.TB, s blob.Store, e blob.Extent, p []byte) {
	t.Helper()
	if err := s.WriteAt(bg, e, p, 0); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func seal(t testing.TB, s blob.Store, exts ...blob.Extent) {
	t.Helper()
	if err := s.Seal(bg, exts); err != nil {
		t.Fatalf("seal: %v", err)
	}
}

// pattern is bytes that differ between seeds and at every 8-byte place.
func pattern(seed uint64, n int64) []byte {
	p := make([]byte, n+8)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := 0; i < int(n); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(p[i:], x)
	}
	return p[:n]
}

func wantBytes(t testing.TB, s blob.Store, e blob.Extent, want []byte) {
	t.Helper()
	for _, cold := range []bool{false, true} {
		got := make([]byte, len(want))
		if err := s.ReadAt(bg, e, got, 0, cold); err != nil {
			t.Fatalf("read %+v (cold %v): %v", e, cold, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("read %+v (cold %v): first wrong byte at %d", e, cold, firstDiff(got, want))
		}
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func testRoundTrip(t *testing.T, c Config) {
	s := open(t, c, 8*mib)
	for _, n := range []int64{1, 7, 4095, 4096, 4097, 65536, 65537, 200001, mib} {
		e := reserveOne(t, s, n)
		p := pattern(uint64(n), n)
		// In pieces of odd lengths, from the back.
		for end := n; end > 0; {
			start := max(0, end-(n/3+1))
			if err := s.WriteAt(bg, e, p[start:end], start); err != nil {
				t.Fatal(err)
			}
			end = start
		}
		wantBytes(t, s, e, p) // before the seal too
		seal(t, s, e)
		wantBytes(t, s, e, p)
		for _, r := range [][2]int64{{0, 1}, {n - 1, n}, {n / 2, n}, {n / 3, n/2 + 1}, {n, n}, {0, 0}} {
			got := make([]byte, r[1]-r[0])
			if err := s.ReadAt(bg, e, got, r[0], false); err != nil {
				t.Fatalf("[%d,%d) of %d: %v", r[0], r[1], n, err)
			}
			if !bytes.Equal(got, p[r[0]:r[1]]) {
				t.Fatalf("[%d,%d) of %d: wrong bytes", r[0], r[1], n)
			}
		}
	}
	if err := s.Seal(bg, nil); err != nil {
		t.Fatalf("seal of nothing: %v", err)
	}
}

func testReserveShape(t *testing.T, c Config) {
	s := open(t, c, 8*mib)
	if exts := reserve(t, s, 0); len(exts) != 0 {
		t.Fatalf("0 bytes gave %v", exts)
	}
	if _, err := s.Reserve(bg, -1); err == nil {
		t.Fatal("-1 bytes were reserved")
	}
	var all []blob.Extent
	var total int64
	for i := range int64(60) {
		n := i*1531 + 1
		exts := reserve(t, s, n)
		var sum int64
		for _, e := range exts {
			sum += e.Len
		}
		if sum != n {
			t.Fatalf("%d bytes gave %v", n, exts)
		}
		for _, e := range exts[:len(exts)-1] {
			if e.Len%blob.Align != 0 {
				t.Fatalf("a gap within %v", exts)
			}
		}
		total += blob.Roundup(n)
		all = append(all, exts...)
	}
	disjoint(t, all)
	st := s.Stats()
	if st.Reserved != total || st.Capacity != 8*mib || st.Volumes < 1 {
		t.Fatalf("%+v, want %d bytes reserved", st, total)
	}
	free(t, s, all...)
	if st := s.Stats(); st.Reserved != 0 {
		t.Fatalf("%+v after everything was freed", st)
	}
}

// disjoint fails if two extents share a block or one is not aligned.
func disjoint(t testing.TB, exts []blob.Extent) {
	t.Helper()
	exts = slices.Clone(exts)
	slices.SortFunc(exts, func(a, b blob.Extent) int {
		if a.Volume != b.Volume {
			return int(a.Volume) - int(b.Volume)
		}
		if a.Offset < b.Offset {
			return -1
		}
		return 1
	})
	for i, e := range exts {
		if e.Offset%blob.Align != 0 || e.Offset < 0 || e.Len <= 0 {
			t.Fatalf("%+v is no extent", e)
		}
		if i > 0 {
			if p := exts[i-1]; p.Volume == e.Volume && p.Offset+blob.Roundup(p.Len) > e.Offset {
				t.Fatalf("%+v and %+v overlap", p, e)
			}
		}
	}
}

// fill reserves everything in pieces of n bytes.
func fill(t testing.TB, s blob.Store, n int64) []blob.Extent {
	t.Helper()
	var all []blob.Extent
	for {
		exts, err := s.Reserve(bg, n)
		if errors.Is(err, blob.ErrNoSpace) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, exts...)
	}
}

// Where no one run is long enough, the longest are used.
func testReserveFewest(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	all := fill(t, s, blob.Align)
	if len(all) != 4*mib/blob.Align {
		t.Fatalf("%d blocks", len(all))
	}
	// Runs of 1, 2, 3, 4, 5 blocks, held apart by one block each.
	i := 0
	for n := 1; n <= 5; n++ {
		for j := range n {
			if j > 0 && (all[i].Volume != all[i-1].Volume || all[i].Offset != all[i-1].Offset+blob.Align) {
				t.Skip("blocks reserved one after another do not lie together")
			}
			free(t, s, all[i])
			i++
		}
		i++
	}
	// 5+3, or 5 and 3 of the 4; of the 7 blocks left, at worst 4+2+1.
	for i, blocks := range []int64{8, 3, 4} {
		exts := reserve(t, s, blocks*blob.Align-100)
		if i == 0 && len(exts) != 2 {
			t.Fatalf("8 blocks of runs of 5, 4, 3, 2 and 1 came in %d pieces", len(exts))
		}
		disjoint(t, exts)
	}
	if st := s.Stats(); st.Reserved != 4*mib {
		t.Fatalf("%+v, want everything reserved", st)
	}
}

func testNoSpace(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	for _, n := range []int64{4*mib + 1, 1 << 62, 1<<63 - 1} {
		if _, err := s.Reserve(bg, n); !errors.Is(err, blob.ErrNoSpace) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if st := s.Stats(); st.Reserved != 0 {
		t.Fatalf("%+v", st)
	}
	e := reserve(t, s, 3*mib)
	if _, err := s.Reserve(bg, mib+1); !errors.Is(err, blob.ErrNoSpace) {
		t.Fatalf("1 byte more than there is: %v", err)
	}
	if st := s.Stats(); st.Reserved != 3*mib {
		t.Fatalf("%+v after a reservation that failed", st)
	}
	f := reserve(t, s, mib)
	if _, err := s.Reserve(bg, 1); !errors.Is(err, blob.ErrNoSpace) {
		t.Fatalf("a byte of a full store: %v", err)
	}
	free(t, s, append(e, f...)...)
	free(t, s, reserve(t, s, 4*mib)...)
}

// What is reserved one after another in an empty store lies one after another.
func testContiguous(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	last := reserveOne(t, s, 64<<10)
	for range 10 {
		e := reserveOne(t, s, 64<<10)
		if e.Volume != last.Volume || e.Offset != last.Offset+64<<10 {
			t.Fatalf("%+v follows %+v", e, last)
		}
		last = e
	}
}

func testRange(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	e := reserveOne(t, s, 10000)
	p := make([]byte, 20000)
	type access struct{ off, n int64 }
	for _, a := range []access{{-1, 1}, {0, 10001}, {10000, 1}, {9999, 2}, {10001, 0}, {1<<63 - 1, 1}, {1<<63 - 1, 0}} {
		if err := s.ReadAt(bg, e, p[:a.n], a.off, false); !errors.Is(err, blob.ErrRange) {
			t.Errorf("read %+v: %v", a, err)
		}
		if err := s.WriteAt(bg, e, p[:a.n], a.off); !errors.Is(err, blob.ErrRange) {
			t.Errorf("write %+v: %v", a, err)
		}
	}
	for _, x := range []blob.Extent{
		{Volume: 99, Len: 1}, {Volume: 1<<32 - 1, Len: 1}, {Offset: -4096, Len: 1}, {Offset: 1, Len: 1},
		{Offset: 4 * mib, Len: 1}, {Offset: 1<<63 - 4096, Len: 4096}, {Offset: 4096, Len: 1<<63 - 1}, {Len: -1},
	} {
		if err := s.ReadAt(bg, x, p[:1], 0, false); !errors.Is(err, blob.ErrRange) {
			t.Errorf("read of %+v: %v", x, err)
		}
		if err := s.WriteAt(bg, x, p[:1], 0); !errors.Is(err, blob.ErrRange) {
			t.Errorf("write of %+v: %v", x, err)
		}
		if err := s.Seal(bg, []blob.Extent{x}); !errors.Is(err, blob.ErrRange) {
			t.Errorf("seal of %+v: %v", x, err)
		}
		if err := s.Free(bg, []blob.Extent{e, x}); !errors.Is(err, blob.ErrRange) {
			t.Errorf("free of %+v: %v", x, err)
		}
	}
	if st := s.Stats(); st.Reserved != blob.Roundup(e.Len) {
		t.Errorf("%+v: a Free that failed has freed something", st)
	}
}

func testFreeAndReuse(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	data := make([][]byte, 17)
	for i := range data {
		data[i] = pattern(uint64(i), 256<<10)
	}
	for round := range 3 {
		var exts []blob.Extent
		for i := range 16 {
			e := reserveOne(t, s, 256<<10)
			write(t, s, e, data[(round+i)%17])
			exts = append(exts, e)
		}
		if _, err := s.Reserve(bg, 1); !errors.Is(err, blob.ErrNoSpace) {
			t.Fatalf("round %d: %v, want ErrNoSpace", round, err)
		}
		seal(t, s, exts...)
		for i, e := range exts {
			wantBytes(t, s, e, data[(round+i)%17])
		}
		free(t, s, exts...)
	}
	reserve(t, s, 4*mib) // all in one again, volumes permitting
}

// The next owner of space never reads what the last one wrote, not even in the
// rest of a block.
func testFreedReadsAsZero(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	e := reserve(t, s, 4*mib)
	for _, x := range e {
		write(t, s, x, pattern(1, x.Len))
	}
	seal(t, s, e...)
	free(t, s, e...)
	for _, x := range reserve(t, s, 4*mib) {
		write(t, s, x, []byte("new"))
		want := make([]byte, x.Len)
		copy(want, "new")
		wantBytes(t, s, x, want)
	}
}

func testFreeTwice(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	e, f := reserveOne(t, s, 8192), reserveOne(t, s, 8192)
	p := pattern(1, 8192)
	write(t, s, f, p)
	if err := s.Free(bg, []blob.Extent{f, f}); err == nil {
		t.Fatal("the same extent twice in one call was taken")
	}
	free(t, s, e)
	if err := s.Free(bg, []blob.Extent{e}); err == nil {
		t.Fatal("an extent was freed twice")
	}
	// With an error, nothing is freed, and nothing zeroed.
	if err := s.Free(bg, []blob.Extent{f, e}); err == nil {
		t.Fatal("an extent was freed twice")
	}
	wantBytes(t, s, f, p)
	free(t, s, f)
	if st := s.Stats(); st.Reserved != 0 {
		t.Fatalf("%+v", st)
	}
	free(t, s)
}

func testFreeParts(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	e := reserveOne(t, s, 40000)
	p := pattern(1, e.Len)
	write(t, s, e, p)
	free(t, s, blob.Extent{Volume: e.Volume, Offset: e.Offset + 8192, Len: 8192})
	head := blob.Extent{Volume: e.Volume, Offset: e.Offset, Len: 8192}
	tail := blob.Extent{Volume: e.Volume, Offset: e.Offset + 16384, Len: e.Len - 16384}
	wantBytes(t, s, head, p[:8192])
	wantBytes(t, s, tail, p[16384:])
	free(t, s, tail, head)
	if st := s.Stats(); st.Reserved != 0 {
		t.Fatalf("%+v", st)
	}
}
