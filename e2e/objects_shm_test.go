package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kv "github.com/objcached/objcached/client"
	wire "github.com/objcached/objcached/descriptor"
)

// TestObjectsOverMemoryAndKill kills the server with SIGKILL while objects are
// being stored from memory and read into it. Every call ends soon, the buffer is
// the client's own again, and after a restart what was acknowledged is there and
// whole, what was not is whole or not there.
func TestObjectsOverMemoryAndKill(t *testing.T) {
	rounds := knob(t, "E2E_SHM_KILLS", 4)
	data := filepath.Join(t.TempDir(), "data")
	run, err := os.MkdirTemp("", "e2e") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	const (
		size    = 300_001
		writers = 6
	)
	content := func(key string) []byte { return contentOf(key, size) }
	acked := map[string]bool{}
	tried := map[string]bool{}
	for round := range rounds + 1 {
		p := start(t, data, "--capacity", "2GiB", "--shm-listen", filepath.Join(run, "s"))
		c, err := kv.New(kv.Config{Endpoint: p.URL, AccessKey: rootKey, SecretKey: rootSecret, Bucket: "memory", Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			newClient(t, p).must(t, 200, "PUT", "/memory", "", nil)
		}
		buf, err := c.Register(t.Context(), 2*writers*size)
		if err != nil {
			t.Fatal(err)
		}
		for key := range tried { // of the rounds before
			room := buf.Bytes()[:size]
			clear(room)
			_, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: key, Room: size}, buf)
			switch {
			case err == nil && bytes.Equal(room, content(key)):
			case kv.IsNoSuchKey(err) && !acked[key]:
			default:
				t.Errorf("round %d: %s, acknowledged %v: %v, or wrong bytes", round, key, acked[key], err)
			}
		}
		if round == rounds {
			if err := buf.Close(); err != nil {
				t.Error(err)
			}
			c.Close()
			stop(t, p)
			break
		}
		var mu sync.Mutex
		var acks atomic.Int64
		var wg sync.WaitGroup
		dead := make(chan struct{})
		for w := range writers {
			wg.Go(func() {
				at := int64(2*w) * size
				path := []wire.Path{wire.Direct, wire.Buffer}[w%2]
				for i := 0; ; i++ {
					key := fmt.Sprintf("r%d/w%d/%d", round, w, i)
					copy(buf.Bytes()[at:], content(key))
					mu.Lock()
					tried[key] = true
					mu.Unlock()
					_, err := c.PutObjectFrom(t.Context(), kv.PutRequest{Key: key, At: at, Count: size, Path: path}, buf)
					if err != nil {
						return // the server is dead, or the test fails for want of acknowledgements
					}
					mu.Lock()
					acked[key] = true
					mu.Unlock()
					if acks.Add(1) == int64(5+round*11) {
						close(dead)
					}
					if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: key, At: at + size, Room: size, Path: path}, buf); err != nil {
						return
					}
					if got := buf.Bytes()[at+size : at+2*size]; !bytes.Equal(got, content(key)) {
						t.Errorf("%s: wrong bytes and no error", key)
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() { wg.Wait(); close(ended) }()
		select {
		case <-dead:
		case <-ended:
			t.Fatalf("round %d: the writers gave up after %d acknowledgements", round, acks.Load())
		}
		p.Kill()
		for what, ch := range map[string]<-chan struct{}{"the buffer is not lost": buf.Lost(), "calls did not end": ended} {
			select {
			case <-ch:
			case <-time.After(time.Minute):
				t.Fatalf("%s a minute after the server was killed", what)
			}
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	t.Logf("%d objects tried, %d acknowledged", len(tried), len(acked))
}

// contentOf is the content of an object, from its key alone.
func contentOf(key string, size int) []byte {
	h := uint64(1469598103934665603)
	for _, c := range []byte(key) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return pattern(h).bytes(size)
}
