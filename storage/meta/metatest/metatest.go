// Package metatest is the contract of meta.Store as tests. Every
// implementation passes it.
package metatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/objcached/objcached/storage/meta"
)

// Run runs every test that needs no more than an open store. open returns a
// new, empty one; closing it is the suite's affair.
func Run(t *testing.T, open func(t *testing.T) meta.Store) {
	for _, c := range []struct {
		name string
		fn   func(*testing.T, meta.Store)
	}{
		{"SetGetDelete", testSetGetDelete},
		{"GetAppends", testGetAppends},
		{"Conditions", testConditions},
		{"ConditionsSeeStateBefore", testConditionsSeeStateBefore},
		{"OpsInOrder", testOpsInOrder},
		{"Scan", testScan},
		{"ScanStops", testScanStops},
		{"ScanKeysOfAllBytes", testScanAllBytes},
		{"Partitions", testPartitions},
		{"Isolation", testIsolation},
		{"Limits", testLimits},
		{"BatchNotKept", testBatchNotKept},
		{"Context", testContext},
		{"Closed", testClosed},
		{"OneWinner", testOneWinner},
		{"Counter", testCounter},
		{"SharedCondition", testSharedCondition},
		{"OverlappingBatches", testOverlapping},
		{"ReadYourWrites", testReadYourWrites},
		{"ScanSnapshot", testScanSnapshot},
		{"CloseUnderLoad", testCloseUnderLoad},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			c.fn(t, s)
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
		})
	}
}

var bg = context.Background()

// pair is a pair as Scan gives it.
type pair struct{ k, v string }

func set(t *testing.T, s meta.Store, part string, kv ...string) {
	t.Helper()
	var b meta.Batch
	for i := 0; i < len(kv); i += 2 {
		b.Set([]byte(kv[i]), []byte(kv[i+1]))
	}
	apply(t, s, part, &b)
}

