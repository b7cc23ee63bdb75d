package server

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"

	kv "github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

var objectPaths = []descriptor.Path{"", descriptor.Direct, descriptor.Buffer}

// plainGet gets an object over HTTP.
func plainGet(t *testing.T, c *kv.Client, key string) []byte {
	t.Helper()
	o, err := c.S3().GetObject(t.Context(), "kvs", key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b, err := io.ReadAll(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func code(err error) string {
	var e *kv.Error
	errors.As(err, &e)
	if e == nil {
		return fmt.Sprint(err)
	}
	return e.Code
}

// TestObjectsOverMemory stores objects from memory and gets them and ranges of
// them back into it, on every path, and checks every byte and its surroundings
// against plain HTTP and the generator.
func TestObjectsOverMemory(t *testing.T) { everyWay(t, testObjectsOverMemory) }

func testObjectsOverMemory(t *testing.T, w way) {
	r, c, _ := w.start(t, 1, 10)
	buf, err := c.Register(t.Context(), 12<<20)
	if err != nil {
		t.Fatal(err)
	}
	mem := buf.Bytes()
	rng := rand.New(rand.NewPCG(21, 22))
	for i, size := range []int64{1, 4096, 4097, 65536, 65537, 1<<20 + 3, 9<<20 + 5} {
		for _, path := range objectPaths {
			key := fmt.Sprintf("objects/%d é%s", size, path)
			want := content(key, size)
			at := rng.Int64N(int64(len(mem)) - size)
			copy(mem[at:], want)
			put := kv.PutRequest{Key: key, At: at, Count: size, Absent: true, ContentType: "x/y", Meta: map[string]string{"a": "b"},
				Chained: i > 0, Parent: "parent", Index: int64(i), Path: path}
			res, err := c.PutObjectFrom(t.Context(), put, buf)
			if err != nil {
				t.Fatal(err)
			}
			sum := md5.Sum(want)
			if res.ETag != hex.EncodeToString(sum[:]) || res.Bytes != size {
				t.Errorf("%s: %+v", key, res)
			}
			if !bytes.Equal(plainGet(t, c, key), want) {
				t.Fatalf("%s: other bytes were stored", key)
			}
			if _, err := c.PutObjectFrom(t.Context(), put, buf); code(err) != "PreconditionFailed" {
				t.Errorf("%s again: %v", key, err)
			}
			ranges := [][2]int64{{0, 0}, {0, 1}, {size - 1, 0}, {size / 2, size - size/2}}
			for range 6 {
				first := rng.Int64N(size)
				ranges = append(ranges, [2]int64{first, 1 + rng.Int64N(size-first)})
			}
			for _, g := range ranges {
				n := g[1]
				if n == 0 {
					n = size - g[0]
				}
				at := rng.Int64N(int64(len(mem)) - n + 1)
				canary := byte(rng.IntN(256))
				for k := range mem {
					mem[k] = canary
				}
				res, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: key, First: g[0], Count: g[1], At: at, Path: path, IfMatch: res.ETag}, buf)
				if err != nil {
					t.Fatalf("%s %v: %v", key, g, err)
				}
				if res.Bytes != n || res.Size != size || res.Header.Get("X-Amz-Meta-A") != "b" || res.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("%s %v: %+v", key, g, res)
				}
				if !bytes.Equal(mem[at:at+n], want[g[0]:g[0]+n]) {
					t.Fatalf("%s %v: wrong bytes", key, g)
				}
				for k, b := range mem {
					if b != canary && (int64(k) < at || int64(k) >= at+n) {
						t.Fatalf("%s %v: byte %d of the buffer was written", key, g, k)
					}
				}
			}
		}
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
	if st := r.s.cfg.Memory.(*memory).reg.Stats(); st.Transfers != 0 {
		t.Errorf("left behind: %+v", st)
	}
}

// TestObjectOverMemoryErrors: each error has its code or field, and none takes
// the buffer's slots with it.
func TestObjectOverMemoryErrors(t *testing.T) { everyWay(t, testObjectOverMemoryErrors) }

func testObjectOverMemoryErrors(t *testing.T, w way) {
	r, c, _ := w.start(t, 1, 1000)
	buf, err := c.Register(t.Context(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	const key = "chunk-1000-0"
	other := kvClient(t, r.url, "OTHERKEY", "the secret of other")
	for round := range 20 { // more than there are slots
		for _, q := range []struct {
			what, want string
			c          *kv.Client
			req        kv.ObjectRequest
		}{
			{"no such key", "NoSuchKey", c, kv.ObjectRequest{Key: "none"}},
			{"no room", "InvalidArgument", c, kv.ObjectRequest{Key: key, Room: 999}},
			{"no room at the end", "InvalidArgument", c, kv.ObjectRequest{Key: key, At: 7193}},
			{"outside", "InvalidArgument", c, kv.ObjectRequest{Key: key, At: 8192}},
			{"before the start", "InvalidArgument", c, kv.ObjectRequest{Key: key, At: -1}},
			{"another version", "PreconditionFailed", c, kv.ObjectRequest{Key: key, IfMatch: "0"}},
			{"past the object", "InvalidRange", c, kv.ObjectRequest{Key: key, First: 1000}},
			{"a wrong path", "InvalidArgument", c, kv.ObjectRequest{Key: key, Path: "x"}},
			{"no key", "InvalidArgument", c, kv.ObjectRequest{}},
			{"another's buffer", "InvalidArgument", other, kv.ObjectRequest{Key: key}},
		} {
			if _, err := q.c.GetObjectInto(t.Context(), q.req, buf); code(err) != q.want {
				t.Errorf("round %d, %s: %v", round, q.what, err)
			}
		}
		for what, req := range map[string]kv.PutRequest{
			"nothing": {Key: "k"}, "outside": {Key: "k", At: 8000, Count: 193}, "before the start": {Key: "k", At: -1, Count: 1}, "no key": {Count: 1},
		} {
			if _, err := c.PutObjectFrom(t.Context(), req, buf); code(err) != "InvalidArgument" {
				t.Errorf("round %d, PUT of %s: %v", round, what, err)
			}
		}
	}
	if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: key, At: 7192}, buf); err != nil || !bytes.Equal(buf.Bytes()[7192:], content(key, 1000)) {
		t.Errorf("the last bytes: %v", err)
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: key}, buf); code(err) != "Closed" {
		t.Errorf("a closed buffer: %v", err)
	}
	if _, err := c.PutObjectFrom(t.Context(), kv.PutRequest{Key: "k", Count: 1}, buf); code(err) != "Closed" {
		t.Errorf("a closed buffer: %v", err)
	}
}

