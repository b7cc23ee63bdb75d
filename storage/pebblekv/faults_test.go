package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/objcached/objcached/storage/meta"
)

// victim is a store whose k-th writing operation on its files fails.
type victim struct {
	fs    *vfs.MemFS
	fired func() bool
	dead  chan string // Fatal's message; whoever called it hangs for ever
	store *Store      // nil if it did not open
	// failed gets a value for each fault, as far as there is room.
	failed chan struct{}
	// gone stops whatever still runs in a store that was left behind: Pebble
	// tries a flush again at once, for ever.
	gone atomic.Bool
}

// errDead stands for the end of the process.
var errDead = errors.New("the process has ended")

// do runs fn unless or until the process has "ended".
func (v *victim) do(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case msg := <-v.dead:
		v.dead <- msg
		return fmt.Errorf("%w: %s", errDead, msg)
	}
}

func newVictim(k int64, on bool) (*victim, error) {
	var n atomic.Int64
	v := &victim{
		fs:    vfs.NewCrashableMem(),
		fired: func() bool { return n.Load() >= k },
		dead:  make(chan string, 16),

		failed: make(chan struct{}, 1),
	}
	o := testOptions(errorfs.Wrap(v.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose {
			return nil
		}
		if v.gone.Load() {
			select {}
		}
		if i := n.Add(1); i == k || on && i > k {
			select {
			case v.failed <- struct{}{}:
			default:
			}
			return errorfs.ErrInjected
		}
		return nil
	})))
	o.Fatal = func(msg string) {
		v.dead <- msg
		select {}
	}
	err := v.do(func() error {
		s, err := Open("db", o)
		if err == nil {
			v.store = s
		}
		return err
	})
	if err != nil {
		v.store = nil
	}
	return v, err
}

// flush returns when the memtable has been flushed or that has failed.
func (v *victim) flush() error {
	done, err := v.store.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
	case <-v.failed:
	}
	return nil
}

// put is a batch of two keys, conditional like an object's.
func put(i int, value []byte) *meta.Batch {
	var b meta.Batch
	b.IfAbsent(fmt.Appendf(nil, "o%02d", i))
	b.Set(fmt.Appendf(nil, "o%02d", i), value)
	b.Set(fmt.Appendf(nil, "x%02d", i), value)
	return &b
}

func value(i int) []byte { return bytes.Repeat([]byte{byte(i), 'v'}, 1<<10) }

// whole looks whether put(i) has happened.
func whole(s *Store, i int) (bool, error) {
	seen := 0
	for _, k := range []string{"o", "x"} {
		got, err := s.Get(context.Background(), "b", fmt.Appendf(nil, "%s%02d", k, i), nil)
		switch {
		case errors.Is(err, meta.ErrNotFound):
		case err != nil:
			return false, err
		case !bytes.Equal(got, value(i)):
			return false, fmt.Errorf("put %d: wrong value", i)
		default:
			seen++
		}
	}
	if seen == 1 {
		return false, fmt.Errorf("put %d is there by half", i)
	}
	return seen == 2, nil
}

// life puts, flushes and puts again, and returns which puts were acknowledged.
func (v *victim) life() (acked [16]bool, err error) {
	var failed error
	for i := range acked {
		if i == 10 {
			// A flush: tables, the manifest. A failure is Pebble's to try
			// again, for as long as it takes, so this waits once at most.
			if err := v.do(v.flush); errors.Is(err, errDead) {
				return acked, nil
			}
		}
		err := v.do(func() error { return v.store.Apply(context.Background(), "b", put(i, value(i))) })
		switch {
		case err == nil && failed != nil:
			return acked, fmt.Errorf("put %d was acknowledged after %v", i, failed)
		case err == nil:
			acked[i] = true
		case errors.Is(err, errDead):
			return acked, nil
		case errors.Is(err, ErrFailed) && errors.Is(err, errorfs.ErrInjected):
			failed = err
		default:
			return acked, fmt.Errorf("put %d: %w", i, err)
		}
	}
	// Reads go on after a failure.
	for i, a := range acked {
		there, err := whole(v.store, i)
		if err != nil || a && !there {
			return acked, fmt.Errorf("acknowledged put %d: there %v, %v", i, there, err)
		}
	}
	// After a failure Close may fail, it must not hang.
	err = v.do(v.store.Close)
	if failed == nil && err != nil && !errors.Is(err, errDead) && !errors.Is(err, errorfs.ErrInjected) {
		return acked, fmt.Errorf("close: %w", err)
	}
	return acked, nil
}

