package vfile

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
)

func reopen(t *testing.T, fsys FS, name string) File {
	t.Helper()
	f, err := fsys.Open(name)
	ok(t, err)
	return f
}

func TestCrashLosesWhatIsNotSynced(t *testing.T) {
	t.Parallel()
	m := NewMem()
	f := create(t, m, "f")
	ok(t, f.Allocate(0, 4*PageSize))
	ok(t, f.WriteAt([]byte("one"), 0))
	ok(t, f.Sync())
	if names, _ := m.CrashClone(Crash{}).List(); len(names) != 0 {
		t.Fatalf("%q survived without SyncDir", names)
	}
	ok(t, m.SyncDir())
	ok(t, f.WriteAt([]byte("two"), 0))
	ok(t, f.WriteAt([]byte("far"), 3*PageSize))
	ok(t, f.WriteAt([]byte("grown"), 4*PageSize))

	c := m.CrashClone(Crash{})
	g := reopen(t, c, "f")
	if n, _ := g.Size(); n != 4*PageSize {
		t.Fatalf("size %d", n)
	}
	if got := read(t, g, 0, 3); string(got) != "one" {
		t.Fatalf("%q", got)
	}
	if got := read(t, g, 3*PageSize, 3); string(got) != "\x00\x00\x00" {
		t.Fatalf("%q", got)
	}
	// The clone and the old one are apart.
	ok(t, g.WriteAt([]byte("new"), 0))
	if got := read(t, f, 0, 3); string(got) != "two" {
		t.Fatalf("%q", got)
	}
	ok(t, f.Sync())
	if got := read(t, g, 0, 3); string(got) != "new" {
		t.Fatalf("%q", got)
	}
	if got := read(t, reopen(t, m.CrashClone(Crash{}), "f"), 4*PageSize, 5); string(got) != "grown" {
		t.Fatalf("%q", got)
	}

	// A detach, too, is lost until synced; then the old bytes never come back.
	ok(t, f.Detach(0, PageSize))
	if got := read(t, reopen(t, m.CrashClone(Crash{}), "f"), 0, 3); string(got) != "two" {
		t.Fatalf("%q", got)
	}
	ok(t, f.Sync())
	if got := read(t, reopen(t, m.CrashClone(Crash{}), "f"), 0, 3); string(got) != "\x00\x00\x00" {
		t.Fatalf("%q", got)
	}
	// A Remove comes undone until SyncDir.
	ok(t, m.Remove("f"))
	reopen(t, m.CrashClone(Crash{}), "f")
	ok(t, m.SyncDir())
	_, err := m.CrashClone(Crash{}).Open("f")
	is(t, err, fs.ErrNotExist)
}

// With a Rand, every unsynced page on its own is old or new, never else, and
// both happen; what is synced is always there; one seed gives one outcome.
func TestCrashKeepsSome(t *testing.T) {
	t.Parallel()
	const pages = 64
	fill := func(b byte) []byte { return bytes.Repeat([]byte{b}, PageSize) }
	build := func() *Mem {
		m := NewMem()
		f := create(t, m, "f")
		for i := range int64(pages) {
			ok(t, f.WriteAt(fill('a'), i*PageSize))
		}
		ok(t, f.Sync())
		ok(t, m.SyncDir())
		for i := range int64(pages / 2) {
			ok(t, f.WriteAt(fill('b'), i*PageSize))
		}
		ok(t, f.Detach(0, 8*PageSize))
		create(t, m, "unsynced")
		return m
	}
	m := build()
	seen := map[string]int{}
	for seed := range uint64(16) {
		c := m.CrashClone(Crash{Rand: rand.New(rand.NewPCG(seed, 0))})
		again := build().CrashClone(Crash{Rand: rand.New(rand.NewPCG(seed, 0))})
		f, g := reopen(t, c, "f"), reopen(t, again, "f")
		all := read(t, f, 0, pages*PageSize)
		if !bytes.Equal(all, read(t, g, 0, pages*PageSize)) {
			t.Fatalf("seed %d has two outcomes", seed)
		}
		for i := range pages {
			p := all[i*PageSize : (i+1)*PageSize]
			if !bytes.Equal(p, fill(p[0])) {
				t.Fatalf("page %d is mixed", i)
			}
			seen[fmt.Sprintf("%d%q", min(i/8, 1)+i/(pages/2), p[0])]++
		}
		names, _ := c.List()
		seen[fmt.Sprint(names)]++
	}
	var got []string
	for k := range seen {
		got = append(got, k)
	}
	slices.Sort(got)
	// Detached: old or zero. Overwritten: old or new. Untouched: old.
	want := []string{`0'\x00'`, `0'a'`, `1'a'`, `1'b'`, `2'a'`, "[f unsynced]", "[f]"}
	if !slices.Equal(got, want) {
		t.Fatalf("saw %q, want %q", got, want)
	}
}

func TestMemLimit(t *testing.T) {
	t.Parallel()
	m := NewMem()
	m.SetLimit(10 * PageSize)
	f, g := create(t, m, "f"), create(t, m, "g")
	ok(t, f.Allocate(0, 6*PageSize))
	is(t, g.Allocate(0, 5*PageSize), syscall.ENOSPC)
	ok(t, g.Allocate(0, 4*PageSize))
	ok(t, f.Allocate(0, 6*PageSize))
	is(t, f.Allocate(0, 7*PageSize), syscall.ENOSPC)
	if n, _ := g.Size(); n != 4*PageSize {
		t.Fatal(n)
	}
	m.SetLimit(0)
	ok(t, f.Allocate(0, 100*PageSize))
}

// While stands still means: a write that starts during it is not in the clone.
func TestCrashWhile(t *testing.T) {
	t.Parallel()
	m := NewMem()
	f := create(t, m, "f")
	ok(t, f.WriteAt([]byte("old"), 0))
	ok(t, f.Sync())
	ok(t, m.SyncDir())
	wrote := make(chan error, 1)
	c := m.CrashClone(Crash{While: func() {
		go func() {
			if err := f.WriteAt([]byte("new"), 0); err != nil {
				wrote <- err
				return
			}
			wrote <- f.Sync()
		}()
	}})
	ok(t, <-wrote)
	if got := read(t, reopen(t, c, "f"), 0, 3); string(got) != "old" {
		t.Fatalf("%q", got)
	}
}
