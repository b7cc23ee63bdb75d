package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// absent is the version of an object that is not there.
const absent = 0

// ledger is what a client knows about each key: the version last acknowledged,
// and the versions (or a delete) that were under way when the server died.
type ledger struct {
	acked   map[string]int
	inDoubt map[string][]int
}

// crashSizes run from inline objects over one block to several; odd ones too.
var crashSizes = []int{100, 4096, 4097, 10_000, 16 << 10, 65536, 65537, 100_001, 262_144}

// body gives the content of a version of a key.
func body(key string, version int) []byte {
	h := uint64(14695981039346656037)
	for _, c := range []byte(key) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h += uint64(version)
	return pattern(h).bytes(crashSizes[h%uint64(len(crashSizes))])
}

// TestCrash kills the server with SIGKILL during 1,000 concurrent PUTs, again
// and again over one data folder. Half of the PUTs overwrite, half make new
// objects that the next round deletes. After each restart, what was
// acknowledged is there and whole, what was not is there whole or not at all.
func TestCrash(t *testing.T) {
	rounds := knob(t, "E2E_CRASH_ROUNDS", 20)
	const puts = 1000
	data := filepath.Join(t.TempDir(), "data")
	l := ledger{map[string]int{}, map[string][]int{}}
	rnd := rand.New(rand.NewPCG(1, 2))
	var startups []time.Duration
	version := 0
	for round := range rounds + 1 {
		p := start(t, data, "--capacity", "2GiB", "--max-requests", "1100")
		startups = append(startups, p.Startup)
		if p.Startup > 30*time.Second {
			t.Errorf("start-up %d took %v", round, p.Startup)
		}
		c := newClient(t, p)
		if round == 0 {
			c.must(t, 200, "PUT", "/crash", "", nil)
		} else {
			l.check(t, c, round)
		}
		if round == rounds {
			stop(t, p)
			break
		}
		var deletes, keys []string
		for k, v := range l.acked {
			if v != absent && k[0] == 'n' {
				deletes = append(deletes, k)
			}
		}
		slices.Sort(deletes)
		for i := range puts {
			if i%2 == 0 {
				keys = append(keys, fmt.Sprintf("o/%04d", i))
			} else {
				keys = append(keys, fmt.Sprintf("n/%03d/%04d", round, i))
			}
		}
		version++
		// The kill comes at another point of the work every time: after the
		// first few acknowledgements, in the middle, near the end.
		l.storm(t, c, keys, deletes, version, rnd.IntN(puts), p.Kill)
	}
	t.Logf("start-up after kill -9, %d times: longest %v, first %v", rounds, slices.Max(startups[1:]).Round(time.Millisecond), startups[0].Round(time.Millisecond))
	out, err := exec.Command(bin, "verify", "--data", data).CombinedOutput()
	if err != nil {
		t.Errorf("objcached verify: %v\n%s", err, out)
	}
	t.Logf("objcached verify:\n%s", out)
}

// storm puts a version of every key and deletes others, all at once, calls
// kill after some acknowledgements, and books what was answered.
func (l *ledger) storm(t *testing.T, c *client, keys, deletes []string, version, killAfter int, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var acks atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	var once sync.Once
	dead := make(chan struct{})
	op := func(method, key string, v int, want int) {
		var b []byte
		if v != absent {
			b = body(key, v)
		}
		a, err := c.do(ctx, method, "/crash/"+key, "", b)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && a.status == want:
			l.acked[key] = v
			if acks.Add(1) > int64(killAfter) {
				once.Do(func() { close(dead) })
			}
		case err == nil:
			t.Errorf("%s %s: %d %s", method, key, a.status, a.code())
		default:
			l.inDoubt[key] = append(l.inDoubt[key], v)
		}
	}
	for _, k := range keys {
		wg.Go(func() { op("PUT", k, version, 200) })
	}
	for _, k := range deletes {
		wg.Go(func() { op("DELETE", k, absent, 204) })
	}
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	select {
	case <-dead:
	case <-all:
	}
	kill()
	<-all
	if ctx.Err() != nil {
		t.Fatal("the storm did not end in time")
	}
}

// check reads every key that was ever written and settles what was in doubt.
func (l *ledger) check(t *testing.T, c *client, round int) {
	t.Helper()
	listed := c.list(t, "crash")
	keys := map[string]bool{}
	for k := range l.acked {
		keys[k] = true
	}
	for k := range l.inDoubt {
		keys[k] = true
	}
	for k := range listed {
		if !keys[k] {
			t.Errorf("round %d: %s was never put", round, k)
		}
	}
	acked, landed := 0, 0
	for k := range keys {
		want := append([]int{l.acked[k]}, l.inDoubt[k]...)
		a, err := c.do(context.Background(), "GET", "/crash/"+k, "", nil)
		if err != nil {
			t.Fatalf("round %d: GET %s: %v", round, k, err)
		}
		found := -1
		switch a.status {
		case 404:
			found = absent
		case 200:
			for _, v := range want {
				if v != absent && bytes.Equal(a.body, body(k, v)) {
					found = v
				}
			}
		default:
			t.Errorf("round %d: GET %s: %d %s", round, k, a.status, a.code())
		}
		if found < 0 || !slices.Contains(want, found) {
			t.Errorf("round %d: %s is none of the versions %v it may be: status %d, %d bytes", round, k, want, a.status, len(a.body))
			continue
		}
		if size, ok := listed[k]; ok != (found != absent) || ok && size != int64(len(a.body)) {
			t.Errorf("round %d: %s is listed %v with %d bytes, GET gives version %d", round, k, ok, size, found)
		}
		if len(l.inDoubt[k]) > 0 && found != l.acked[k] {
			landed++
		}
		if found != absent {
			acked++
			l.acked[k] = found
		} else {
			delete(l.acked, k)
		}
	}
	t.Logf("round %d: %d objects whole, %d of %d in doubt had landed", round, acked, landed, len(l.inDoubt))
	l.inDoubt = map[string][]int{}
}
