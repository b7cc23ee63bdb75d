package vfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// each runs fn on every implementation.
func each(t *testing.T, fn func(t *testing.T, fsys FS)) {
	for name, open := range map[string]func(*testing.T) FS{
		"os":           func(t *testing.T) FS { return OS(t.TempDir()) },
		"by reference": func(t *testing.T) FS { return OSByReference(t.TempDir()) },
		"mem":          func(*testing.T) FS { return NewMem() },
		"faulty":       func(*testing.T) FS { return Faulty(NewMem(), func(Op) Fault { return Fault{} }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, open(t))
		})
	}
}

func create(t testing.TB, fsys FS, name string) File {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

func read(t testing.TB, f File, off, n int64) []byte {
	t.Helper()
	p := bytes.Repeat([]byte{0xaa}, int(n))
	ok(t, f.ReadAt(p, off))
	return p
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		_, err := fsys.Open("a")
		is(t, err, fs.ErrNotExist)
		is(t, fsys.Remove("a"), fs.ErrNotExist)
		f := create(t, fsys, "b")
		create(t, fsys, "a")
		_, err = fsys.Create("a")
		is(t, err, fs.ErrExist)
		names, err := fsys.List()
		if err != nil || !slices.Equal(names, []string{"a", "b"}) {
			t.Fatal(names, err)
		}
		ok(t, f.WriteAt([]byte("x"), 0))
		ok(t, fsys.SyncDir())
		ok(t, fsys.Remove("b"))
		_, err = fsys.Open("b")
		is(t, err, fs.ErrNotExist)
		if got := read(t, f, 0, 1); string(got) != "x" {
			t.Fatal("an open file lost its bytes with its name")
		}
		// Two handles of one file are the same bytes.
		g, err := fsys.Open("a")
		ok(t, err)
		h, err := fsys.Open("a")
		ok(t, err)
		ok(t, g.WriteAt([]byte("hello"), 3))
		ok(t, g.Close())
		if got := read(t, h, 0, 8); string(got) != "\x00\x00\x00hello" {
			t.Fatalf("%q", got)
		}
		ok(t, h.Close())
	})
}

func TestReadWrite(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		f := create(t, fsys, "f")
		const size = 10 * PageSize
		ok(t, f.Allocate(0, size))
		if n, err := f.Size(); n != size || err != nil {
			t.Fatal(n, err)
		}
		want := make([]byte, size)
		if !bytes.Equal(read(t, f, 0, size), want) {
			t.Fatal("new room is not zero")
		}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 300 {
			off := r.Int64N(size)
			n := r.Int64N(size-off) + 1
			switch r.IntN(8) {
			case 0:
				off = off / PageSize * PageSize
				n = n / PageSize * PageSize
				ok(t, f.Detach(off, n))
				clear(want[off : off+n])
			case 1:
				ok(t, f.DropCache(off, n))
			case 2:
				ok(t, f.Sync())
			case 3:
				ok(t, f.Allocate(off, n))
			case 4, 5:
				p := make([]byte, n)
				read := f.ReadAt
				if i%2 == 0 {
					read = f.ReadAtCold
				}
				ok(t, read(p, off))
				if !bytes.Equal(p, want[off:off+n]) {
					t.Fatalf("step %d: wrong bytes in [%d,+%d)", i, off, n)
				}
			default:
				for j := range want[off : off+n] {
					want[off+int64(j)] = byte(r.Uint32())
				}
				ok(t, f.WriteAt(want[off:off+n], off))
			}
		}
		if !bytes.Equal(read(t, f, 0, size), want) {
			t.Fatal("wrong bytes at the end")
		}
		is(t, f.ReadAt(make([]byte, 2), size-1), io.ErrUnexpectedEOF)
		is(t, f.ReadAtCold(make([]byte, 2), size-1), io.ErrUnexpectedEOF)
		if f.Detach(1, PageSize) == nil || f.Detach(0, 100) == nil || f.Detach(-PageSize, PageSize) == nil {
			t.Fatal("an unaligned detach was done")
		}
		if f.ReadAt(make([]byte, 1), -1) == nil || f.WriteAt([]byte{1}, -1) == nil {
			t.Fatal("a negative offset was taken")
		}
		if n, err := f.Size(); n != size || err != nil {
			t.Fatal("the size changed:", n, err)
		}
	})
}

