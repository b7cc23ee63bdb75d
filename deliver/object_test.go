package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/transporttest"
)

var paths = []descriptor.Path{descriptor.Direct, descriptor.Buffer}

// oneObject is a store with one chunk of n bytes, opened.
func oneObject(t *testing.T, n int64) (*fakeStore, *fakeObject, []byte) {
	t.Helper()
	f := newFake(desc(t, 1, 1, n))
	for k, b := range f.chunks {
		return f, &fakeObject{f: f, key: k, b: b}, b
	}
	panic("no chunk")
}

// reports keeps what an Observer was told.
type reports struct {
	all     []Report
	refused []string
}

func (r *reports) Delivered(x Report)   { r.all = append(r.all, x) }
func (r *reports) Refused(limit string) { r.refused = append(r.refused, limit) }

// TestWriteObject walks through ranges of an object on both paths, over a
// store that reads into foreign memory by the fallback.
func TestWriteObject(t *testing.T) {
	manyWorkers(t)
	const b = storage.BlockSize
	r := rand.New(rand.NewPCG(5, 6))
	const size = 9<<20 + 12345 // more than two staging buffers
	f, obj, want := oneObject(t, size)
	ranges := [][2]int64{{0, size}, {0, 1}, {size - 1, 1}, {0, 0}, {b, b}, {b - 1, 2}, {1, 5 << 20}, {itemBytes, itemBytes}, {itemBytes - 1, 3 * itemBytes}}
	for range 20 {
		off := r.Int64N(size)
		ranges = append(ranges, [2]int64{off, r.Int64N(size - off)})
	}
	for _, path := range paths {
		seen := new(reports)
		d := New(f, Config{Workers: 4, Observer: seen})
		for _, c := range ranges {
			off, n := c[0], c[1]
			f.blocks.Store(0)
			m := transporttest.NewMemory(int(n) + 100)
			for i := range m.Bytes() {
				m.Bytes()[i] = 0xee
			}
			if err := d.WriteObject(t.Context(), obj, off, n, path, m); err != nil {
				t.Fatalf("%s %v: %v", path, c, err)
			}
			if !bytes.Equal(m.Bytes()[:n], want[off:off+n]) {
				t.Fatalf("%s %v: wrong bytes", path, c)
			}
			if !bytes.Equal(m.Bytes()[n:], bytes.Repeat([]byte{0xee}, 100)) || !slices.Equal(m.Layers(), []int{0}) {
				t.Fatalf("%s %v: bytes past the range, or layers %v", path, c, m.Layers())
			}
			if _, err := m.Grab(0, 1); !errors.Is(err, transport.ErrClosed) {
				t.Fatal("the sink is still open")
			}
			if n > 0 {
				if whole := (off+n-1)/b - off/b + 1; f.blocks.Load() != whole {
					t.Errorf("%s %v: %d blocks verified, want %d", path, c, f.blocks.Load(), whole)
				}
			}
		}
		if len(seen.all) != len(ranges) || string(seen.all[0].Mode) != string(path) || seen.all[0].Bytes != size || seen.all[0].Err != nil {
			t.Errorf("%s: reported %+v", path, seen.all[0])
		}
	}
}

// TestWriteObjectFails lets every read fail in turn, on both paths: nothing is
// announced, and nothing stays held.
func TestWriteObjectFails(t *testing.T) {
	manyWorkers(t)
	for _, path := range paths {
		for k := int64(1); ; k++ {
			f, obj, _ := oneObject(t, 2<<20+5)
			f.failAt = k
			d := New(f, Config{Workers: 3})
			m := transporttest.NewMemory(2<<20 + 5)
			err := d.WriteObject(t.Context(), obj, 0, obj.Size(), path, m)
			if d.staged.Load() != 0 {
				t.Fatal("a staging buffer is still taken")
			}
			if err == nil {
				if k == 1 {
					t.Fatal("nothing was read")
				}
				break
			}
			if !errors.Is(err, errFault) || len(m.Layers()) != 0 {
				t.Fatalf("%s, read %d: %v, layers %v", path, k, err, m.Layers())
			}
			if _, err := m.Grab(0, 1); !errors.Is(err, transport.ErrClosed) {
				t.Fatal("the sink is still open")
			}
		}
		f, obj, _ := oneObject(t, 2<<20)
		f.corrupt = map[string]int64{obj.key: 17}
		var c *storage.CorruptError
		m := transporttest.NewMemory(2 << 20)
		if err := New(f, Config{}).WriteObject(t.Context(), obj, 0, obj.Size(), path, m); !errors.As(err, &c) || len(m.Layers()) != 0 {
			t.Errorf("%s: %v", path, err)
		}
		if path == descriptor.Buffer && !bytes.Equal(m.Bytes(), make([]byte, 2<<20)) {
			t.Error("bytes that were not verified have left the staging buffer")
		}
	}
}

