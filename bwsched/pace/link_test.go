package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// linked is a whole link, pacer and all, on a clock that the test moves.
func linked(t *testing.T, cfg Config) (*Link, *fakeClock) {
	t.Helper()
	c := newFakeClock()
	cfg.Clock = c
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, c
}

func join(t *testing.T, l *Link, s Spec) *Flow {
	t.Helper()
	if s.Layers == 0 {
		s.Layers = 1000
	}
	f, err := l.Join(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// waits waits until n Takes wait.
func waits(l *Link, n int) {
	for l.Stats().Waiting != n {
		runtime.Gosched()
	}
}

// take starts a Take and returns where its error will be.
func take(ctx context.Context, f *Flow, n int64) chan error {
	done := make(chan error, 1)
	go func() { done <- f.Take(ctx, n) }()
	return done
}

// TestTakeWaits follows one flow step by step: what goes at once, what the
// pacer sleeps for, and that it sleeps for good when nobody waits.
func TestTakeWaits(t *testing.T) {
	l, c := linked(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}})
	if got := c.parked(); got != math.MaxInt64 {
		t.Fatalf("an idle link wakes at %d", got)
	}
	f := join(t, l, pooled("", 10<<20))
	if err := f.Take(t.Context(), 1e6); err != nil {
		t.Fatal(err)
	}
	sleeps := c.sleeps
	if got := c.parked(); got != math.MaxInt64 || c.sleeps != sleeps {
		t.Fatal("the pacer woke for a flow that need not wait")
	}
	done := take(t.Context(), f, 500)
	waits(l, 1)
	if got, want := c.parked(), c.Now()+1e6; got != want {
		t.Fatalf("the pacer wakes in %d ns, want %d", got-c.Now(), want-c.Now())
	}
	c.advance(time.Millisecond - 1)
	if got := c.parked(); got != c.Now()+1 {
		t.Fatal("early")
	}
	if l.Stats().Bytes != 1e6 {
		t.Fatal("granted early")
	}
	c.advance(1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if st := l.Stats(); st.Waited != time.Millisecond || st.Bytes != 1e6+500 {
		t.Errorf("%+v", st)
	}
	if got := c.parked(); got != math.MaxInt64 {
		t.Fatalf("an idle link wakes at %d", got)
	}
	if u := f.Usage(); u.Bytes != 1e6+500 || u.Granted != 1e9 {
		t.Errorf("%+v", u)
	}
}

// TestNextToNoCapacity: a debt beyond the clock's range is slept through, and
// can be cancelled.
func TestNextToNoCapacity(t *testing.T) {
	l, c := linked(t, Config{Capacity: 1e-9, Policy: bwsched.Equal{}})
	f := join(t, l, pooled("", 1<<20))
	if err := f.Take(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := take(ctx, f, 1)
	waits(l, 1)
	if got := c.parked(); got != math.MaxInt64 {
		t.Errorf("the pacer wakes at %d", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestTakeOfManyQuanta takes more than a quantum at one time, as one or not at all.
func TestTakeOfManyQuanta(t *testing.T) {
	l, c := linked(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}})
	f := join(t, l, pooled("", 1<<30))
	ctx, cancel := context.WithCancel(t.Context())
	done := take(ctx, f, 10<<20)
	for i := range int64(3) {
		waits(l, 1)
		c.advance(time.Duration(c.parked() - c.Now()))
		for l.Stats().Bytes == (i+1)*MaxQuantum {
			runtime.Gosched()
		}
	}
	waits(l, 1)
	if got := l.Stats().Bytes; got != 8<<20 {
		t.Fatalf("%d bytes are granted", got)
	}
	due := l.due
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := l.Stats(); got.Bytes != 0 || got.Waiting != 0 || l.due >= due {
		t.Fatalf("%+v", got)
	}
	// What was given back goes at once.
	if err := f.Take(t.Context(), 2<<20); err != nil {
		t.Fatal(err)
	}
}

// TestCancelWhileWaiting takes waiters out of the front, the middle and the
// end of a flow's queue; the others are served in order.
func TestCancelWhileWaiting(t *testing.T) {
	for gone := range 4 {
		l, c := linked(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}})
		f := join(t, l, pooled("", 1<<30))
		if err := f.Take(t.Context(), 1e6); err != nil {
			t.Fatal(err)
		}
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		var done [4]chan error
		for i := range done {
			x := t.Context()
			if i == gone {
				x = ctx
			}
			done[i] = take(x, f, int64(1e5*(i+1)))
			waits(l, i+1)
		}
		cancel(cause)
		if err := <-done[gone]; !errors.Is(err, cause) {
			t.Fatalf("%v", err)
		}
		if got := l.Stats().Waiting; got != 3 {
			t.Fatalf("%d wait", got)
		}
		want := int64(1e6)
		for i := range done {
			if i == gone {
				continue
			}
			c.advance(time.Duration(c.parked() - c.Now()))
			if err := <-done[i]; err != nil {
				t.Fatal(err)
			}
			if want += int64(1e5 * (i + 1)); l.Stats().Bytes != want {
				t.Errorf("%d bytes after waiter %d, want %d", l.Stats().Bytes, i, want)
			}
		}
		if err := f.Take(ctx, 1); !errors.Is(err, cause) {
			t.Errorf("a Take that has ended before: %v", err)
		}
	}
}

// TestCloseWhileWaiting closes a flow, and a whole link, that somebody waits on.
func TestCloseWhileWaiting(t *testing.T) {
	l, c := linked(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}})
	f, g := join(t, l, pooled("", 1<<30)), join(t, l, pooled("", 1<<30))
	if err := f.Take(t.Context(), 2<<20); err != nil {
		t.Fatal(err)
	}
	a, b := take(t.Context(), f, 1), take(t.Context(), g, 1) // g has no rate yet
	waits(l, 2)
	f.Close()
	if err := <-a; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := f.Take(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	f.LayerDone()
	if f.Rate() != 0 || f.Usage().Bytes != 2<<20 {
		t.Errorf("%g %+v", f.Rate(), f.Usage())
	}
	end := c.Now() + 50e6
	if got := c.parked(); got < end { // it was to wake for f
		c.advance(time.Duration(got - c.Now()))
	}
	if got := c.parked(); got != end {
		t.Errorf("the next plan %d ns late", got-end)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-b; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := l.Join(t.Context(), pooled("", 1)); err == nil {
		t.Fatal("a closed link takes a flow")
	}
	if st := l.Stats(); st.Pool != 0 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

// TestRandomUse has many goroutines join, take, cancel and close on the
// system's clock, and checks that the books agree in the end.
func TestRandomUse(t *testing.T) {
	l, err := New(Config{Capacity: 20e9, Policy: following{}, Epoch: time.Millisecond, MaxFlows: 40, Tenants: map[string]Limits{"1": {Weight: 2, MaxRate: 9e9}}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var want int64
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(g)))
			for range 20 {
				f, err := l.Join(context.Background(), Spec{Tenant: fmt.Sprint(r.IntN(3)), LayerBytes: 1 + r.Int64N(1<<20), Layers: 5,
					Compute: time.Duration(r.IntN(2)), Mode: Mode(r.IntN(2))})
				var busy *BusyError
				if errors.As(err, &busy) {
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				var workers sync.WaitGroup
				for w := range 2 {
					r := rand.New(rand.NewPCG(8, r.Uint64()))
					workers.Go(func() {
						for range 10 {
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(2_000_000)))
							n := 1 + r.Int64N(MaxQuantum)
							if err := f.Take(ctx, n); err == nil {
								mu.Lock()
								want += n
								mu.Unlock()
							} else if !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							cancel()
							f.LayerDone()
							if w == 1 && r.IntN(30) == 0 {
								f.Close()
							}
						}
					})
				}
				workers.Wait()
				f.Close()
			}
		})
	}
	wg.Wait()
	st := l.Stats()
	if st.Bytes != want || st.Waiting != 0 || st.Pool != 0 || st.Outside != 0 || l.own.Len()+l.borrow.Len() != 0 || len(l.flows) != 0 || len(l.tenants.active) != 0 {
		t.Errorf("%+v, want %d bytes and nothing left", st, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSystemClock checks the real clock's promises, none of which is a deadline.
func TestSystemClock(t *testing.T) {
	c := systemClock()
	c.Wake()
	c.SleepUntil(math.MaxInt64) // woken before
	at := c.Now() + 2e6
	c.SleepUntil(at)
	if now := c.Now(); now < at {
		t.Errorf("woke %d ns early", at-now)
	}
	c.SleepUntil(at) // in the past
	done := make(chan struct{})
	go func() {
		c.Begin()
		c.SleepUntil(math.MaxInt64)
		close(done)
	}()
	c.Wake()
	<-done
}

// TestTakeAllocatesNothing, neither on the short way nor through the queue.
func TestTakeAllocatesNothing(t *testing.T) {
	s := newSim(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}})
	f := s.join(pooled("", 1<<20)).f
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		s.clock.advance(ms)
		if err := f.Take(ctx, 1000); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations of a Take that goes at once", n)
	}
	s = newSim(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}})
	f = s.join(pooled("", 1<<20)).f
	if n := testing.AllocsPerRun(100, func() {
		now := s.l.now()
		if w, _ := s.l.ask(f, 1e6, now); w != nil {
			t.Fatal("queued")
		}
		w, _ := s.l.ask(f, 1e6, now)
		s.clock.advance(ms)
		s.l.dispatch(s.l.now())
		<-w.ready
		s.l.release(w)
		s.clock.advance(ms)
	}); n != 0 {
		t.Errorf("%g allocations of a Take that waits", n)
	}
}

// TestPlanAllocatesNothing once it has planned as many flows before.
func TestPlanAllocatesNothing(t *testing.T) {
	for _, limits := range []map[string]Limits{nil, {"": {Weight: 2}}} {
		s := newSim(t, Config{Capacity: 1e9, Policy: bwsched.Equal{}, Tenants: limits})
		for range 100 {
			s.join(pooled("", 1<<20)).stopped = true
		}
		if n := testing.AllocsPerRun(50, func() {
			s.clock.advance(time.Second)
			s.l.mark(s.l.now(), true)
		}); n != 0 {
			t.Errorf("%g allocations of a plan", n)
		}
		if got := s.l.Stats().Plans; got < 50 {
			t.Errorf("%d plans", got)
		}
	}
}
