package object

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/storagetest"
)

// only has the methods of storage.Object and no other.
type only struct{ storage.Object }

// pieces cuts n bytes into places at random, some of them empty.
func pieces(r *rand.Rand, n int) (all []byte, dst [][]byte) {
	all = make([]byte, n)
	for at := 0; at < n; {
		k := min([]int{0, 1, r.IntN(100), r.IntN(20_000), storage.BlockSize, r.IntN(3 * storage.BlockSize)}[r.IntN(6)], n-at)
		dst = append(dst, all[at:at+k:at+k])
		at += k
	}
	return all, dst
}

// TestReadInto reads ranges into places of all sizes, through the ability and
// through the fallback that stands in for it, of objects of every kind.
func TestReadInto(t *testing.T) {
	const bs = storage.BlockSize
	for _, mode := range []storage.VerifyMode{storage.VerifyAlways, storage.VerifyFirstRead, storage.VerifyOff} {
		s := withBucket(t, 64<<20, Options{Verify: mode})
		s.blob.longest = 200_000
		s.mustPut(t, "small", storagetest.Pattern(1, 1000))
		s.mustPut(t, "large", storagetest.Pattern(2, 7*bs+1234))
		s.complete(t, "parts", storagetest.Pattern(3, minPartSize+777), storagetest.Pattern(4, 3*bs+1))
		want := map[string][]byte{"small": storagetest.Pattern(1, 1000), "large": storagetest.Pattern(2, 7*bs+1234),
			"parts": append(storagetest.Pattern(3, minPartSize+777), storagetest.Pattern(4, 3*bs+1)...)}
		r := rand.New(rand.NewPCG(3, 4))
		for key, w := range want {
			o, err := s.Open(bg, "b", key)
			if err != nil {
				t.Fatal(err)
			}
			for range 60 {
				off := r.IntN(len(w) + 1)
				if r.IntN(2) == 0 {
					off -= off % bs
				}
				n := r.IntN(min(len(w)-off, 5*bs) + 1)
				if r.IntN(4) == 0 {
					n = min(len(w)-off, 5*bs)
				}
				for _, o := range []storage.Object{o, only{o}} {
					all, dst := pieces(r, n)
					if err := storage.ReadInto(bg, o, dst, int64(off), storage.ReadHint{}); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(all, w[off:off+n]) {
						t.Fatalf("%s [%d,%d): wrong bytes", key, off, off+n)
					}
				}
			}
			for _, bad := range [][2]int{{-1, 1}, {len(w), 1}, {0, len(w) + 1}} {
				err := storage.ReadInto(bg, o, [][]byte{make([]byte, bad[1])}, int64(bad[0]), storage.ReadHint{})
				if !errors.Is(err, storage.ErrInvalidRange) {
					t.Errorf("%v: %v", bad, err)
				}
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
			if err := storage.ReadInto(bg, o, nil, 0, storage.ReadHint{}); !errors.Is(err, storage.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
		s.mustClose(t)
	}
}

// meddled is a byte store whose reads are meddled with on their way.
type meddled struct {
	blob.Store
	touch func(p []byte)
}

func (m *meddled) ReadAt(ctx context.Context, e blob.Extent, p []byte, off int64, cold bool) error {
	err := m.Store.ReadAt(ctx, e, p, off, cold)
	m.touch(p)
	return err
}

// TestReadIntoIsNoWitness: a client that writes to its memory while the server
// reads into it makes no block corrupt, and no corrupt block right.
func TestReadIntoIsNoWitness(t *testing.T) {
	const bs = storage.BlockSize
	s := withBucket(t, 16<<20, Options{Verify: storage.VerifyFirstRead})
	defer s.mustClose(t)
	want := storagetest.Pattern(1, 4*bs)
	s.mustPut(t, "k", want)
	m := &meddled{Store: s.Store.blob, touch: func([]byte) {}}
	s.Store.blob = m
	o, err := s.Open(bg, "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got := make([]byte, len(want))
	into := func() error { return storage.ReadInto(bg, o, [][]byte{got}, 0, storage.ReadHint{}) }

	// The client spoils block 2 in its memory, and only there.
	m.touch = func(p []byte) {
		if len(p) == len(want) {
			p[2*bs+5] ^= 1
		}
	}
	if err := into(); err != nil || !bytes.Equal(got, want) || s.Stats().CorruptBlocks != 0 {
		t.Fatalf("%v, %d corrupt blocks", err, s.Stats().CorruptBlocks)
	}

	// The store's block 1 is bad, and the client puts it right in its memory.
	e := o.(*object).rec.exts[0]
	s.blob.data[e.Offset+bs+7] ^= 8
	m.touch = func(p []byte) {
		if len(p) == len(want) {
			p[bs+7] ^= 8
		}
	}
	if err := into(); err != nil {
		t.Fatal(err)
	}
	m.touch = func([]byte) {}
	var c *storage.CorruptError
	if err := o.ReadAt(bg, got, 0, storage.ReadHint{}); !errors.As(err, &c) || c.Block != 1 {
		t.Errorf("a block that only a client's memory had right counts as verified: %v", err)
	}
	if err := into(); !errors.As(err, &c) || c.Block != 1 || s.Stats().CorruptBlocks != 2 {
		t.Errorf("%v, %d corrupt blocks counted", err, s.Stats().CorruptBlocks)
	}
}
