package e2e

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestStoreIsFull: a PUT beyond the capacity is an S3 error, stores nothing,
// and harms nobody; what is deleted makes room again.
func TestStoreIsFull(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, data, "--capacity", "64MiB", "--volume-size", "64MiB")
	c := newClient(t, p)
	c.must(t, 200, "PUT", "/full", "", nil)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	refused := func(key string, size int) {
		t.Helper()
		a, err := c.do(ctx, "PUT", "/full/"+key, "", pattern(99).bytes(size))
		if err != nil {
			t.Fatalf("PUT of %d bytes: %v", size, err)
		}
		if a.status < 400 || a.code() == "" || a.code() == "InternalError" {
			t.Errorf("PUT of %d bytes: %d %q, want an S3 error that says what is wrong", size, a.status, a.code())
		}
		c.must(t, 404, "GET", "/full/"+key, "", nil)
	}
	refused("too-big", 100<<20)
	// Fill it up.
	const size = 4 << 20
	n := 0
	for ; n < 32; n++ {
		a, err := c.do(ctx, "PUT", fmt.Sprintf("/full/%d", n), "", pattern(n).bytes(size))
		if err != nil {
			t.Fatal(err)
		}
		if a.status != 200 {
			break
		}
	}
	if n == 32 || n < 10 {
		t.Fatalf("a store of 64 MiB took %d objects of 4 MiB", n)
	}
	refused("one-more", size)
	whole := func() {
		t.Helper()
		for i := range n {
			if a := c.must(t, 200, "GET", fmt.Sprintf("/full/%d", i), "", nil); !bytes.Equal(a.body, pattern(i).bytes(size)) {
				t.Fatalf("object %d is not whole", i)
			}
		}
	}
	whole()
	// An overwrite needs room beside the old bytes; refused, it leaves them.
	if a, err := c.do(ctx, "PUT", "/full/0", "", pattern(77).bytes(16<<20)); err != nil || a.status < 400 {
		t.Errorf("an overwrite without room: %d, %v", a.status, err)
	}
	whole()
	// Small objects need no extent, and a listing no room.
	c.must(t, 200, "PUT", "/full/small", "", []byte("small"))
	if got := len(c.list(t, "full")); got != n+1 {
		t.Errorf("%d objects listed, want %d", got, n+1)
	}
	c.must(t, 204, "DELETE", fmt.Sprintf("/full/%d", n-1), "", nil)
	n--
	putUntilRoom(t, c, "/full/again", pattern(55).bytes(size))
	whole()
	stop(t, p)
	// The same after a restart: the free list is the same size.
	p = start(t, data, "--capacity", "64MiB", "--volume-size", "64MiB")
	c = newClient(t, p)
	whole()
	refused("one-more", 2*size)
	stop(t, p)
}