func TestWriteObjectCancelled(t *testing.T) {
	gone := errors.New("gone")
	for _, path := range paths {
		f, obj, _ := oneObject(t, 20<<20)
		ctx, cancel := context.WithCancelCause(t.Context())
		f.onRead = func(n int64, _ storage.ReadHint) {
			if n == 3 {
				cancel(gone)
			}
		}
		err := New(f, Config{Workers: 2}).WriteObject(ctx, obj, 0, obj.Size(), path, transporttest.NewMemory(20<<20))
		if !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestReadObject: memory as a body, by both paths, with readers of all sizes.
func TestReadObject(t *testing.T) {
	const size = 9<<20 + 77
	_, _, want := oneObject(t, size)
	m := transporttest.NewMemory(size + 10)
	copy(m.Bytes(), want)
	d := New(nil, Config{})
	for _, path := range paths {
		for _, step := range []int{1 << 20, 4096, 1<<16 - 1, 10 << 20} {
			body, err := d.ReadObject(t.Context(), m, size, path)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			p := make([]byte, step)
			for {
				n, err := body.Read(p)
				got = append(got, p[:n]...)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s by %d: %d bytes, or wrong ones", path, step, len(got))
			}
			for range 2 {
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := body.Read(p); err == nil || err == io.EOF {
				t.Errorf("read after Close: %v", err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		body, err := d.ReadObject(ctx, m, size, path)
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		cancel(gone)
		if _, err := body.Read(make([]byte, 1)); !errors.Is(err, gone) {
			t.Errorf("%s: %v", path, err)
		}
		_ = body.Close()
	}
	if d.staged.Load() != 0 {
		t.Error("a staging buffer is still taken")
	}
}

// TestStagingIsBounded: the objects that may be staged at a time are counted,
// and one more is told to come back.
func TestStagingIsBounded(t *testing.T) {
	seen := new(reports)
	f, obj, _ := oneObject(t, 1000)
	d := New(f, Config{Stages: 2, Observer: seen})
	m := transporttest.NewMemory(1000)
	var held []io.Closer
	for range 2 {
		b, err := d.ReadObject(t.Context(), m, 1000, descriptor.Buffer)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	var busy *descriptor.BusyError
	if _, err := d.ReadObject(t.Context(), m, 1000, descriptor.Buffer); !errors.As(err, &busy) {
		t.Errorf("got %v", err)
	}
	if err := d.WriteObject(t.Context(), obj, 0, 1000, descriptor.Buffer, transporttest.NewMemory(1000)); !errors.As(err, &busy) {
		t.Errorf("got %v", err)
	}
	if err := d.WriteObject(t.Context(), obj, 0, 1000, descriptor.Direct, transporttest.NewMemory(1000)); err != nil {
		t.Errorf("direct needs no staging: %v", err)
	}
	_ = held[0].Close()
	if err := d.WriteObject(t.Context(), obj, 0, 1000, descriptor.Buffer, transporttest.NewMemory(1000)); err != nil {
		t.Error(err)
	}
	_ = held[1].Close()
	if d.staged.Load() != 0 || len(seen.refused) != 2 {
		t.Error(fmt.Sprint(d.staged.Load(), seen.refused))
	}
}