func apply(t *testing.T, s meta.Store, part string, b *meta.Batch) {
	t.Helper()
	if err := s.Apply(bg, part, b); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func conflict(t *testing.T, s meta.Store, part string, b *meta.Batch) {
	t.Helper()
	if err := s.Apply(bg, part, b); !errors.Is(err, meta.ErrConflict) {
		t.Fatalf("apply: %v, want ErrConflict", err)
	}
}

func want(t *testing.T, s meta.Store, part, key, value string) {
	t.Helper()
	got, err := s.Get(bg, part, []byte(key), nil)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	if string(got) != value {
		t.Fatalf("get %q: %q, want %q", key, got, value)
	}
}

func absent(t *testing.T, s meta.Store, part, key string) {
	t.Helper()
	if v, err := s.Get(bg, part, []byte(key), nil); !errors.Is(err, meta.ErrNotFound) {
		t.Fatalf("get %q: %q, %v, want ErrNotFound", key, v, err)
	}
}

// all returns the pairs of [start, end); end "" means nil.
func all(s meta.Store, part, start, end string) ([]pair, error) {
	var out []pair
	var e []byte
	if end != "" {
		e = []byte(end)
	}
	err := s.Scan(bg, part, []byte(start), e, func(k, v []byte) (bool, error) {
		out = append(out, pair{string(k), string(v)})
		return true, nil
	})
	return out, err
}

func wantAll(t *testing.T, s meta.Store, part, start, end string, kv ...string) {
	t.Helper()
	var w []pair
	for i := 0; i < len(kv); i += 2 {
		w = append(w, pair{kv[i], kv[i+1]})
	}
	got, err := all(s, part, start, end)
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	if !slices.Equal(got, w) {
		t.Fatalf("scan [%q,%q): %q, want %q", start, end, got, w)
	}
}

func testSetGetDelete(t *testing.T, s meta.Store) {
	absent(t, s, "p", "a")
	set(t, s, "p", "a", "1", "b", "", "", "empty key")
	want(t, s, "p", "a", "1")
	want(t, s, "p", "b", "")
	want(t, s, "p", "", "empty key")
	set(t, s, "p", "a", "2")
	want(t, s, "p", "a", "2")
	var b meta.Batch
	b.Delete([]byte("a"))
	b.Delete([]byte("never there"))
	apply(t, s, "p", &b)
	absent(t, s, "p", "a")
	want(t, s, "p", "b", "")
	apply(t, s, "p", &meta.Batch{})

	big := string(make([]byte, 300<<10)) // a record of a large object
	set(t, s, "p", "big", big)
	want(t, s, "p", "big", big)
}

func testGetAppends(t *testing.T, s meta.Store) {
	set(t, s, "p", "k", "value")
	dst := append(make([]byte, 0, 64), "before "...)
	got, err := s.Get(bg, "p", []byte("k"), dst)
	if err != nil || string(got) != "before value" {
		t.Fatalf("%q, %v", got, err)
	}
	if &got[0] != &dst[0] {
		t.Fatal("room in dst was not used")
	}
	// The result is the caller's: what comes later does not change it.
	set(t, s, "p", "k", "VALUE")
	if string(got) != "before value" {
		t.Fatalf("changed to %q", got)
	}
}

func testConditions(t *testing.T, s meta.Store) {
	set(t, s, "p", "a", "1", "empty", "")
	for _, c := range []struct {
		name  string
		cond  meta.Cond
		holds bool
	}{
		{"equal", meta.Cond{Key: []byte("a"), Value: []byte("1")}, true},
		{"other value", meta.Cond{Key: []byte("a"), Value: []byte("2")}, false},
		{"prefix of the value", meta.Cond{Key: []byte("a"), Value: []byte("")}, false},
		{"longer than the value", meta.Cond{Key: []byte("a"), Value: []byte("12")}, false},
		{"absent, is there", meta.Cond{Key: []byte("a"), Absent: true}, false},
		{"absent, is not there", meta.Cond{Key: []byte("z"), Absent: true}, true},
		{"absent, is there and empty", meta.Cond{Key: []byte("empty"), Absent: true}, false},
		{"equal to nothing, empty", meta.Cond{Key: []byte("empty")}, true},
		{"equal to nothing, not there", meta.Cond{Key: []byte("z")}, false},
		{"equal, not there", meta.Cond{Key: []byte("z"), Value: []byte("1")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			set(t, s, "p", "out", "old")
			b := meta.Batch{Conds: []meta.Cond{c.cond}}
			b.Set([]byte("out"), []byte("new"))
			if c.holds {
				apply(t, s, "p", &b)
				want(t, s, "p", "out", "new")
			} else {
				conflict(t, s, "p", &b)
				want(t, s, "p", "out", "old")
			}
			// Without operations it is a check.
			b.Ops = nil
			if c.holds {
				apply(t, s, "p", &b)
			} else {
				conflict(t, s, "p", &b)
			}
		})
	}
	// All of several must hold, whichever fails.
	for i := range 3 {
		var b meta.Batch
		for j := range 3 {
			v := "1"
			if i == j {
				v = "no"
			}
			b.IfEqual([]byte("a"), []byte(v))
		}
		b.Set([]byte("x"), []byte("x"))
		b.Delete([]byte("a"))
		conflict(t, s, "p", &b)
	}
	absent(t, s, "p", "x")
	want(t, s, "p", "a", "1")
}

// Conditions are about the state before the batch, not after its operations.
func testConditionsSeeStateBefore(t *testing.T, s meta.Store) {
	var b meta.Batch
	b.Set([]byte("k"), []byte("1"))
	b.IfAbsent([]byte("k"))
	apply(t, s, "p", &b)
	conflict(t, s, "p", &b)
	b = meta.Batch{}
	b.Delete([]byte("k"))
	b.IfEqual([]byte("k"), []byte("1"))
	apply(t, s, "p", &b)
	absent(t, s, "p", "k")
}

func testOpsInOrder(t *testing.T, s meta.Store) {
	var b meta.Batch
	b.Set([]byte("k"), []byte("1"))
	b.Delete([]byte("k"))
	b.Set([]byte("k"), []byte("2"))
	b.Set([]byte("gone"), []byte("1"))
	b.Delete([]byte("gone"))
	apply(t, s, "p", &b)
	want(t, s, "p", "k", "2")
	absent(t, s, "p", "gone")
}

func testScan(t *testing.T, s meta.Store) {
	wantAll(t, s, "p", "", "")
	set(t, s, "p", "b", "2", "a", "1", "c", "3", "aa", "11", "ab", "12")
	wantAll(t, s, "p", "", "", "a", "1", "aa", "11", "ab", "12", "b", "2", "c", "3")
	wantAll(t, s, "p", "aa", "c", "aa", "11", "ab", "12", "b", "2")
	wantAll(t, s, "p", "ac", "", "b", "2", "c", "3")
	wantAll(t, s, "p", "", "a\x00", "a", "1")
	wantAll(t, s, "p", "b", "b")
	wantAll(t, s, "p", "c", "a")
	wantAll(t, s, "p", "d", "")
	if err := s.Scan(bg, "p", nil, []byte{}, func(k, _ []byte) (bool, error) {
		return true, fmt.Errorf("%q lies below an empty end", k)
	}); err != nil {
		t.Fatal(err)
	}
}

func testScanStops(t *testing.T, s meta.Store) {
	set(t, s, "p", "a", "1", "b", "2", "c", "3")
	n := 0
	if err := s.Scan(bg, "p", nil, nil, func(_, _ []byte) (bool, error) {
		n++
		return n < 2, nil
	}); err != nil || n != 2 {
		t.Fatalf("%d calls, %v", n, err)
	}
	mine := errors.New("mine")
	n = 0
	if err := s.Scan(bg, "p", nil, nil, func(_, _ []byte) (bool, error) {
		n++
		return true, mine
	}); !errors.Is(err, mine) || n != 1 {
		t.Fatalf("%d calls, %v", n, err)
	}
	// A callback may use the store, and does not see what it changes.
	n = 0
	if err := s.Scan(bg, "p", nil, nil, func(k, v []byte) (bool, error) {
		n++
		got, err := s.Get(bg, "p", k, nil)
		if err != nil || string(got) != string(v) {
			return false, fmt.Errorf("get within scan: %q, %v", got, err)
		}
		var b meta.Batch
		b.Set(append([]byte("z"), k...), v)
		b.Delete([]byte("c"))
		return true, s.Apply(bg, "p", &b)
	}); n != 3 {
		// c is deleted by then, so its Get fails; that it was seen at all is the point.
		t.Fatalf("%d calls, %v", n, err)
	}
}

func testScanAllBytes(t *testing.T, s meta.Store) {
	var b meta.Batch
	var keys []string
	for i := range 256 {
		for _, k := range []string{string([]byte{byte(i)}), string([]byte{byte(i), 0}), string([]byte{byte(i), 255})} {
			keys = append(keys, k)
			b.Set([]byte(k), []byte(k))
		}
	}
	for _, part := range []string{"p", "\xff", "\xff\xff", "q"} {
		apply(t, s, part, &b)
	}
	slices.Sort(keys)
	for _, part := range []string{"p", "\xff", "\xff\xff", "q"} {
		got, err := all(s, part, "", "")
		if err != nil || len(got) != len(keys) {
			t.Fatalf("%q: %d pairs, %v", part, len(got), err)
		}
		for i, p := range got {
			if p.k != keys[i] || p.v != keys[i] {
				t.Fatalf("%q: pair %d is %q, want %q", part, i, p, keys[i])
			}
		}
	}
}

func testPartitions(t *testing.T, s meta.Store) {
	names := []string{"a", "aa", "b", "sys", "\x00", "\xff", "a\x00", "ab"}
	check := func(want []string) {
		t.Helper()
		got, err := s.Partitions(bg)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		want = slices.Sorted(slices.Values(want))
		if !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	check(nil)
	for _, n := range names {
		set(t, s, n, "k", n, "", n)
	}
	check(names)
	for _, n := range names {
		want(t, s, n, "k", n)
		wantAll(t, s, n, "", "", "", n, "k", n)
	}
	// One without pairs is not listed.
	var b meta.Batch
	b.Delete([]byte("k"))
	apply(t, s, "aa", &b)
	check(names)
	b.Delete(nil)
	apply(t, s, "aa", &b)
	check(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "aa" }))
}