func TestClosedFile(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		f := create(t, fsys, "f")
		ok(t, f.Allocate(0, PageSize))
		ok(t, f.Close())
		p := make([]byte, 1)
		_, serr := f.Size()
		for name, err := range map[string]error{
			"read": f.ReadAt(p, 0), "cold": f.ReadAtCold(p, 0), "write": f.WriteAt(p, 0), "sync": f.Sync(),
			"allocate": f.Allocate(0, PageSize), "detach": f.Detach(0, PageSize),
			"drop": f.DropCache(0, PageSize), "size": serr, "close": f.Close(),
		} {
			if !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Calls that run while the file is closed end, one way or the other, and none
// of them reaches another file that got the same descriptor.
func TestCloseUnderCalls(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		for range 5 {
			f, err := fsys.Create("f")
			ok(t, err)
			ok(t, f.Allocate(0, 8*PageSize))
			var wg sync.WaitGroup
			started := make(chan struct{}, 4)
			for i := range 4 {
				wg.Go(func() {
					p := make([]byte, PageSize)
					for n := 0; ; n++ {
						calls := []func() error{
							func() error { return f.ReadAt(p, 0) },
							func() error { return f.WriteAt(p, 0) },
							func() error { return f.Detach(0, PageSize) },
							func() error { return f.ReadAtCold(p, 0) },
						}
						err := calls[i]()
						if n == 0 {
							started <- struct{}{}
						}
						if errors.Is(err, fs.ErrClosed) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for range 4 {
				<-started
			}
			ok(t, f.Close())
			g := create(t, fsys, "g")
			ok(t, g.WriteAt([]byte("safe"), 0))
			wg.Wait()
			if got := read(t, g, 0, 4); string(got) != "safe" {
				t.Fatalf("%q", got)
			}
			ok(t, g.Close())
			ok(t, errors.Join(fsys.Remove("f"), fsys.Remove("g")))
		}
	})
}

func TestFaulty(t *testing.T) {
	t.Parallel()
	run := func(fsys FS) (n int, err error) {
		f, err := fsys.Create("f")
		if err != nil {
			return 0, err
		}
		defer f.Close()
		steps := []func() error{
			func() error { return f.Allocate(0, 2*PageSize) },
			func() error { return f.WriteAt([]byte("abcdef"), 0) },
			f.Sync,
			fsys.SyncDir,
			func() error { return f.ReadAt(make([]byte, 6), 0) },
			func() error { return f.ReadAtCold(make([]byte, 6), 0) },
			func() error { return f.Detach(0, PageSize) },
			func() error { _, err := f.Size(); return err },
			func() error { _, err := fsys.List(); return err },
			func() error { g, err := fsys.Open("f"); return errors.Join(err, closeIf(g)) },
			func() error { return fsys.Remove("f") },
		}
		for _, s := range steps {
			n++
			if err := s(); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	for k := int64(1); ; k++ {
		p := &FailAt{Kinds: KindAll, K: k}
		n, err := run(Faulty(NewMem(), p.Decide))
		if !p.Fired() {
			if err != nil || k != 13 {
				t.Fatalf("%d operations: %v", k, err)
			}
			break
		}
		is(t, err, ErrInjected)
		if int64(n) != k-1 {
			t.Fatalf("operation %d failed, not %d", n, k-1)
		}
	}

	// A torn write leaves its beginning.
	mine := errors.New("mine")
	p := &FailAt{Kinds: KindWrite, K: 2, Err: mine, Done: 3}
	fsys := Faulty(NewMem(), p.Decide)
	f := create(t, fsys, "f")
	ok(t, f.WriteAt([]byte("------"), 0))
	is(t, f.WriteAt([]byte("abcdef"), 0), mine)
	if got := read(t, f, 0, 6); string(got) != "abc---" {
		t.Fatalf("%q", got)
	}
	ok(t, f.WriteAt([]byte("x"), 0)) // once only

	dead := &FailAt{Kinds: KindSync, K: 2, On: true}
	f = create(t, Faulty(NewMem(), dead.Decide), "f")
	ok(t, f.Sync())
	for range 3 {
		is(t, f.Sync(), ErrInjected)
	}
	ok(t, f.WriteAt([]byte("x"), 0))
}

func closeIf(f File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
