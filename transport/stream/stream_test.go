package stream_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/stream"
	"github.com/objcached/objcached/transport/transporttest"
)

func TestContract(t *testing.T) {
	for _, size := range []int{0, 64 << 10, 100 << 10, 1 << 20} {
		pool := stream.NewPool(size)
		transporttest.Run(t, func(*testing.T, int) transporttest.Target {
			var b bytes.Buffer
			return transporttest.Target{Sink: pool.Open(&b), Seen: b.Bytes}
		})
	}
}

// calls records what reaches the writer.
type calls struct {
	writes  []int
	flushes int
	fail    int // the write that fails, counted from 1
	short   bool
}

func (c *calls) Write(p []byte) (int, error) {
	c.writes = append(c.writes, len(p))
	if len(c.writes) == c.fail {
		if c.short {
			return len(p) - 1, nil
		}
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func (c *calls) Flush() { c.flushes++ }

func fill(s transport.Sink, off int64, n int) error {
	for n > 0 {
		p, err := s.Grab(off, n)
		if err != nil {
			return err
		}
		if err := s.Commit(off, len(p)); err != nil {
			return err
		}
		off += int64(len(p))
		n -= len(p)
	}
	return nil
}

// TestGathers: slices go out in whole buffers, and a layer's rest at its end.
func TestGathers(t *testing.T) {
	const slice = 64 << 10
	c := new(calls)
	s := stream.NewPool(4 * slice).Open(c)
	for i := range 7 {
		if err := fill(s, int64(i)*slice, slice); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.LayerReady(0); err != nil {
		t.Fatal(err)
	}
	if err := s.LayerReady(1); err != nil { // nothing new: no write, no flush
		t.Fatal(err)
	}
	if len(c.writes) != 2 || c.writes[0] != 4*slice || c.writes[1] != 3*slice || c.flushes != 1 {
		t.Errorf("writes %v, %d flushes", c.writes, c.flushes)
	}
	// Less than a block is never offered to who wants more: the buffer goes out first.
	c = new(calls)
	s = stream.NewPool(2 * slice).Open(c)
	if err := fill(s, 0, slice+slice/2); err != nil {
		t.Fatal(err)
	}
	p, err := s.Grab(slice+slice/2, slice+slice/2)
	if err != nil || len(p) != slice+slice/2 {
		t.Errorf("half a block was left, and %d bytes offered (%v)", len(p), err)
	}
	if len(c.writes) != 1 || c.writes[0] != slice+slice/2 {
		t.Errorf("writes %v", c.writes)
	}
}

// TestWriteFails: the error of the writer comes out, and stays.
func TestWriteFails(t *testing.T) {
	for _, short := range []bool{false, true} {
		want := io.ErrClosedPipe
		if short {
			want = io.ErrShortWrite
		}
		for k := 1; ; k++ {
			c := &calls{fail: k, short: short}
			s := stream.NewPool(64 << 10).Open(c)
			err := fill(s, 0, 200<<10)
			if err == nil {
				err = s.LayerReady(0)
			}
			if err == nil {
				if k != 5 {
					t.Errorf("%d writes, want 4", k-1)
				}
				break
			}
			if !errors.Is(err, want) {
				t.Fatalf("write %d: %v", k, err)
			}
			if _, err := s.Grab(0, 1); !errors.Is(err, want) {
				t.Errorf("Grab after a failure: %v", err)
			}
			if err := s.Commit(0, 1); !errors.Is(err, want) {
				t.Errorf("Commit after a failure: %v", err)
			}
			if err := s.LayerReady(0); !errors.Is(err, want) {
				t.Errorf("LayerReady after a failure: %v", err)
			}
			_ = s.Close()
		}
	}
}

func TestNoAllocations(t *testing.T) {
	s := stream.NewPool(0).Open(io.Discard)
	defer func() { _ = s.Close() }()
	off := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		if err := fill(s, off, 100_000); err != nil {
			t.Fatal(err)
		}
		off += 100_000
	}); n != 0 {
		t.Errorf("%v allocations per slice", n)
	}
}