// Every operation that writes, flushes, makes, renames or removes a file fails
// once, or from then on. What was acknowledged is there after a crash, whole;
// what was not is there whole or not at all; and the process has either been
// told by every Apply or been ended by Fatal.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		t.Run(fmt.Sprintf("on=%v", on), func(t *testing.T) {
			t.Parallel()
			var dead, told int
			for k := int64(1); ; k++ {
				v, err := newVictim(k, on)
				var acked [16]bool
				if v.store != nil {
					if acked, err = v.life(); err != nil {
						t.Fatalf("operation %d: %v", k, err)
					}
				} else if !errors.Is(err, errorfs.ErrInjected) && !errors.Is(err, errDead) {
					t.Fatalf("operation %d: open: %v", k, err)
				}
				v.gone.Store(true)
				if len(v.dead) > 0 {
					dead++
				} else if v.store != nil && v.store.failure() != nil {
					told++
				}
				percent := int(k % 2 * 50)
				if v.store == nil {
					// Nothing was acknowledged, and a directory whose very
					// first entries reach the disk out of order is one that
					// Pebble cannot open.
					percent = 0
				}
				after := crash(t, v.fs, percent, uint64(k)).(memStore)
				for i, a := range acked {
					there, err := whole(after.Store, i)
					if err != nil || a && !there {
						t.Fatalf("operation %d, after a crash: put %d acknowledged %v, there %v, %v", k, i, a, there, err)
					}
				}
				if err := after.Close(); err != nil {
					t.Fatal(err)
				}
				if !v.fired() {
					if dead == 0 || told == 0 || k < 50 {
						t.Fatalf("%d operations, the process ended %d times, Apply told %d times", k, dead, told)
					}
					return
				}
			}
		})
	}
}

// A conflict is reported only when what it conflicts with is durable, and so
// is a condition found to hold: here the first put waits for its flush.
func TestConflictWaitsForFlush(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func() *meta.Batch{
		"conflict": func() *meta.Batch { return put(1, value(1)) },
		"check": func() *meta.Batch {
			var b meta.Batch
			b.IfEqual([]byte("o01"), value(1))
			return &b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			var hold atomic.Bool
			inFlush := make(chan struct{}, 16)
			goOn := make(chan struct{})
			s := openTest(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
					if hold.Load() && strings.HasSuffix(op.Path, ".log") {
						inFlush <- struct{}{}
						<-goOn
					}
				}
				return nil
			})), "db")
			hold.Store(true)
			first := make(chan error, 1)
			go func() { first <- s.Apply(t.Context(), "b", put(1, value(1))) }()
			<-inFlush
			if got, err := s.Get(t.Context(), "b", []byte("o01"), nil); err != nil || !bytes.Equal(got, value(1)) {
				t.Fatalf("a batch under way is not visible: %v", err)
			}
			other := make(chan error, 1)
			go func() { other <- s.Apply(t.Context(), "b", second()) }()
			for s.unsynced.Load() < 2 { // until it waits for a flush
				select {
				case err := <-other:
					t.Fatalf("returned %v before the flush", err)
				default:
				}
			}
			hold.Store(false)
			close(goOn)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			err := <-other
			if name == "conflict" && !errors.Is(err, meta.ErrConflict) || name == "check" && err != nil {
				t.Fatal(err)
			}
			after := crash(t, mem, 0, 0).(memStore)
			if there, err := whole(after.Store, 1); !there || err != nil {
				t.Fatalf("there %v, %v", there, err)
			}
			if err := errors.Join(after.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
			if s.unsynced.Load() != 0 {
				t.Fatal("batches left unsynced")
			}
		})
	}
}