// sendTarget sends a request with a target and no body.
func sendTarget(t *testing.T, r *running, method, key, access, secret, hash string, unsigned bool, f string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+"/kvs/"+key, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	value := base64.RawURLEncoding.EncodeToString([]byte(f))
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if !unsigned {
		req.Header.Set("X-Kv-Rdma-Target", value)
	}
	req = signer.SignV4(*req, access, secret, "", "us-east-1")
	req.Header.Set("X-Kv-Rdma-Target", value)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// TestObjectTargetIsACapability speaks the wire itself: what is not the
// caller's own is refused by name before a byte moves.
func TestObjectTargetIsACapability(t *testing.T) { everyWay(t, testObjectTargetIsACapability) }

func testObjectTargetIsACapability(t *testing.T, w way) {
	r, c, keys := w.start(t, 1, 4000)
	handle, mem := w.register(t, r, rootKey, rootSecret, 8192)
	send := func(method, access, secret, hash string, unsigned bool, f string) (int, string) {
		t.Helper()
		status, body, _ := sendTarget(t, r, method, keys[0], access, secret, hash, unsigned, f)
		return status, body
	}
	target := func(handle string, offset, length, tag int) string {
		return fmt.Sprintf(`{"handle":%q,"offset":%d,"length":%d,"tag":%d}`, handle, offset, length, tag)
	}
	empty := hexSHA256("")
	const arg = "<ArgumentName>rdma_target."
	for _, method := range []string{"GET", "PUT"} {
		for _, q := range []struct {
			what, access, secret, hash, target, want string
			unsigned                                 bool
			status                                   int
		}{
			{"another's handle", "OTHERKEY", "the secret of other", empty, target(handle, 0, 4000, 0), arg + "handle", false, 400},
			{"an unknown handle", rootKey, rootSecret, empty, target("x", 0, 4000, 0), arg + "handle", false, 400},
			{"past the memory", rootKey, rootSecret, empty, target(handle, 4193, 4000, 0), arg + "length", false, 400},
			{"a tag out of range", rootKey, rootSecret, empty, target(handle, 0, 4000, 1<<40), arg + "tag", false, 400},
			{"an unsigned payload", rootKey, rootSecret, "UNSIGNED-PAYLOAD", target(handle, 0, 4000, 0), "AccessDenied", false, 403},
			{"an unsigned header", rootKey, rootSecret, empty, target(handle, 0, 4000, 0), "AccessDenied", true, 403},
		} {
			status, body := send(method, q.access, q.secret, q.hash, q.unsigned, q.target)
			if q.what == "another's handle" && status == 403 {
				t.Fatal("the other tenant cannot even reach the bucket: the test means nothing")
			}
			refused(t, method+" with "+q.what, status, body, q.status, q.want)
		}
	}
	for _, b := range mem.Bytes() {
		if b != 0 {
			t.Fatal("a byte moved")
		}
	}
	if got := plainGet(t, c, keys[0]); !bytes.Equal(got, content(keys[0], 4000)) {
		t.Fatal("a refused PUT changed the object")
	}
	status, body := send("GET", rootKey, rootSecret, empty, false, target(handle, 96, 4000, 5))
	refused(t, "a GET", status, body, 200, "")
	if !bytes.Equal(mem.Bytes()[96:4096], content(keys[0], 4000)) {
		t.Error("wrong bytes")
	}
	for _, method := range []string{"GET", "PUT"} {
		status, body = send(method, rootKey, rootSecret, empty, false, target(handle, 96, 4000, 5))
		refused(t, "a replayed "+method, status, body, 400, arg+"tag")
	}
	status, body = send("PUT", rootKey, rootSecret, empty, false, target(handle, 0, 100, 21)) // the next tag of the slot
	refused(t, "a PUT", status, body, 200, "")
	if got := plainGet(t, c, keys[0]); !bytes.Equal(got, mem.Bytes()[:100]) {
		t.Errorf("%d bytes were stored, or wrong ones", len(got))
	}
	if log := r.log.String(); bytes.Contains([]byte(log), []byte(handle)) {
		t.Error("the log shows a handle")
	}
}

// TestPutWhileItChanges: what is stored is what was summed, however the client
// meddles with its memory meanwhile.
func TestPutWhileItChanges(t *testing.T) { everyWay(t, testPutWhileItChanges) }

func testPutWhileItChanges(t *testing.T, w way) {
	r, c, _ := w.start(t, 1, 10)
	// A hostile client sends no sum of its own.
	handle, m := w.register(t, r, rootKey, rootSecret, 3<<20)
	mem := m.Bytes()
	stop := make(chan struct{})
	var meddling sync.WaitGroup
	meddling.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				mem[i*7919%len(mem)]++
			}
		}
	})
	for i := range 12 {
		key := fmt.Sprint("meddled/", i)
		status, body, h := sendTarget(t, r, "PUT", key, rootKey, rootSecret, hexSHA256(""), false,
			fmt.Sprintf(`{"handle":%q,"offset":11,"length":%d,"tag":%d,"path":%q}`, handle, len(mem)-11, i, objectPaths[1+i%2]))
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		etag := h.Get("ETag")
		got := plainGet(t, c, key) // verified against the stored CRCs on its way
		if sum := md5.Sum(got); etag != `"`+hex.EncodeToString(sum[:])+`"` {
			t.Errorf("%s: stored bytes with MD5 %x under the ETag %s", key, sum, etag)
		}
	}
	close(stop)
	meddling.Wait()
}

