package vfile

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cached counts the pages of [0, n) that are in the page cache.
func cached(t *testing.T, f File, n int) int {
	t.Helper()
	o := f.(*osFile)
	count := 0
	err := o.control("mmap", func(fd int) error {
		m, err := unix.Mmap(fd, 0, n, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		vec := make([]byte, n/PageSize)
		err = errors.Join(mincore(m, vec), unix.Munmap(m))
		for _, v := range vec {
			count += int(v & 1)
		}
		return err
	})
	ok(t, err)
	return count
}

func TestColdReads(t *testing.T) {
	t.Parallel()
	const n = 64 * PageSize
	for _, old := range []bool{false, true} { // an old kernel, without RWF_DONTCACHE
		f := create(t, OS(t.TempDir()), "f")
		f.(*osFile).noDontCache.Store(old)
		want := bytes.Repeat([]byte("0123456789abcdef"), n/16)
		ok(t, f.WriteAt(want, 0))
		ok(t, f.Sync())
		ok(t, f.DropCache(0, n))
		if left := cached(t, f, n); left > 0 {
			t.Skipf("%d pages do not leave the cache on this file system", left)
		}
		got := make([]byte, n)
		ok(t, f.ReadAtCold(got, 0))
		if !bytes.Equal(got, want) {
			t.Fatal("wrong bytes")
		}
		if left := cached(t, f, n); left != 0 {
			t.Errorf("old %v: a cold read left %d pages", old, left)
		}
		// What requests have warmed stays warm, in part or whole.
		for _, warm := range []int{n / 2, n} {
			ok(t, f.ReadAt(got[:warm], 0))
			before := cached(t, f, warm)
			if before == 0 {
				t.Skip("a read does not cache on this file system")
			}
			clear(got)
			ok(t, f.ReadAtCold(got, 0))
			if !bytes.Equal(got, want) {
				t.Fatal("wrong bytes")
			}
			if after := cached(t, f, warm); after < before {
				t.Errorf("old %v: a cold read left %d of %d warm pages", old, after, before)
			}
		}
	}
}

// Detached space keeps its blocks, so that a later write cannot meet a full disk.
func TestDetachKeepsRoom(t *testing.T) {
	t.Parallel()
	f := create(t, OS(t.TempDir()), "f")
	const n = 256 * PageSize
	ok(t, f.Allocate(0, n))
	ok(t, f.WriteAt(bytes.Repeat([]byte{1}, n), 0))
	ok(t, f.Sync())
	blocks := func() (b int64) {
		ok(t, f.(*osFile).control("fstat", func(fd int) error {
			var st unix.Stat_t
			err := unix.Fstat(fd, &st)
			b = st.Blocks
			return err
		}))
		return b
	}
	before := blocks()
	ok(t, f.Detach(16*PageSize, 128*PageSize))
	ok(t, f.Sync())
	if after := blocks(); after < before {
		t.Fatalf("%d blocks of %d are left", after, before)
	}
	if got := read(t, f, 16*PageSize, 128*PageSize); !bytes.Equal(got, make([]byte, len(got))) {
		t.Fatal("not zero")
	}
	if c := read(t, f, 15*PageSize, PageSize); c[0] != 1 || c[PageSize-1] != 1 {
		t.Fatal("the page before was touched")
	}
	if c := read(t, f, 144*PageSize, PageSize); c[0] != 1 || c[PageSize-1] != 1 {
		t.Fatal("the page after was touched")
	}
}

func TestReadAllocs(t *testing.T) {
	f := create(t, OS(t.TempDir()), "f")
	ok(t, f.WriteAt(make([]byte, 64<<10), 0))
	p := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(100, func() { ok(t, f.ReadAt(p, 0)) }); n != 0 {
		t.Fatalf("a read allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { ok(t, f.WriteAt(p, 0)) }); n != 0 {
		t.Fatalf("a write allocates %v times", n)
	}
}

func mincore(m, vec []byte) error {
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0])))
	if e != 0 {
		return e
	}
	return nil
}
