package bench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// bubbleClock is the fake clock of a synctest bubble.
type bubbleClock struct{}

func (bubbleClock) Now() time.Time         { return time.Now() }
func (bubbleClock) SleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

// paced delivers layer 0 after x0 and each further one after x more.
func paced(layers int, x0, x time.Duration) delivery {
	return func(ctx context.Context, ready func(int)) error {
		for l := range layers {
			d := x
			if l == 0 {
				d = x0
			}
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return ctx.Err()
			}
			ready(l)
		}
		return nil
	}
}

// same is the windows of layers that all compute for c.
func same(layers int, c time.Duration) []time.Duration {
	w := make([]time.Duration, layers)
	for l := range w {
		w[l] = c
	}
	return w
}

const us = time.Microsecond

// TestPlayIsEq3 plays against a delivery of constant rate, on a fake clock:
// the TTFT is that of Eq. 3 to the nanosecond.
func TestPlayIsEq3(t *testing.T) {
	for _, x0 := range []time.Duration{0, 1, 700 * us, 2 * time.Second} {
		for _, x := range []time.Duration{1, 300 * us, 1000 * us, 1001 * us, 5 * time.Millisecond} {
			for _, layers := range []int{1, 2, 32} {
				synctest.Test(t, func(t *testing.T) {
					const c = time.Millisecond
					p, err := play(t.Context(), bubbleClock{}, same(layers, c), paced(layers, x0, x))
					if err != nil {
						t.Fatal(err)
					}
					// Eq. 3 as it is written, term by term.
					want := x0 + c
					for range layers - 1 {
						want += max(x, c)
					}
					if p.TTFT != want || eq3(x0, x, c, layers) != want {
						t.Errorf("x0 %v, x %v, %d layers: TTFT %v, eq3 %v, want %v", x0, x, layers, p.TTFT, eq3(x0, x, c, layers), want)
					}
					if stall := want - x0 - time.Duration(layers)*c; p.Stall != stall || p.Late != 0 {
						t.Errorf("x0 %v, x %v, %d layers: stall %v, want %v; late %v", x0, x, layers, p.Stall, stall, p.Late)
					}
					for l, at := range p.Ready {
						if at != x0+time.Duration(l)*x {
							t.Errorf("layer %d was ready at %v", l, at)
						}
					}
				})
			}
		}
	}
}

