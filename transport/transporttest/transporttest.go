// Package transporttest is the contract that every transport.Sink keeps.
package transporttest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/objcached/objcached/transport"
)

// Target is a sink under test, and the client's side of it.
type Target struct {
	Sink transport.Sink
	// Seen returns the payload as the client can read it now, from byte 0:
	// for an ordered sink what has arrived, else its whole memory.
	Seen func() []byte
	// Ready returns the layers that the client has been told of; nil if the
	// transport has no such note and the client counts bytes.
	Ready func() []int
	// Await waits until the client has been told of a layer that was announced;
	// nil if it has when LayerReady returns.
	Await func(layer int)
}

// announce announces a layer and waits until the client knows.
func (tg *Target) announce(layer int) error {
	if err := tg.Sink.LayerReady(layer); err != nil {
		return err
	}
	if tg.Await != nil {
		tg.Await(layer)
	}
	return nil
}

// Run runs the contract. Open makes a fresh target for a payload of size bytes.
func Run(t *testing.T, open func(t *testing.T, size int) Target) {
	t.Run("EveryByte", func(t *testing.T) { everyByte(t, open) })
	t.Run("AnyOrder", func(t *testing.T) { anyOrder(t, open) })
	t.Run("Order", func(t *testing.T) { order(t, open) })
	t.Run("Bounds", func(t *testing.T) { bounds(t, open) })
	t.Run("Closed", func(t *testing.T) { closed(t, open) })
}

// payload is a pattern without a period that a buffer's size could hide behind.
func payload(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // never fails
	return b
}

// put writes want[off:end) by grabs of at most most bytes, committing less
// than was grabbed every third time.
func put(t *testing.T, s transport.Sink, want []byte, off, end, most int) {
	t.Helper()
	for i := 0; off < end; i++ {
		n := min(end-off, most)
		p, err := s.Grab(int64(off), n)
		if err != nil {
			t.Fatalf("Grab(%d, %d): %v", off, n, err)
		}
		if len(p) == 0 || len(p) > n {
			t.Fatalf("Grab(%d, %d) gave %d bytes", off, n, len(p))
		}
		if i%3 == 2 && len(p) > 1 {
			for k := range p {
				p[k] = 0xee // never to be seen
			}
			p = p[:len(p)/2]
		}
		copy(p, want[off:])
		if err := s.Commit(int64(off), len(p)); err != nil {
			t.Fatalf("Commit(%d, %d): %v", off, len(p), err)
		}
		off += len(p)
	}
}

func everyByte(t *testing.T, open func(*testing.T, int) Target) {
	for _, c := range []struct{ layers, layer, most int }{
		{1, 1, 1}, {3, 7, 3}, {5, 1000, 999}, {3, 1 << 20, 64 << 10}, {4, 300001, 1 << 30}, {2, 65536, 65536}, {40, 10, 4},
	} {
		want := payload(c.layers * c.layer)
		tg := open(t, len(want))
		for l := range c.layers {
			end := (l + 1) * c.layer
			put(t, tg.Sink, want, l*c.layer, end, c.most)
			if err := tg.announce(l); err != nil {
				t.Fatal(err)
			}
			// The client has every byte of the layer as soon as it is ready.
			got := tg.Seen()
			if len(got) < end || !bytes.Equal(got[:end], want[:end]) {
				t.Fatalf("%+v: layer %d is announced and not there", c, l)
			}
			if tg.Ready != nil {
				if r := tg.Ready(); len(r) != l+1 || r[l] != l {
					t.Fatalf("%+v: the client knows of layers %v, want 0..%d", c, r, l)
				}
			}
		}
		if err := tg.Sink.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tg.Seen(), want) {
			t.Fatalf("%+v: the payload differs after Close", c)
		}
	}
}

func anyOrder(t *testing.T, open func(*testing.T, int) Target) {
	const layer, piece, layers = 64 << 10, 4 << 10, 3
	want := payload(layers * layer)
	tg := open(t, len(want))
	defer func() { _ = tg.Sink.Close() }()
	if tg.Sink.Ordered() {
		t.Skip("an ordered sink")
	}
	for l := range layers {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for k := layer/piece - 1 - w; k >= 0; k -= 4 { // backwards, four at a time
					off := l*layer + k*piece
					for end := off + piece; off < end; {
						p, err := tg.Sink.Grab(int64(off), end-off)
						if err != nil {
							t.Error(err)
							return
						}
						copy(p, want[off:])
						if err := tg.Sink.Commit(int64(off), len(p)); err != nil {
							t.Error(err)
							return
						}
						off += len(p)
					}
				}
			})
		}
		wg.Wait()
		if err := tg.announce(l); err != nil {
			t.Fatal(err)
		}
		if end := (l + 1) * layer; !bytes.Equal(tg.Seen()[:end], want[:end]) {
			t.Fatalf("layer %d is announced and not there", l)
		}
	}
}

func order(t *testing.T, open func(*testing.T, int) Target) {
	fresh := func() transport.Sink {
		tg := open(t, 100)
		t.Cleanup(func() { _ = tg.Sink.Close() })
		return tg.Sink
	}
	if !fresh().Ordered() {
		t.Skip("not an ordered sink")
	}
	s := fresh()
	if _, err := s.Grab(1, 10); err == nil {
		t.Error("a grab ahead of the payload was taken")
	}
	if _, err := s.Grab(0, 10); err == nil {
		t.Error("the sink went on after an error")
	}
	s = fresh()
	put(t, s, payload(100), 0, 50, 50)
	if _, err := s.Grab(0, 10); err == nil {
		t.Error("a byte was taken twice")
	}
	s = fresh()
	if _, err := s.Grab(0, 10); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(1, 5); err == nil {
		t.Error("a commit of other bytes than were grabbed was taken")
	}
	s = fresh()
	if _, err := s.Grab(0, 10); err != nil {
		t.Fatal(err)
	}
	if err := s.LayerReady(0); err == nil {
		t.Error("a layer was announced over memory still lent")
	}
}

func bounds(t *testing.T, open func(*testing.T, int) Target) {
	for name, use := range map[string]func(transport.Sink) error{
		"grab nothing":           func(s transport.Sink) error { _, err := s.Grab(0, 0); return err },
		"grab a negative number": func(s transport.Sink) error { _, err := s.Grab(0, -1); return err },
		"commit ungrabbed":       func(s transport.Sink) error { return s.Commit(0, 1) },
		"commit too much": func(s transport.Sink) error {
			p, err := s.Grab(0, 10)
			if err != nil {
				return nil // reported as taken: the grab was right
			}
			return s.Commit(0, len(p)+1)
		},
		"commit nothing": func(s transport.Sink) error {
			if _, err := s.Grab(0, 10); err != nil {
				return nil
			}
			return s.Commit(0, 0)
		},
	} {
		tg := open(t, 100)
		if err := use(tg.Sink); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := tg.Sink.Close(); err != nil {
			t.Error(err)
		}
	}
}

func closed(t *testing.T, open func(*testing.T, int) Target) {
	tg := open(t, 100)
	put(t, tg.Sink, payload(100), 0, 50, 50)
	for range 2 {
		if err := tg.Sink.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tg.Sink.Grab(50, 1); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Grab: %v", err)
	}
	if err := tg.Sink.Commit(50, 1); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Commit: %v", err)
	}
	if err := tg.Sink.LayerReady(0); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("LayerReady: %v", err)
	}
}
