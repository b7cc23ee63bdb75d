package volume

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/blob/blobtest"
	"github.com/objcached/objcached/storage/vfile"
)

// memStore is a store and the directory under its faults.
type memStore struct {
	*Store
	mem *vfile.Mem
}

func TestFaults(t *testing.T) {
	t.Parallel()
	blobtest.RunFaults(t, blobtest.Faults{
		Injected: vfile.ErrInjected,
		Open: func(t testing.TB, k int64, on bool) (blob.Store, func() bool) {
			mem := vfile.NewMem()
			f := &vfile.FailAt{Kinds: vfile.KindAll, K: k + 2, On: on, Done: 5000} // Open lists and syncs
			s, err := Open(Options{FS: vfile.Faulty(mem, f.Decide), Capacity: 1 << 20, VolumeSize: 256 << 10})
			if err != nil {
				t.Fatal(err)
			}
			return memStore{s, mem}, f.Fired
		},
		Crash: func(t testing.TB, s blob.Store, torn bool, seed uint64) blob.Store {
			m := s.(memStore)
			return crashed(t, m.mem, m.Store, torn, seed)
		},
	})
}

func TestFaultsInOpen(t *testing.T) {
	t.Parallel()
	mem := vfile.NewMem()
	s, err := Open(Options{FS: mem, Capacity: 8 << 20, VolumeSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := s.Restore(ctx, noneLive); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(ctx, 3<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for k := int64(1); ; k++ {
		f := &vfile.FailAt{Kinds: vfile.KindAll, K: k}
		s, err := Open(Options{FS: vfile.Faulty(mem, f.Decide), Capacity: 8 << 20, VolumeSize: 1 << 20})
		if !f.Fired() {
			if err != nil || k != 9 { // list, 3 opens, 3 sizes, sync
				t.Fatalf("%d operations: %v", k-1, err)
			}
			if st := s.Stats(); st.Volumes != 3 || st.Capacity != 8<<20 {
				t.Fatalf("%+v", st)
			}
			return
		}
		if !errors.Is(err, vfile.ErrInjected) {
			t.Fatalf("operation %d: %v", k, err)
		}
	}
}

func noneLive(func(blob.Extent) error) error { return nil }

// After a flush has failed the volume takes no writes, its waiters and all
// later ones are told, reads go on, new data goes elsewhere, and opening
// again heals it.
func TestPoison(t *testing.T) {
	t.Parallel()
	mem := vfile.NewMem()
	var failing atomic.Bool
	eio := errors.New("input/output error")
	fsys := vfile.Faulty(mem, func(op vfile.Op) vfile.Fault {
		if op.Kind == vfile.KindSync && op.Name == fileName(0) && failing.CompareAndSwap(true, false) {
			return vfile.Fault{Err: eio} // once: the flush after it would succeed
		}
		return vfile.Fault{}
	})
	s, err := Open(Options{FS: fsys, Capacity: 2 << 20, VolumeSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := s.Restore(ctx, noneLive); err != nil {
		t.Fatal(err)
	}
	good, err := s.Reserve(ctx, 4096)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := s.Reserve(ctx, 4096)
	if err != nil {
		t.Fatal(err)
	}
	write := func(e blob.Extent, b byte) error { return s.WriteAt(ctx, e, fillBytes(b, e.Len), 0) }
	if err := errors.Join(write(good[0], 'g'), s.Seal(ctx, good), write(bad[0], 'b')); err != nil {
		t.Fatal(err)
	}
	failing.Store(true)
	for range 3 {
		if err := s.Seal(ctx, bad); !errors.Is(err, ErrPoisoned) || !errors.Is(err, eio) {
			t.Fatalf("seal: %v", err)
		}
	}
	if failing.Load() {
		t.Fatal("the fault was not met")
	}
	if err := write(bad[0], 'x'); !errors.Is(err, ErrPoisoned) {
		t.Fatalf("write: %v", err)
	}
	p := make([]byte, 4096)
	if err := s.ReadAt(ctx, good[0], p, 0, false); err != nil || p[0] != 'g' {
		t.Fatalf("read: %q, %v", p[0], err)
	}
	if err := s.Free(ctx, bad); err != nil {
		t.Fatalf("free: %v", err)
	}
	next, err := s.Reserve(ctx, 1<<20)
	if err != nil || len(next) != 1 || next[0].Volume != 1 {
		t.Fatalf("reserve: %v, %v", next, err)
	}
	if err := errors.Join(write(next[0], 'n'), s.Seal(ctx, next)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(ctx, 4096); !errors.Is(err, blob.ErrNoSpace) {
		t.Fatalf("reserve: %v, want ErrNoSpace", err)
	}
	if st := s.Stats(); st.Reserved != 4096+1<<20 {
		t.Fatalf("%+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{FS: mem, Capacity: 2 << 20, VolumeSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Restore(ctx, func(yield func(blob.Extent) error) error {
		return errors.Join(yield(good[0]), yield(next[0]))
	}); err != nil {
		t.Fatal(err)
	}
	e, err := again.Reserve(ctx, 500<<10)
	if err != nil || e[0].Volume != 0 {
		t.Fatalf("%v, %v", e, err)
	}
	if err := errors.Join(again.WriteAt(ctx, e[0], p, 0), again.Seal(ctx, e)); err != nil {
		t.Fatal(err)
	}
}

// flusher is a flush whose rounds the test lets go one by one.
type flusher struct {
	started chan int
	result  chan error
	n       int
}

func newFlusher() *flusher { return &flusher{started: make(chan int), result: make(chan error)} }

func (f *flusher) flush() error {
	f.n++
	f.started <- f.n
	return <-f.result
}

func ended(r *round) bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func TestSyncerRounds(t *testing.T) {
	t.Parallel()
	f := newFlusher()
	s := &syncer{flush: f.flush}
	never := func() { t.Error("told of a failure") }
	first := s.request(never)
	<-f.started
	// The first round is under way: who comes now is not served by it, and
	// all of them share the next one.
	a, b, c := s.request(never), s.request(never), s.request(never)
	if a == first || a != b || b != c {
		t.Fatal("waiters do not share the next round")
	}
	f.result <- nil
	<-first.done
	if n := <-f.started; n != 2 || ended(a) {
		t.Fatalf("round %d, ended %v", n, ended(a))
	}
	d := s.request(never)
	f.result <- nil
	<-a.done
	<-f.started
	f.result <- nil
	<-d.done
	if first.err != nil || a.err != nil || d.err != nil || f.n != 3 {
		t.Fatal("rounds failed or were too many:", f.n)
	}
	// Idle, then again; stop waits for what was asked for.
	e := s.request(never)
	<-f.started
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	f.result <- nil
	<-stopped
	if !ended(e) || e.err != nil {
		t.Fatal("stop did not wait")
	}
	if r := s.request(never); !ended(r) || !errors.Is(r.err, fs.ErrClosed) {
		t.Fatal("a round after stop")
	}
}

func TestSyncerFails(t *testing.T) {
	t.Parallel()
	f := newFlusher()
	s := &syncer{flush: f.flush}
	told := 0
	var ends []bool
	var first *round
	onFail := func() { told++; ends = append(ends, ended(first)) }
	first = s.request(onFail)
	<-f.started
	queued := s.request(onFail) // asked for before the failure: fails with it
	eio := errors.New("eio")
	f.result <- eio
	<-queued.done
	later := s.request(onFail)
	<-later.done
	for _, r := range []*round{first, queued, later} {
		if !errors.Is(r.err, eio) || !errors.Is(r.err, ErrPoisoned) {
			t.Fatalf("%v", r.err)
		}
	}
	if f.n != 1 || told != 1 || ends[0] {
		t.Fatalf("%d flushes, told %d times, after the waiters: %v", f.n, told, ends)
	}
	s.stop()
}

// A caller that gives up leaves the round to the others.
func TestSealGivesUp(t *testing.T) {
	t.Parallel()
	mem := vfile.NewMem()
	inSync := make(chan struct{})
	goOn := make(chan struct{})
	var hold atomic.Bool
	s, err := Open(Options{Capacity: 1 << 20, FS: vfile.Faulty(mem, func(op vfile.Op) vfile.Fault {
		if op.Kind == vfile.KindSync && hold.Load() {
			inSync <- struct{}{}
			<-goOn
		}
		return vfile.Fault{}
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), noneLive); err != nil {
		t.Fatal(err)
	}
	e, err := s.Reserve(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	hold.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Seal(ctx, e); !errors.Is(err, context.Canceled) {
			t.Errorf("seal: %v", err)
		}
	})
	<-inSync
	wg.Go(func() {
		if err := s.Seal(t.Context(), e); err != nil {
			t.Errorf("seal: %v", err)
		}
	})
	cancel()
	goOn <- struct{}{}
	<-inSync
	goOn <- struct{}{}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A full disk is a full store, whatever the capacity says, and leaves nothing
// behind; with room again it goes on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	mem := vfile.NewMem()
	mem.SetLimit(5 << 19) // 2.5 MiB
	s, err := Open(Options{FS: mem, Capacity: 8 << 20, VolumeSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	if err := s.Restore(ctx, noneLive); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(ctx, 3<<20); !errors.Is(err, blob.ErrNoSpace) {
		t.Fatalf("%v", err)
	}
	if names, _ := mem.List(); len(names) != 2 {
		t.Fatalf("%q", names)
	}
	if _, err := s.Reserve(ctx, 2<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(ctx, 1); !errors.Is(err, blob.ErrNoSpace) {
		t.Fatalf("%v", err)
	}
	mem.SetLimit(0)
	if e, err := s.Reserve(ctx, 1); err != nil || e[0].Volume != 2 {
		t.Fatalf("%v %v", e, err)
	}
}

// A volume is durable, name and all, before an extent of it is given out: a
// crash right after Reserve and Seal keeps it.
func TestGrowthSurvives(t *testing.T) {
	t.Parallel()
	mem := vfile.NewMem()
	s, err := Open(Options{FS: mem, Capacity: 4<<20 + 12288, VolumeSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	if err := s.Restore(ctx, noneLive); err != nil {
		t.Fatal(err)
	}
	var all []blob.Extent
	for i := 1; ; i++ {
		e, err := s.Reserve(ctx, 600<<10)
		if errors.Is(err, blob.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e...)
		after := crash(t, s, false, 0).(*Store)
		if got, want := after.Stats(), s.Stats(); got.Volumes != want.Volumes || got.Volumes < min(i, 4) {
			t.Fatalf("%+v after a crash, %+v before", got, want)
		}
		for _, x := range all {
			if _, err := after.locate(x); err != nil {
				t.Fatal(err)
			}
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The last volume is what the capacity leaves.
	vs := s.list()
	if len(vs) != 5 || vs[4].size != 12288 || s.Stats().Capacity != 4<<20+12288 {
		t.Fatalf("%d volumes, %+v", len(vs), s.Stats())
	}
}

func TestOpenRejects(t *testing.T) {
	t.Parallel()
	mem := vfile.NewMem()
	for _, o := range []Options{
		{Capacity: 1 << 20}, {FS: mem}, {FS: mem, Capacity: 4095}, {FS: mem, Capacity: -1},
		{FS: mem, Capacity: 1 << 20, VolumeSize: 100}, {FS: mem, Capacity: 1 << 20, VolumeSize: maxVolSize + blob.Align},
	} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	// A hole in the numbers is a lost volume. Other files are no affair of ours.
	for _, name := range []string{"vol-000000.dat", "vol-000002.dat", "notes.txt", "vol-1.dat", "vol-000003.dat.bak"} {
		if _, err := mem.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(Options{FS: mem, Capacity: 1 << 20}); err == nil {
		t.Fatal("a lost volume was not noticed")
	}
	if err := mem.Remove("vol-000002.dat"); err != nil {
		t.Fatal(err)
	}
	// Number 0 is empty: the leftover of a crash. It is no obstacle.
	s, err := Open(Options{FS: mem, Capacity: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Restore(t.Context(), noneLive); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Reserve(t.Context(), 1<<20); err != nil || len(e) != 1 || e[0].Volume != 1 {
		t.Fatalf("%v, %v", e, err)
	}
}
