package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestOverload: 200 clients at once against a server that serves 4. Each
// request gets its own right bytes or 503 SlowDown with Retry-After; none
// hangs, and a client that comes back is served in the end.
func TestOverload(t *testing.T) {
	const (
		clients = 200
		each    = 4
		layers  = 8
		slice   = 32 << 10
		chunks  = 6
	)
	p := start(t, filepath.Join(t.TempDir(), "data"), "--capacity", "512MiB", "--max-requests", "4")
	c := newClient(t, p)
	c.must(t, 200, "PUT", "/load", "", nil)
	var keys []string
	want := make([]byte, chunks*layers*slice)
	for j := range chunks {
		keys = append(keys, chunkKey(j))
		c.must(t, 200, "PUT", "/load/"+chunkKey(j), "", pattern(j).bytes(layers*slice))
		for l := range layers {
			pattern(j).fill(want[(l*chunks+j)*slice:][:slice], int64(l)*slice)
		}
	}
	desc := descriptor(keys, layers, slice)
	matchBody, err := json.Marshal(map[string]any{"chunk_keys": append(keys, "none")})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	type outcome struct{ served, slowed int }
	kinds := []string{"kv-get", "GET", "PUT", "kv-match"}
	var mu sync.Mutex
	outcomes := map[string]*outcome{}
	for _, k := range kinds {
		outcomes[k] = &outcome{}
	}
	// try sends one request and says whether it was served.
	try := func(kind string, id, n int) bool {
		var a answer
		var err error
		good := func() bool { return true }
		switch kind {
		case "kv-get":
			a, err = c.do(ctx, "POST", "/load", "kv-get=", desc)
			good = func() bool { return bytes.Equal(a.body, want) }
		case "kv-match":
			a, err = c.do(ctx, "POST", "/load", "kv-match=", matchBody)
			good = func() bool { return bytes.Equal(bytes.TrimSpace(a.body), fmt.Appendf(nil, `{"matched":%d}`, chunks)) }
		case "GET":
			j := (id + n) % chunks
			a, err = c.do(ctx, "GET", "/load/"+chunkKey(j), "", nil)
			good = func() bool { return bytes.Equal(a.body, pattern(j).bytes(layers*slice)) }
		case "PUT":
			a, err = c.do(ctx, "PUT", fmt.Sprintf("/load/new/%d/%d", id, n), "", pattern(1000+id*each+n).bytes(50_000))
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			t.Errorf("%s of client %d: %v", kind, id, err)
		case a.status == 200 && good():
			outcomes[kind].served++
			return true
		case a.status == 200:
			t.Errorf("%s of client %d: wrong bytes", kind, id)
		case a.status == 503 && a.code() == "SlowDown" && a.header.Get("Retry-After") != "":
			outcomes[kind].slowed++
			return false
		default:
			t.Errorf("%s of client %d: %d %s, Retry-After %q", kind, id, a.status, a.code(), a.header.Get("Retry-After"))
		}
		return true
	}
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for id := range clients {
		wg.Go(func() {
			<-gate
			for n := range each {
				kind := kinds[(id+n)%len(kinds)]
				for !try(kind, id, n) {
					select {
					case <-ctx.Done():
						return
					case <-time.After(20 * time.Millisecond): // the back-off of a client, shortened
					}
				}
			}
		})
	}
	close(gate)
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("clients were still waiting at the end")
	}
	slowed := 0
	for _, k := range kinds {
		o := outcomes[k]
		slowed += o.slowed
		if o.served != clients*each/len(kinds) {
			t.Errorf("%s: %d of %d served", k, o.served, clients*each/len(kinds))
		}
		t.Logf("%s: %d served, %d times told to slow down", k, o.served, o.slowed)
	}
	if slowed == 0 {
		t.Error("200 clients never met the limit of 4 requests")
	}
	for id := range clients {
		for n := range each {
			if kinds[(id+n)%len(kinds)] == "PUT" {
				a := c.must(t, 200, "GET", fmt.Sprintf("/load/new/%d/%d", id, n), "", nil)
				if !bytes.Equal(a.body, pattern(1000+id*each+n).bytes(50_000)) {
					t.Errorf("new/%d/%d is not what was put", id, n)
				}
			}
		}
	}
	stop(t, p)
}
