//go:build fabric && cgo

package fabric

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/transport"
)

// TestConcurrentTransfers: many deliveries into one memory, each into a part
// of it and awaited by a client of its own.
func TestConcurrentTransfers(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		const part, layers, turns = 40 << 10, 4, 3
		cfg.WriteBytes, cfg.Buffers = 16<<10, 6 // fewer than there are deliveries
		d := newDomain(t, cfg)
		m, r := connect(t, d, Slots*part)
		var wg sync.WaitGroup
		for i := range int64(Slots) {
			wg.Go(func() {
				for g := range int64(turns) {
					tag := g*Slots + i
					tr, err := r.Open(t.Context(), Window{i * part, part, tag, 3, layers})
					if err != nil {
						t.Error(err)
						return
					}
					want := bytes.Repeat([]byte{byte(1 + tag)}, part)
					var side sync.WaitGroup
					side.Go(func() {
						for l := range layers {
							lo := l * part / layers
							if !m.Wait(tag, l, patience) || !bytes.Equal(m.Bytes()[int(i)*part+lo:][:part/layers], want[:part/layers]) {
								t.Errorf("slot %d layer %d is not there", i, l)
								return
							}
						}
					})
					for l := range layers {
						if err := errors.Join(send(tr, want, l*part/layers, (l+1)*part/layers, 3000), tr.LayerReady(3+l)); err != nil {
							t.Error(err)
						}
					}
					side.Wait()
					if m.Wait(tag, Over, 0) {
						t.Error("it is over before Close")
					}
					if err := tr.Close(); err != nil {
						t.Error(err)
					}
					if !m.Wait(tag, Over, patience) || m.Wait(tag+Slots, 0, 0) || m.Wait(tag+Slots, Over, 0) {
						t.Error("what is known after Close is wrong")
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestScattered: pieces that lie apart, as the paged placement has them, each in
// its place and nothing between.
func TestScattered(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		const piece, stride, n = 3001, 8192, 100
		cfg.WriteBytes = 64 << 10
		d := newDomain(t, cfg)
		m, r := connect(t, d, stride*n)
		tr, err := r.Open(t.Context(), Window{Length: stride * n, Layers: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]byte, len(m.Bytes()))
		content := turn(0)
		for i := range n {
			copy(want[(i*37%n)*stride:], content[i*piece:][:piece])
		}
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				for i := w; i < n; i += 3 {
					lo := (i * 37 % n) * stride
					if err := send(tr, want, lo, lo+piece, 2000); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := tr.LayerReady(0); err != nil {
			t.Fatal(err)
		}
		if !m.Wait(0, 0, patience) || !bytes.Equal(m.Bytes(), want) {
			t.Error("the layer is not there as it should be")
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCancel: what has not been sent when the context ends is not sent, and
// nothing of the delivery lands after Close.
func TestCancel(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		cfg.WriteBytes, cfg.Buffers = 16<<10, 4
		d := newDomain(t, cfg)
		m, r := connect(t, d, 1<<20)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		tr, err := r.Open(ctx, Window{Length: 1 << 19, Tag: 1, Layers: 2})
		if err != nil {
			t.Fatal(err)
		}
		ones := bytes.Repeat([]byte{1}, 1<<19)
		if err := send(tr, ones, 0, 100_000, 7000); err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		for { // the context's end is told by a goroutine
			if _, err = tr.Grab(200_000, 1); err != nil {
				break
			}
			if err := tr.Commit(200_000, 1); err != nil {
				break
			}
		}
		_, grab := tr.Grab(300_000, 1)
		for _, err := range []error{grab, tr.Commit(300_000, 1), tr.LayerReady(0)} {
			if !errors.Is(err, cause) {
				t.Errorf("after the context's end: %v", err)
			}
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		if !m.Wait(1, Over, patience) || m.Wait(1, 0, 0) {
			t.Error("the client is to know that it is over, and of no layer")
		}
		then := bytes.Clone(m.Bytes()[:1<<19])
		// A delivery into the other half, over the same connection, comes after
		// whatever was under way.
		tr, err = r.Open(t.Context(), Window{Offset: 1 << 19, Length: 1 << 19, Tag: 1 + Slots, Layers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(send(tr, ones, 0, 1<<19, 7000), tr.LayerReady(0), tr.Close()); err != nil {
			t.Fatal(err)
		}
		if !m.Wait(1+Slots, 0, patience) || !bytes.Equal(m.Bytes()[1<<19:], ones) {
			t.Error("the next delivery has not arrived")
		}
		if !bytes.Equal(m.Bytes()[:1<<19], then) {
			t.Error("bytes landed after Close")
		}
	})
}

// TestGrabWaits: a caller that finds no staging memory waits for some, and no
// longer than its context.
func TestGrabWaits(t *testing.T) {
	cfg := first()
	cfg.WriteBytes, cfg.Buffers, cfg.TransferBuffers = 4096, 1, 1
	d := newDomain(t, cfg)
	m, r := connect(t, d, 1<<16)
	holder, err := r.Open(t.Context(), Window{Length: 1 << 15, Tag: 0, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := holder.Grab(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a, err := r.Open(ctx, Window{Length: 1 << 15, Tag: 1, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Open(t.Context(), Window{Offset: 1 << 15, Length: 1 << 15, Tag: 2, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	grabbed := make(chan error, 2)
	grab := func(tr *Transfer) { _, err := tr.Grab(0, 100); grabbed <- err }
	go grab(a)
	for d.Stats().Waiting != 1 {
		time.Sleep(time.Millisecond)
	}
	go grab(b)
	for d.Stats().Waiting != 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-grabbed; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that was cancelled: %v", err)
	}
	p[0] = 9
	// Committed less than a whole buffer: it goes out because another waits.
	if err := holder.Commit(0, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-grabbed; err != nil {
		t.Errorf("the other: %v", err)
	}
	if err := errors.Join(b.Commit(0, 100), b.LayerReady(0), holder.LayerReady(0), a.Close(), b.Close(), holder.Close()); err != nil {
		t.Error(err)
	}
	if !m.Wait(0, 0, patience) || !m.Wait(2, 0, patience) || m.Bytes()[0] != 9 {
		t.Error("a layer is missing")
	}
}

// TestRefused: what lies outside is refused before anything is sent.
func TestRefused(t *testing.T) {
	cfg := first()
	cfg.Remotes = 2
	d := newDomain(t, cfg)
	m, r := connect(t, d, 1<<16)
	for _, c := range []struct {
		w    Window
		want error
	}{
		{Window{Offset: -1, Length: 1, Layers: 1}, ErrWindow},
		{Window{Length: 0, Layers: 1}, ErrWindow},
		{Window{Length: 1<<16 + 1, Layers: 1}, ErrWindow},
		{Window{Offset: 1 << 16, Length: 1, Layers: 1}, ErrWindow},
		{Window{Offset: 1 << 62, Length: 1 << 62, Layers: 1}, ErrWindow},
		{Window{Length: 1}, ErrLayers},
		{Window{Length: 1, Layers: MaxLayers + 1}, ErrLayers},
		{Window{Length: 1, Layers: 1, Tag: -1}, ErrTag},
		{Window{Length: 1, Layers: 1, Tag: MaxTag + 1}, ErrTag},
	} {
		if _, err := r.Open(t.Context(), c.w); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.w, err, c.want)
		}
	}
	tr, err := r.Open(t.Context(), Window{Offset: 4096, Length: 100, Tag: 3, FirstLayer: 2, Layers: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(t.Context(), Window{Length: 1, Tag: 3 + Slots, Layers: 1}); !errors.Is(err, ErrTag) {
		t.Errorf("a slot that is in use: %v", err)
	}
	for _, c := range [][2]int64{{-1, 1}, {100, 1}, {99, 2}, {1 << 62, 1}} {
		if _, err := tr.Grab(c[0], int(c[1])); err == nil {
			t.Errorf("Grab(%d, %d) was taken", c[0], c[1])
		}
	}
	for _, l := range []int{1, 3, 4, -1} {
		if err := tr.LayerReady(l); err == nil {
			t.Errorf("layer %d was taken before layer 2", l)
		}
	}
	if _, err := tr.Grab(10, 20); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int64{{10, 20}, {0, 11}, {29, 5}, {15, 1}} {
		if _, err := tr.Grab(c[0], int(c[1])); err == nil {
			t.Errorf("Grab(%d, %d) over bytes that are lent", c[0], c[1])
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}

	a := m.Address()
	other, short, long, base := a, a, a, a
	other.Provider = "another"
	short.Address = a.Address[:3]
	long.Address = make([]byte, 1000)
	base.Base = ^uint64(0) - 100
	for name, c := range map[string]struct {
		a    Address
		want error
	}{
		"another provider": {other, ErrProvider}, "a short address": {short, ErrAddress}, "a long one": {long, ErrAddress},
		"none": {Address{Provider: a.Provider, Length: PageSize}, ErrAddress}, "a base past the end": {base, ErrAddress},
		"no length": {Address{Provider: a.Provider, Address: a.Address}, ErrAddress},
	} {
		if _, err := d.Remote(c.a); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	second, err := d.Remote(a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Remote(a); !errors.Is(err, ErrBusy) {
		t.Errorf("a client too many: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if third, err := d.Remote(a); err != nil {
		t.Errorf("a place that came free: %v", err)
	} else if err := third.Close(); err != nil {
		t.Error(err)
	}
}

// TestConfig: what cannot work is said at once.
func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"a write too large": {WriteBytes: 8<<20 + PageSize}, "too small": {WriteBytes: 100}, "odd": {WriteBytes: 10000},
		"no buffers": {Buffers: -1}, "an interface that is not there": {Interface: "no-such-interface"},
	} {
		if d, err := Open(cfg); err == nil {
			t.Errorf("%s: no error", name)
			_ = d.Close()
		}
	}
	if _, err := Open(Config{Provider: "no-such-provider"}); !errors.Is(err, ErrNoProvider) {
		t.Errorf("no such provider: %v", err)
	}
	if _, err := NewMemory(first(), 0); err == nil {
		t.Error("memory of no bytes")
	}
	cfg := first()
	if cfg.Provider == "tcp;ofi_rxm" {
		cfg.Node, cfg.Interface = "", "lo"
		d := newDomain(t, cfg)
		if got := d.Provider(); got != cfg.Provider {
			t.Errorf("the provider is %q", got)
		}
	}
}

// TestClosed: a domain that is closed drops its clients, and every call says so.
func TestClosed(t *testing.T) {
	d, err := Open(first())
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, first(), 1<<16)
	r, err := d.Remote(m.Address())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := r.Open(t.Context(), Window{Length: 1 << 16, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Grab(0, 10); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-r.Gone()
	if err := tr.Commit(0, 10); !errors.Is(err, ErrGone) {
		t.Errorf("Commit: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := tr.Grab(0, 1); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Grab: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Remote(m.Address()); !errors.Is(err, ErrClosed) {
		t.Errorf("Remote: %v", err)
	}
}

// TestNoAllocationPerSlice: grabbing, committing and writing allocate nothing.
func TestNoAllocationPerSlice(t *testing.T) {
	cfg := first()
	cfg.WriteBytes = 16 << 10
	d := newDomain(t, cfg)
	_, r := connect(t, d, 1<<20)
	tr, err := r.Open(t.Context(), Window{Length: 1 << 20, Layers: MaxLayers})
	if err != nil {
		t.Fatal(err)
	}
	var sink transport.Sink = tr
	layer, slices := 0, int64(less(64, 8))
	round := func() {
		for off := int64(0); off < slices*4096; off += 4096 {
			at := off
			if off%8192 == 0 { // lying apart
				at = off + 1<<19
			}
			if _, err := sink.Grab(at, 4096); err != nil {
				t.Fatal(err)
			}
			if err := sink.Commit(at, 4096); err != nil {
				t.Fatal(err)
			}
		}
		if err := sink.LayerReady(layer); err != nil {
			t.Fatal(err)
		}
		layer++
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations in %d slices", n, slices)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}
