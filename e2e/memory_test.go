package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resident returns the memory of a process beyond the page cache, in bytes:
// anonymous pages and shared memory.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	total, found := int64(0), 0
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != "RssAnon" && name != "RssShmem" {
			continue
		}
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += kib << 10
		found++
	}
	if found != 2 {
		t.Fatal("no RssAnon and RssShmem in /proc/PID/status")
	}
	return total
}

// TestMemoryIsFlat serves one prefix of many chunks and samples the server's
// memory at every mebibyte of the answer. E2E_MEMORY_CHUNKS=3584 is the 7 GB prefix.
func TestMemoryIsFlat(t *testing.T) {
	const (
		layers = 32
		slice  = 64 << 10
		limit  = 300 << 20
	)
	n := knob(t, "E2E_MEMORY_CHUNKS", 256)
	p := start(t, filepath.Join(t.TempDir(), "data"), "--capacity", strconv.Itoa(n*layers*slice+(256<<20)))
	c := newClient(t, p)
	c.must(t, 200, "PUT", "/flat", "", nil)
	keys := make([]string, n)
	for j := range n {
		keys[j] = fmt.Sprintf("chunk/%05d", j)
		c.must(t, 200, "PUT", "/flat/"+keys[j], "", pattern(j).bytes(layers*slice))
	}
	before := resident(t, p.PID)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	desc := descriptor(keys, layers, slice)
	r, err := c.request(ctx, "POST", "/flat", "kv-get=", bytes.NewReader(desc), int64(len(desc)))
	if err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	resp, err := c.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if total := int64(n) * layers * slice; resp.StatusCode != 200 || resp.ContentLength != total {
		t.Fatalf("status %d, Content-Length %d; want 200, %d", resp.StatusCode, resp.ContentLength, total)
	}
	got, want := make([]byte, slice), make([]byte, slice)
	peak, samples := before, 0
	var firstLayer time.Duration
	for l := range layers {
		for j := range n {
			if _, err := io.ReadFull(resp.Body, got); err != nil {
				t.Fatalf("layer %d, chunk %d: %v", l, j, err)
			}
			pattern(j).fill(want, int64(l)*slice)
			if !bytes.Equal(got, want) {
				t.Fatalf("layer %d, chunk %d is wrong", l, j)
			}
			if (l*n+j)%16 == 0 {
				peak = max(peak, resident(t, p.PID))
				samples++
			}
		}
		if l == 0 {
			firstLayer = time.Since(asked)
		}
	}
	t.Logf("N=%d, %d MB: %d MB resident before, %d MB at most in %d samples; layer 0 whole after %v, all after %v (with every byte compared)",
		n, n*layers*slice/1e6, before/1e6, peak/1e6, samples, firstLayer.Round(time.Millisecond), time.Since(asked).Round(time.Millisecond))
	if peak >= limit {
		t.Errorf("the server took %d bytes beyond the page cache, the limit is %d", peak, limit)
	}
	stop(t, p)
}