// TestObjectsGivenUp cancels transfers at any time: the call returns, and the
// buffer works on or is lost.
func TestObjectsGivenUp(t *testing.T) { everyWay(t, testObjectsGivenUp) }

func testObjectsGivenUp(t *testing.T, w way) {
	r, c, keys := w.start(t, 1, 8<<20)
	given := 0
	var buf *kv.Buffer
	for i := range 40 {
		if buf == nil {
			var err error
			if buf, err = c.Register(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			var err error
			if i%2 == 0 {
				_, err = c.GetObjectInto(ctx, kv.ObjectRequest{Key: keys[0], Path: objectPaths[i%3]}, buf)
			} else {
				_, err = c.PutObjectFrom(ctx, kv.PutRequest{Key: "given-up", Count: 8 << 20, Path: objectPaths[i%3]}, buf)
			}
			ended <- err
		}()
		for range i * 20 { // a little later each time
			if len(ended) > 0 {
				break
			}
			select {
			case <-ctx.Done():
			default:
			}
		}
		cancel()
		if err := <-ended; err != nil {
			given++
		}
		select {
		case <-buf.Lost(): // the request had not begun: the memory went with it
			if err := buf.Close(); err != nil {
				t.Fatal(err)
			}
			buf = nil
		default:
		}
	}
	if given == 0 {
		t.Error("nothing was given up: the test means nothing")
	}
	if buf != nil {
		if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: keys[0]}, buf); err != nil || !bytes.Equal(buf.Bytes(), content(keys[0], 8<<20)) {
			t.Errorf("after all that: %v", err)
		}
		r.end(t) // with the buffer registered
		if w.notices {
			<-buf.Lost()
		}
		if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: keys[0]}, buf); err == nil {
			t.Error("an object came from a server that has ended")
		}
		if _, err := c.PutObjectFrom(t.Context(), kv.PutRequest{Key: "k", Count: 1}, buf); err == nil {
			t.Error("an object went to a server that has ended")
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
	}
}