// A partition's name and a key never run into each other.
func testIsolation(t *testing.T, s meta.Store) {
	set(t, s, "a", "bc", "1")
	absent(t, s, "ab", "c")
	absent(t, s, "abc", "")
	set(t, s, "ab", "c", "2")
	want(t, s, "a", "bc", "1")
	var b meta.Batch
	b.IfAbsent([]byte("bc"))
	b.Set([]byte("bc"), []byte("3"))
	apply(t, s, "ab", &b)
	conflict(t, s, "a", &b)
	wantAll(t, s, "ab", "", "", "bc", "3", "c", "2")
	wantAll(t, s, "a", "", "", "bc", "1")
}

func testLimits(t *testing.T, s meta.Store) {
	long := string(slices.Repeat([]byte{0xff}, 4<<10))
	set(t, s, "p", long, "v")
	want(t, s, "p", long, "v")
	wantAll(t, s, "p", "", "", long, "v")
	var b meta.Batch
	b.Set([]byte("ok"), nil)
	b.Set([]byte(long+"x"), nil)
	if err := s.Apply(bg, "p", &b); err == nil || errors.Is(err, meta.ErrConflict) {
		t.Fatalf("key of 4097 bytes: %v", err)
	}
	absent(t, s, "p", "ok")
	if err := s.Apply(bg, "", &meta.Batch{Ops: []meta.Op{{Key: []byte("k")}}}); err == nil {
		t.Fatal("a partition without a name was taken")
	}
}