// TestPlayUneven plays layers that take and compute differently, one of them
// delivered well ahead.
func TestPlayUneven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := []time.Duration{3, 4, 20, 21} // when each is ready, ms
		windows := []time.Duration{5, 1, 2, 10}
		for l := range at {
			at[l], windows[l] = at[l]*time.Millisecond, windows[l]*time.Millisecond
		}
		p, err := play(t.Context(), bubbleClock{}, windows, func(_ context.Context, ready func(int)) error {
			start := time.Now()
			for l := range at {
				time.Sleep(time.Until(start.Add(at[l])))
				ready(l)
			}
			return nil
		})
		// 3+5 = 8; layer 1 is there: 9; layer 2 at 20: 22; layer 3 is there: 32.
		if err != nil || p.TTFT != 32*time.Millisecond || p.Stall != 11*time.Millisecond {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// lateClock wakes every sleeper late.
type lateClock struct{ by time.Duration }

func (lateClock) Now() time.Time           { return time.Now() }
func (c lateClock) SleepUntil(t time.Time) { time.Sleep(time.Until(t) + c.by) }

// TestPlayLateTimer: a timer that oversleeps does not slow the GPU it stands for.
func TestPlayLateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := play(t.Context(), lateClock{70 * us}, same(4, time.Millisecond), local(4))
		if err != nil || p.TTFT != 4*time.Millisecond+70*us || p.Late != 70*us || p.Stall != 0 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func TestPlayErrors(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		p, err := play(t.Context(), bubbleClock{}, same(4, time.Millisecond), func(_ context.Context, ready func(int)) error {
			ready(0)
			ready(1)
			return broken
		})
		if !errors.Is(err, broken) || len(p.Ready) != 2 {
			t.Errorf("%+v, %v", p, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Microsecond)
		defer cancel()
		if p, err := play(ctx, bubbleClock{}, same(9, time.Millisecond), paced(9, 0, 2*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || len(p.Ready) != 2 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestGPUTimer checks that the timer never wakes early; how late it wakes is
// the machine's affair and is reported with every result.
func TestGPUTimer(t *testing.T) {
	onGPUThread(func() {
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 30 * us, 3 * time.Millisecond} {
			at := time.Now().Add(d)
			gpuTimer{}.SleepUntil(at)
			if now := time.Now(); now.Before(at) {
				t.Errorf("woke %v early of %v", at.Sub(now), d)
			}
		}
	})
}

// TestWindows compares with what the paper prints: Table A8's cached tokens,
// milliseconds per layer and required rate, and Table A1's totals.
func TestWindows(t *testing.T) {
	type printed struct {
		cached         int
		layer, require float64
	}
	a8 := map[[2]float64]printed{
		{4096, 50}: {2048, 5.79, 1.45}, {4096, 87.5}: {3584, 1.98, 7.41},
		{16384, 50}: {8192, 29.87, 1.12}, {16384, 87.5}: {14336, 8.80, 6.67},
		{32768, 50}: {16384, 80.91, 0.83}, {32768, 87.5}: {28672, 23.85, 4.92},
		{65536, 50}: {32768, 271.02, 0.50}, {65536, 87.5}: {57344, 75.75, 3.10},
	}
	a1 := map[[2]float64]float64{{4096, 12.5}: 322.6, {65536, 12.5}: 11643.8}
	near := func(got, want, tolerance float64) bool { return got > want-tolerance && got < want+tolerance }
	seen := 0
	for _, w := range Windows() {
		at := [2]float64{float64(w.Context), w.Hit}
		switch w.Source {
		case "A8":
			p, ok := a8[at]
			if !ok || w.Cached() != p.cached || !near(millis(w.Layer()), p.layer, 0.006) || !near(w.Required()/1e9, p.require, 0.011) {
				t.Errorf("%+v: %d cached, %v a layer, %.3f GB/s, the paper has %+v", w, w.Cached(), w.Layer(), w.Required()/1e9, p)
			}
			seen++
		case "A1":
			if !near(millis(w.Total), a1[at], 1e-6) {
				t.Errorf("%+v, the paper has %v", w, a1[at])
			}
			seen++
		case "fit":
			if want := millis(lawWindow(float64(w.Context), float64(w.Cached()))); !near(millis(w.Total), want, 0.6) {
				t.Errorf("%+v, the law gives %v", w, want)
			}
		default:
			t.Errorf("%+v has no source", w)
		}
	}
	// The law goes through the points that it is made of.
	if a, b := lawWindow(4096, 512), lawWindow(65536, 8192); !near(millis(a), 322.6, 0.05) || !near(millis(b), 11643.8, 0.5) {
		t.Errorf("the law gives %v and %v", a, b)
	}
	if seen != len(a8)+len(a1) || len(Windows()) != 12 {
		t.Errorf("%d windows of the paper in %d", seen, len(Windows()))
	}
	// §5.5 and §2.1: 448 MB at 4K and 87.5 %, about 7 GB at 64K; a chunk of 256
	// tokens has about 1 MB a layer, one of 16 has 64 KB.
	for _, w := range Windows() {
		if w.Hit == 87.5 && w.Context == 4096 && w.LayerBytes()*modelLayers != 448<<20 ||
			w.Hit == 87.5 && w.Context == 65536 && w.LayerBytes()*modelLayers != 7<<30 {
			t.Errorf("%+v: %d bytes a layer", w, w.LayerBytes())
		}
	}
	if modelTokenBytes*256 != 1<<20 || modelTokenBytes*16 != 64<<10 {
		t.Errorf("a token has %d bytes a layer", modelTokenBytes)
	}
	for _, bad := range []string{"1 2 3", "x 50 1 A8", "4096 100 1 A8", "4096 50 0 A8", "4096 0 1 A8", "0 50 1 A8", "4096 50 1s A8", "1 2 3 4 5"} {
		if _, err := parseWindows("# ok\n" + bad + "\n"); err == nil {
			t.Errorf("%q is a window", bad)
		}
	}
}
