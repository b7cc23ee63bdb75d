package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	kv "github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// childEnv makes this test binary a client that is to be killed.
const childEnv = "OBJCACHED_TEST_SHM_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		victim(url)
		return
	}
	os.Exit(m.Run())
}

// contents keeps what content made.
var contents sync.Map

// content is a chunk's bytes, from its key alone.
func content(key string, size int64) []byte {
	if b, ok := contents.Load(key); ok {
		return b.([]byte)
	}
	var seed [32]byte
	copy(seed[:], key)
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	contents.Store(key, b)
	return b
}

func kvClient(t testing.TB, url, access, secret string) *kv.Client {
	t.Helper()
	c, err := kv.New(kv.Config{Endpoint: url, AccessKey: access, SecretKey: secret, Bucket: "kvs", FabricNode: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func put(t *testing.T, c *kv.Client, n int, size int64) []string {
	t.Helper()
	keys := make([]string, n)
	chunks := make([]kv.Chunk, n)
	for j := range keys {
		keys[j] = fmt.Sprintf("chunk-%d-%d", size, j)
		chunks[j] = kv.Chunk{Key: keys[j], Data: content(keys[j], size)}
	}
	if _, err := c.PutChunks(t.Context(), chunks); err != nil {
		t.Fatal(err)
	}
	return keys
}

// slice is the slice of layer l of a chunk, by the definition of the layouts.
func slice(req *kv.GetRequest, j, l int) []byte {
	s, n := req.PerLayerChunkBytes, int64(req.NumLayers)
	b := content(req.Keys[j], s*n)
	if req.Layout == descriptor.TwoLTD {
		half := s / 2
		return slices.Concat(b[int64(l)*half:][:half], b[(n+int64(l))*half:][:half])
	}
	return b[int64(l)*s:][:s]
}

// TestLayersIntoMemory checks every byte through the whole server: odd sizes,
// both layouts, windows, modes, truncation, both placements; and that nothing
// outside the slices is touched.
func TestLayersIntoMemory(t *testing.T) { everyWay(t, testLayersIntoMemory) }

func testLayersIntoMemory(t *testing.T, w way) {
	_, c, _ := w.start(t, 1, 10)
	const n, layers = 5, 4
	r := rand.New(rand.NewPCG(11, 12))
	for _, s := range []int64{1, 6, 999, 4096, 16 << 10, 64 << 10, 98306} {
		keys := put(t, c, n, s*layers)
		buf, err := c.Register(t.Context(), 20_000+(n+4)*(layers+1)*s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 16 {
			first := r.IntN(layers)
			req := kv.GetRequest{Keys: keys, NumLayers: layers, PerLayerChunkBytes: s, FirstLayer: first, LayerCount: 1 + r.IntN(layers-first),
				Delivery: []descriptor.Mode{descriptor.Auto, descriptor.Chunk}[i&1]}
			if i&2 != 0 && s%2 == 0 {
				req.Layout = descriptor.TwoLTD
			}
			matched := n
			if i&4 != 0 {
				matched = r.IntN(n + 1)
				req.Keys = append(append([]string{}, keys[:matched]...), "none", keys[n-1])
				req.OnMissing = descriptor.Truncate
			}
			asked := int64(len(req.Keys))
			place := descriptor.Target{Offset: r.Int64N(5000), Length: 0}
			piece := s // what lies together
			at := func(l, j int, k int64) int64 { return place.Offset + (int64(l-first)*asked+int64(j))*s + k }
			if i&8 != 0 && s%2 == 0 { // vLLM's: a tensor per layer, planes, blocks
				per := int64(1)
				for per < 4 && s%(4*per) == 0 {
					per *= 2
				}
				pool := asked*per + 2
				b := s / 2 / per
				place = descriptor.Target{Offset: 64, PlaneStride: pool * b, BlocksPerChunk: int(per)}
				for l := range int64(layers) {
					place.LayerBases = append(place.LayerBases, 64+(layers-1-l)*2*pool*b)
				}
				for _, p := range r.Perm(int(pool))[:asked*per] {
					place.Slots = append(place.Slots, int64(p))
				}
				piece = b
				at = func(l, j int, k int64) int64 {
					return place.LayerBases[l] + k/(s/2)*pool*b + place.Slots[int64(j)*per+k%(s/2)/b]*b + k%b
				}
			}
			mem := buf.Bytes()
			canary := bytes.Repeat([]byte{0xc5}, len(mem))
			copy(mem, canary)
			tr, err := c.GetLayersInto(t.Context(), req, buf, place)
			if err != nil {
				t.Fatal(err)
			}
			for l := first; l < first+req.LayerCount; l++ {
				if err := tr.WaitLayer(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				for j := range matched { // there as soon as it is announced
					want := slice(&req, j, l)
					for k := int64(0); k < s; k += piece {
						if !bytes.Equal(mem[at(l, j, k):][:piece], want[k:k+piece]) {
							t.Fatalf("S=%d case %d: layer %d chunk %d is wrong in the %d bytes from %d", s, i, l, j, piece, k)
						}
					}
				}
			}
			sum, err := tr.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantLayers := req.LayerCount
			if matched == 0 {
				wantLayers = 0
			}
			if sum.Matched != matched || sum.Bytes != int64(matched)*int64(req.LayerCount)*s || len(sum.PerLayerMicros) != wantLayers {
				t.Errorf("S=%d case %d: %+v", s, i, sum)
			}
			for l := first; l < first+req.LayerCount; l++ {
				for j := range matched {
					for k := int64(0); k < s; k += piece {
						copy(mem[at(l, j, k):][:piece], canary)
					}
				}
			}
			if !bytes.Equal(mem, canary) {
				t.Fatalf("S=%d case %d: a byte that is no slice's was written", s, i)
			}
		}
		if err := buf.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// ask sends one signed request and returns its status, body and headers.
func ask(t *testing.T, url, access, secret, query, body string, signed bool) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	if signed {
		req.Header.Set("X-Amz-Content-Sha256", hexSHA256(body))
	}
	req = signer.SignV4(*req, access, secret, "", "us-east-1")
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

// refused expects an answer that names a field.
func refused(t *testing.T, what string, status int, body string, wantStatus int, want string) {
	t.Helper()
	if status != wantStatus || !strings.Contains(body, want) {
		t.Errorf("%s: %d %s, want %d and %q", what, status, body, wantStatus, want)
	}
}

// TestMemoryIsACapability: what is not the caller's own is refused before a
// byte moves.
func TestMemoryIsACapability(t *testing.T) { everyWay(t, testMemoryIsACapability) }

func testMemoryIsACapability(t *testing.T, w way) {
	r, c, keys := w.start(t, 2, 2000)
	const otherKey, otherSecret = "OTHERKEY", "the secret of other"
	handle, mem := w.register(t, r, rootKey, rootSecret, 8192)
	get := func(handle string, tag, offset, length int) string {
		return fmt.Sprintf(`{"chunk_keys":[%q,%q],"num_layers":2,"per_layer_chunk_bytes":1000,"rdma_target":{"handle":%q,"offset":%d,"length":%d,"tag":%d}}`,
			keys[0], keys[1], handle, offset, length, tag)
	}
	const arg = "<ArgumentName>rdma_target."
	for _, q := range []struct {
		what, access, secret, body, want string
		unsigned                         bool
		status                           int
	}{
		{"another's handle", otherKey, otherSecret, get(handle, 0, 0, 4000), arg + "handle", false, 400},
		{"an unknown handle", rootKey, rootSecret, get("x", 0, 0, 4000), arg + "handle", false, 400},
		{"past the memory", rootKey, rootSecret, get(handle, 0, 5000, 4000), arg + "length", false, 400},
		{"a window too small", rootKey, rootSecret, get(handle, 0, 0, 3999), arg + "length", false, 400},
		{"an unsigned payload", rootKey, rootSecret, get(handle, 0, 0, 4000), "AccessDenied", true, 403},
		{"a tag out of range", rootKey, rootSecret, get(handle, 1<<40, 0, 4000), arg + "tag", false, 400},
	} {
		status, body, _ := ask(t, r.url, q.access, q.secret, "/kvs?kv-get=", q.body, !q.unsigned)
		if q.what == "another's handle" && status == 403 {
			t.Error("the other tenant cannot even reach the bucket: the test means nothing")
		}
		refused(t, q.what, status, body, q.status, q.want)
	}
	for _, b := range mem.Bytes() {
		if b != 0 {
			t.Fatal("a byte moved")
		}
	}
	status, body, _ := ask(t, r.url, rootKey, rootSecret, "/kvs?kv-get=", get(handle, 5, 0, 4000), true)
	if status != 200 || !strings.Contains(body, `"matched":2`) || !strings.Contains(body, `"granted_rate":0`) {
		t.Fatalf("%d %s", status, body)
	}
	for _, tag := range []int{5, 5} {
		status, body, h := ask(t, r.url, rootKey, rootSecret, "/kvs?kv-get=", get(handle, tag, 0, 4000), true)
		refused(t, "a replayed tag", status, body, 400, arg+"tag")
		if h.Get("X-Kv-Layers-Ready") != "0" {
			t.Errorf("x-kv-layers-ready %q", h.Get("X-Kv-Layers-Ready"))
		}
	}
	status, body, _ = ask(t, r.url, rootKey, rootSecret, "/kvs?kv-get=", get(handle, 6, 0, 4000), true)
	refused(t, "the next tag", status, body, 200, `"bytes":4000`)

	// The steps of registering.
	named := w.memory(t, 4096).name()
	ofLength := func(n int) string {
		return strings.Replace(named, `"length":4096`, fmt.Sprintf(`"length":%d`, n), 1)
	}
	for _, q := range []struct{ what, body, want string }{
		{"another fabric", `{"provider":"verbs;ofi_rxm","length":4096,"address":"AA==","key":"AA==","base":0}`, "<ArgumentName>provider"},
		{"an odd length", ofLength(100), "<ArgumentName>length"},
		{"more than all", ofLength(1 << 52), "<ArgumentName>length"},
		{"an unknown id", `{"id":"x","nonce":"AAAA"}`, "<ArgumentName>id"},
		{"a stale handle", `{"handle":"x"}`, "<ArgumentName>handle"},
	} {
		want := 400
		if q.what == "another fabric" {
			want = 501
		}
		status, body, _ := ask(t, r.url, rootKey, rootSecret, "/?kv-register=", q.body, true)
		refused(t, q.what, status, body, want, q.want)
	}
	status, body, _ = ask(t, r.url, rootKey, rootSecret, "/?kv-register=", named, false)
	refused(t, "unsigned", status, body, 403, "AccessDenied")
	status, body, _ = ask(t, r.url, otherKey, otherSecret, "/?kv-register=", fmt.Sprintf(`{"handle":%q}`, handle), true)
	refused(t, "renewing another's", status, body, 400, "<ArgumentName>handle")
	status, body, _ = ask(t, r.url, rootKey, rootSecret, "/?kv-register=", fmt.Sprintf(`{"handle":%q}`, handle), true)
	refused(t, "renewing", status, body, 200, "expires_in_ms")

	// 64 MiB may be registered here.
	bufs := 0
	for {
		b, err := c.Register(t.Context(), 16<<20)
		if err != nil {
			var e *kv.Error
			if !errors.As(err, &e) || e.Code != "SlowDown" {
				t.Errorf("over the limit: %v", err)
			}
			break
		}
		defer b.Close()
		if bufs++; bufs > 4 {
			t.Fatal("the limit is not kept")
		}
	}
	for _, secret := range mem.secrets() {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
	if log := r.log.String(); strings.Contains(log, handle) || !strings.Contains(log, "KVRegister") || !strings.Contains(log, "rdma_target.tag") {
		t.Errorf("the log shows a handle, or nothing: %s", log)
	}
	plain := start(t, Options{})
	status, body, _ = ask(t, plain.url, rootKey, rootSecret, "/?kv-register=", named, true)
	refused(t, "a server without memory", status, body, 501, "<ArgumentName>provider")
}

// TestMemoryServerEnds: a client whose server ends has an error soon, and a
// buffer that is its own.
func TestMemoryServerEnds(t *testing.T) {
	r, c, keys := startShm(t, 2, 2000)
	buf, err := c.Register(t.Context(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	r.end(t)
	<-buf.Lost()
	tr, err := c.GetLayersInto(t.Context(), kv.GetRequest{Keys: keys, NumLayers: 2, PerLayerChunkBytes: 1000}, buf, descriptor.Target{})
	if err == nil && tr.WaitLayer(t.Context(), 0) == nil {
		t.Error("a layer came from a server that has ended")
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
}

// TestGivenUpTransfer: one that is broken off leaves the buffer usable.
func TestGivenUpTransfer(t *testing.T) { everyWay(t, testGivenUpTransfer) }

func testGivenUpTransfer(t *testing.T, w way) {
	_, c, keys := w.start(t, 8, 1<<20)
	buf, err := c.Register(t.Context(), 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
	}()
	req := kv.GetRequest{Keys: keys, NumLayers: 16, PerLayerChunkBytes: 64 << 10}
	given := 0
	for i := range 24 {
		ctx, cancel := context.WithCancel(t.Context())
		tr, err := c.GetLayersInto(ctx, req, buf, descriptor.Target{})
		if err != nil {
			t.Fatal(err)
		}
		if i%12 != 7 {
			_ = tr.WaitLayer(ctx, i%16)
		} else {
			runtime.Gosched() // before or while the request is sent
		}
		cancel()
		if _, err := tr.Wait(t.Context()); err != nil {
			given++
		}
		select {
		case <-buf.Lost():
			// The request had not begun when it was given up: the memory went
			// with it, as it must.
			if err := buf.Close(); err != nil {
				t.Fatal(err)
			}
			if buf, err = c.Register(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	if given == 0 {
		t.Error("no transfer was given up: the test means nothing")
	}
	tr, err := c.GetLayersInto(t.Context(), req, buf, descriptor.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := tr.Wait(t.Context()); err != nil || sum.Matched != 8 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// victim registers and transfers until it is killed.
func victim(url string) {
	ctx := context.Background()
	fail := func(err error) {
		fmt.Println("victim:", err)
		os.Exit(1)
	}
	c, err := kv.New(kv.Config{Endpoint: url, AccessKey: rootKey, SecretKey: rootSecret, Bucket: "kvs", FabricNode: "127.0.0.1"})
	if err != nil {
		fail(err)
	}
	var keys []string
	for j := range 4 {
		keys = append(keys, fmt.Sprintf("chunk-%d-%d", 1<<20, j))
	}
	fmt.Println("started")
	for {
		buf, err := c.Register(ctx, 4<<20)
		if err != nil {
			fail(err)
		}
		for range 20 {
			tr, err := c.GetLayersInto(ctx, kv.GetRequest{Keys: keys, NumLayers: 16, PerLayerChunkBytes: 64 << 10}, buf, descriptor.Target{})
			if err != nil {
				fail(err)
			}
			if _, err := tr.Wait(ctx); err != nil {
				fail(err)
			}
			if _, err := c.GetObjectInto(ctx, kv.ObjectRequest{Key: keys[0]}, buf); err != nil {
				fail(err)
			}
			if _, err := c.PutObjectFrom(ctx, kv.PutRequest{Key: "victim", Count: 1 << 20, Path: descriptor.Buffer}, buf); err != nil {
				fail(err)
			}
		}
		if err := buf.Close(); err != nil {
			fail(err)
		}
	}
}

// TestClientsKilled kills clients at random points under load: the server goes
// back to where it was, and serves the others every byte meanwhile.
// OBJCACHED_TEST_KILLS says how many.
func TestClientsKilled(t *testing.T) { everyWay(t, testClientsKilled) }

func testClientsKilled(t *testing.T, w way) {
	kills := 20
	if n, err := strconv.Atoi(os.Getenv("OBJCACHED_TEST_KILLS")); err == nil {
		kills = n
	}
	if testing.Short() {
		kills = 3
	}
	r, c, keys := w.start(t, 4, 1<<20)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	buf, err := c.Register(t.Context(), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	mem := r.s.cfg.Memory.(*memory)
	before, held := mem.reg.Stats(), w.left(mem)
	http.DefaultClient.CloseIdleConnections()
	fds, threads := openFiles(t), runtime.NumGoroutine()

	req := kv.GetRequest{Keys: keys, NumLayers: 16, PerLayerChunkBytes: 64 << 10}
	want := make([][]byte, 16)
	for l := range want {
		for j := range keys {
			want[l] = append(want[l], slice(&req, j, l)...)
		}
	}
	rnd := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	for range (kills + 1) / 2 {
		var victims []*exec.Cmd
		for range 2 {
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), childEnv+"="+r.url)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line := make([]byte, 8)
			if _, err := io.ReadFull(out, line); err != nil || string(line) != "started\n" {
				t.Fatalf("the victim says %q: %v", line, err)
			}
			victims = append(victims, cmd)
		}
		deadline := time.Now().Add(time.Duration(rnd.Int64N(int64(60 * time.Millisecond))))
		for served := false; !served || time.Now().Before(deadline); served = true {
			tr, err := c.GetLayersInto(t.Context(), req, buf, descriptor.Target{})
			if err != nil {
				t.Fatal(err)
			}
			for l := range 16 {
				if err := tr.WaitLayer(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(buf.Bytes()[l*len(want[l]):][:len(want[l])], want[l]) {
					t.Fatalf("layer %d is wrong", l)
				}
			}
			if _, err := tr.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			clear(buf.Bytes())
		}
		for _, v := range victims {
			if err := v.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = v.Wait() // it was killed
		}
	}
	c.Close() // its idle connections would count
	for i := 0; ; i++ {
		now := mem.reg.Stats()
		if now == before && w.left(mem) == held && openFiles(t) <= fds && runtime.NumGoroutine() <= threads {
			break
		}
		if i == 1500 { // longer than an id is good for
			t.Fatalf("%+v, before %+v; %s, before %s; %d files, before %d; %d goroutines, before %d", now, before, w.left(mem), held, openFiles(t), fds, runtime.NumGoroutine(), threads)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