func testBatchNotKept(t *testing.T, s meta.Store) {
	k, v := []byte("key"), []byte("value")
	var b meta.Batch
	b.Set(k, v)
	apply(t, s, "p", &b)
	copy(k, "KEY")
	copy(v, "VALUE")
	wantAll(t, s, "p", "", "", "key", "value")
}

func testContext(t *testing.T, s meta.Store) {
	set(t, s, "p", "k", "v")
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := s.Get(ctx, "p", []byte("k"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	var b meta.Batch
	b.Set([]byte("k"), []byte("w"))
	if err := s.Apply(ctx, "p", &b); !errors.Is(err, context.Canceled) {
		t.Errorf("apply: %v", err)
	}
	if err := s.Scan(ctx, "p", nil, nil, func(_, _ []byte) (bool, error) { return true, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("scan: %v", err)
	}
	want(t, s, "p", "k", "v")
	// One cancelled half way ends there.
	set(t, s, "p", "l", "v", "m", "v")
	ctx, cancel = context.WithCancel(bg)
	n := 0
	if err := s.Scan(ctx, "p", nil, nil, func(_, _ []byte) (bool, error) {
		n++
		cancel()
		return true, nil
	}); !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("scan: %d calls, %v", n, err)
	}
}

func testClosed(t *testing.T, s meta.Store) {
	set(t, s, "p", "k", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(bg, "p", []byte("k"), nil); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if err := s.Apply(bg, "p", &meta.Batch{}); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("apply: %v", err)
	}
	if _, err := all(s, "p", "", ""); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("scan: %v", err)
	}
	if _, err := s.Partitions(bg); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("partitions: %v", err)
	}
}
