package blobtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/objcached/objcached/storage/blob"
)

// Reserve waits for Restore, and gives up when its context does.
func testRestoreGates(t *testing.T, c Config) {
	s := c.Open(t, 4*mib)
	defer s.Close()
	ctx, cancel := context.WithCancel(bg)
	gaveUp := make(chan error, 1)
	go func() {
		_, err := s.Reserve(ctx, 4096)
		gaveUp <- err
	}()
	waited := make(chan error, 1)
	go func() {
		_, err := s.Reserve(bg, 4096)
		waited <- err
	}()
	inside := make(chan struct{})
	goOn := make(chan struct{})
	restored := make(chan error, 1)
	go func() {
		restored <- s.Restore(bg, func(func(blob.Extent) error) error {
			close(inside)
			<-goOn
			return nil
		})
	}()
	<-inside
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Fatalf("reserve with its context cancelled: %v", err)
	}
	select {
	case err := <-waited:
		t.Fatalf("reserve did not wait for Restore: %v", err)
	default:
	}
	close(goOn)
	if err := <-restored; err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(bg, each(nil)); err == nil {
		t.Fatal("a second Restore was taken")
	}
}

func testRestoreRejects(t *testing.T, c Config) {
	if c.Reopen == nil {
		t.Skip("no reopen")
	}
	s := c.Open(t, 4*mib)
	restore(t, s)
	e := reserveOne(t, s, 100000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = c.Reopen(t, s)
	defer s.Close()
	half := blob.Extent{Volume: e.Volume, Offset: e.Offset + 8192, Len: 4096}
	mine := errors.New("mine")
	for name, live := range map[string]func(func(blob.Extent) error) error{
		"the same twice":   each([]blob.Extent{e, e}),
		"one in another":   each([]blob.Extent{e, half}),
		"another in one":   each([]blob.Extent{half, e}),
		"no such volume":   each([]blob.Extent{{Volume: 77, Len: 1}}),
		"past the end":     each([]blob.Extent{{Offset: 1 << 40, Len: 1}}),
		"not aligned":      each([]blob.Extent{{Offset: 100, Len: 1}}),
		"iteration failed": func(func(blob.Extent) error) error { return mine },
	} {
		err := s.Restore(bg, live)
		if err == nil {
			t.Fatalf("%s: taken", name)
		}
		if name == "iteration failed" && !errors.Is(err, mine) {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := s.Reserve(bg, 4096); err == nil {
			t.Fatalf("%s: reserved after a Restore that failed", name)
		}
	}
	restore(t, s, half)
	if st := s.Stats(); st.Reserved != 4096 {
		t.Fatalf("%+v", st)
	}
}

func testContext(t *testing.T, c Config) {
	s := open(t, c, 4*mib)
	e := reserveOne(t, s, 4096)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	p := make([]byte, 10)
	for what, err := range map[string]error{
		"read":  s.ReadAt(ctx, e, p, 0, false),
		"write": s.WriteAt(ctx, e, p, 0),
		"free":  s.Free(ctx, []blob.Extent{e}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Reserve(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("reserve: %v", err)
	}
	if st := s.Stats(); st.Reserved != 4096 {
		t.Errorf("%+v", st)
	}
}

func testClosed(t *testing.T, c Config) {
	s := c.Open(t, 4*mib)
	// One that waits for a Restore that never comes is let go.
	waiting := make(chan error, 1)
	go func() {
		_, err := s.Reserve(bg, 1)
		waiting <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, blob.ErrClosed) {
		t.Fatalf("reserve: %v", err)
	}

	s = c.Open(t, 4*mib)
	restore(t, s)
	e := reserveOne(t, s, 4096)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 10)
	_, rerr := s.Reserve(bg, 1)
	for what, err := range map[string]error{
		"read":      s.ReadAt(bg, e, p, 0, false),
		"cold read": s.ReadAt(bg, e, p, 0, true),
		"write":     s.WriteAt(bg, e, p, 0),
		"seal":      s.Seal(bg, []blob.Extent{e}),
		"free":      s.Free(bg, []blob.Extent{e}),
		"restore":   s.Restore(bg, each(nil)),
		"reserve":   rerr,
	} {
		if !errors.Is(err, blob.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func testReopen(t *testing.T, c Config) {
	if c.Reopen == nil {
		t.Skip("no reopen")
	}
	s := c.Open(t, 4*mib)
	restore(t, s)
	var live []blob.Extent
	for i := range 40 {
		e := reserveOne(t, s, int64(1000+i*997))
		write(t, s, e, pattern(uint64(i), e.Len))
		if i%3 != 0 {
			live = append(live, e)
		}
	}
	seal(t, s, live...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = c.Reopen(t, s)
	defer s.Close()
	check := func() {
		t.Helper()
		j := 0
		for i := range 40 {
			if i%3 != 0 {
				wantBytes(t, s, live[j], pattern(uint64(i), live[j].Len))
				j++
			}
		}
	}
	check() // before Restore
	restore(t, s, live...)
	var sum int64
	for _, e := range live {
		sum += blob.Roundup(e.Len)
	}
	if st := s.Stats(); st.Reserved != sum || st.Capacity != 4*mib {
		t.Fatalf("%+v, want %d reserved", st, sum)
	}
	// What was not listed is free, and what was is not.
	rest := fill(t, s, blob.Align)
	disjoint(t, append(rest, live...))
	if int64(len(rest))*blob.Align != 4*mib-sum {
		t.Fatalf("%d blocks are free", len(rest))
	}
	for _, e := range rest {
		write(t, s, e, pattern(99, e.Len))
	}
	check()
}

// Everything sealed is there after a crash, whatever happened to the rest.
func testCrash(t *testing.T, c Config) {
	if c.Crash == nil {
		t.Skip("cannot crash")
	}
	s := open(t, c, 8*mib)
	var sealed []blob.Extent
	for i := range 40 {
		e := reserveOne(t, s, int64(5000+i*1777))
		write(t, s, e, pattern(uint64(i), e.Len))
		loose := reserveOne(t, s, 9000) // written, never sealed alone
		write(t, s, loose, pattern(1000, loose.Len))
		seal(t, s, e)
		sealed = append(sealed, e)
		over := reserveOne(t, s, 4096)
		write(t, s, over, pattern(1001, over.Len))
		free(t, s, over, loose)
		if i%20 != 19 {
			continue
		}
		for seed := range uint64(4) {
			after := c.Crash(t, s, seed > 0, seed)
			for j, x := range sealed {
				wantBytes(t, after, x, pattern(uint64(j), x.Len))
			}
			restore(t, after, sealed...)
			// It goes on: what it takes and seals now is as good.
			n := reserveOne(t, after, 50000)
			write(t, after, n, pattern(7, n.Len))
			seal(t, after, n)
			again := c.Crash(t, after, true, seed+100)
			wantBytes(t, again, n, pattern(7, n.Len))
			for j, x := range sealed {
				wantBytes(t, again, x, pattern(uint64(j), x.Len))
			}
			if err := errors.Join(after.Close(), again.Close()); err != nil {
				t.Fatal(fmt.Errorf("close: %w", err))
			}
		}
	}
}
