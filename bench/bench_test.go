package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/client/clienttest"
)

// fillByDefinition is fillSlice one byte at a time.
func fillByDefinition(p []byte, seed uint64) {
	for k := range p {
		p[k] = byte(mix(seed+uint64(k/8)*0x9e3779b97f4a7c15) >> (8 * (k % 8)))
	}
}

func TestPattern(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range []int{0, 1, 7, 8, 9, 31, 32, 33, 100, 515} {
		for chunk := range uint64(3) {
			for layer := range 3 {
				seed := sliceSeed(chunk, layer)
				p, want := make([]byte, n), make([]byte, n)
				fillSlice(p, seed)
				fillByDefinition(want, seed)
				if !bytes.Equal(p, want) {
					t.Fatalf("%d bytes: fillSlice goes wrong", n)
				}
				if n >= 7 && seen[string(p)] {
					t.Fatalf("two slices of %d bytes are equal", n)
				}
				seen[string(p)] = true
				if badByte(p, seed) != -1 || badSample(p, seed) != -1 {
					t.Fatalf("%d good bytes are called bad", n)
				}
				for k := range p {
					p[k] ^= 0x40
					if got := badByte(p, seed); got < 0 || got > k || got < k-7 {
						t.Fatalf("byte %d of %d is bad, badByte says %d", k, n, got)
					}
					p[k] ^= 0x40
				}
				if n >= 8 && (badSample(p, sliceSeed(chunk, layer+1)) < 0 || badSample(make([]byte, n), seed) < 0) {
					t.Fatalf("%d bytes: badSample misses another slice", n)
				}
			}
		}
	}
}

func TestPercentiles(t *testing.T) {
	var v []float64
	for i := range 100 {
		v = append(v, float64(i+1))
	}
	for p, want := range map[float64]float64{50: 50, 90: 90, 99: 99, 100: 100, 0: 1, 0.5: 1, 99.5: 100} {
		if got := percentile(v, p); got != want {
			t.Errorf("p%v of 1..100 is %v, want %v", p, got, want)
		}
	}
	if got := percentile([]float64{3, 4, 9}, 50); got != 4 {
		t.Errorf("p50 of three is %v", got)
	}
	if percentile(nil, 50) != 0 || median(nil) != 0 {
		t.Error("of nothing it must be 0")
	}
	if median([]float64{9, 1, 5}) != 5 || median([]float64{4, 1, 2, 9}) != 3 {
		t.Error("median")
	}
	d := []time.Duration{5 * time.Millisecond, time.Millisecond, 3 * time.Millisecond}
	if got := latencyOf(d); got != (Latency{3, 5, 5, 5}) || d[0] != 5*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if gbps(2e9, time.Second) != 2 || gbps(1, 0) != 0 {
		t.Error("gbps")
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 65536: "64 KiB", 469762048: "448 MiB", 3 << 40: "3 TiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestMachine(t *testing.T) {
	m := ThisMachine()
	if m.Cores < 1 || m.Kernel == "" || m.Go == "" || m.MemoryMiB <= 0 {
		t.Errorf("%+v", m)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if js, err := json.Marshal(m); err != nil || (len(host) > 3 && strings.Contains(string(js), host)) {
		t.Errorf("%s, %v", js, err)
	}
	if RSSAnon(os.Getpid()) < 1<<20 || RSSAnon(-1) != 0 {
		t.Error("RSSAnon")
	}
	w := watchMemory(os.Getpid())
	for range 2 { // stop may be called again
		if peak := w.stop(); peak < 1<<20 {
			t.Errorf("watchMemory: %d", peak)
		}
	}
}

// counter is a Progress that counts, and must end exactly.
type counter struct {
	t        *testing.T
	title    string
	n, total int64
}

func (c *counter) Add(n int64) { c.n += n }
func (c *counter) Done() {
	if c.n > c.total {
		c.t.Errorf("%s: %d of %d", c.title, c.n, c.total)
	}
}

func layerwise(t *testing.T, s *clienttest.Server, g Geometry) *Layerwise {
	return &Layerwise{
		Geometry: g, Rounds: 3, Concurrency: 2, Dir: t.TempDir(), Command: "test",
		Target: Target{Endpoint: s.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket, PID: os.Getpid()},
		StartBare: func(_ context.Context, file string, g Geometry) (BareServer, error) {
			h, err := NewBareHandler(file, g)
			if err != nil {
				return BareServer{}, err
			}
			srv := httptest.NewServer(h)
			return BareServer{srv.URL, os.Getpid(), func() error { srv.Close(); return h.Close() }}, nil
		},
		Progress: func(title string, total int64) Progress { return &counter{t: t, title: title, total: total} },
	}
}

func TestLayerwise(t *testing.T) {
	for _, g := range []Geometry{{1, 1, 1}, {3, 5, 777}, {5, 3, 70_001}, {3, 2, 131_072}} {
		for _, plain := range []bool{false, true} {
			s := clienttest.New()
			s.Plain = plain
			b := layerwise(t, s, g)
			r, err := b.Run(t.Context())
			if err != nil {
				t.Fatalf("%+v: %v", g, err)
			}
			if r.Native == plain || r.PayloadBytes != int64(g.Chunks)*int64(g.Layers)*g.Slice || len(r.Things) != 6 || r.ServerRSSAnonPeak == 0 {
				t.Fatalf("%+v", r)
			}
			for i, key := range []string{"memory", "bare-http", "bare-http-marked", "layerwise", "whole", "ranged"} {
				row := r.Things[i]
				if row.Key != key || len(row.Raw) != 3 || row.GBps <= 0 || row.Min > row.GBps || row.Max < row.GBps || row.HTTP <= 0 ||
					row.Layer0 <= 0 || row.Total < row.Layer0 {
					t.Errorf("%+v", row)
				}
			}
			if r.Things[0].Memory != 1 || r.Things[1].HTTP != 1 {
				t.Error("a limit is not 1 of itself")
			}
			if n := s.Keys(); n != 0 {
				t.Errorf("%d objects were left behind", n)
			}
			if files, err := os.ReadDir(b.Dir); err != nil || len(files) != 0 {
				t.Errorf("%v were left behind, %v", files, err)
			}
			var table, js bytes.Buffer
			if err := errors.Join(r.WriteTable(&table), WriteJSON(&js, r)); err != nil {
				t.Fatal(err)
			}
			for _, row := range r.Things {
				if !strings.Contains(table.String(), row.Name) {
					t.Errorf("no %q in\n%s", row.Name, table.String())
				}
			}
			var back LayerwiseReport
			if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Chunks != g.Chunks || len(back.Things[2].Raw) != 3 {
				t.Errorf("JSON does not read back: %v", err)
			}
			s.Close()
		}
	}
}

// A wrong byte anywhere must end the run: first in what the store gives, then
// in what the bare server reads.
func TestLayerwiseSeesWrongBytes(t *testing.T) {
	g := Geometry{Chunks: 4, Layers: 3, Slice: 1000}
	s := clienttest.New()
	defer s.Close()
	b := layerwise(t, s, g)
	keys, err := b.keys()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		j, k := rng.IntN(4), rng.IntN(3000)
		data := make([]byte, g.ChunkBytes())
		g.fillChunk(data, j)
		data[k] ^= 1
		s.Put(keys[j], data) // it exists, so the benchmark leaves it alone
		if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "wrong byte") || !strings.Contains(err.Error(), "GetLayers") {
			t.Fatalf("chunk %d byte %d: %v", j, k, err)
		}
	}
	start := b.StartBare
	b.StartBare = func(ctx context.Context, file string, g Geometry) (BareServer, error) {
		bare, err := start(ctx, file, g)
		f, openErr := os.OpenFile(file, os.O_RDWR, 0)
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{0xff, 0x00, 0xff}, 5000); err != nil {
			t.Fatal(err)
		}
		return bare, err
	}
	if _, err := b.Run(t.Context()); err == nil {
		t.Error("a damaged file went unseen")
	}
}

func TestLayerwiseKeep(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	b := layerwise(t, s, Geometry{3, 2, 100})
	b.Keep = true
	for range 2 { // the second finds the first's chunks
		if _, err := b.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.Keys() != 3 {
		t.Errorf("%d objects kept", s.Keys())
	}
	keys, err := b.keys()
	if err != nil {
		t.Fatal(err)
	}
	for j, k := range keys {
		o, _ := s.Get(k)
		if want := []string{"", keys[0], keys[1]}[j]; o.Parent != want || o.Index != string(rune('0'+j)) {
			t.Errorf("chunk %d: parent %q index %q", j, o.Parent, o.Index)
		}
	}
}

func TestLayerwiseRefuses(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	for _, edit := range []func(*Layerwise){
		func(b *Layerwise) { b.Chunks = 0 }, func(b *Layerwise) { b.Layers = -1 }, func(b *Layerwise) { b.Slice = 0 },
		func(b *Layerwise) { b.Rounds = 0 }, func(b *Layerwise) { b.Concurrency = 0 }, func(b *Layerwise) { b.Slice = 1 << 60 },
		func(b *Layerwise) { b.Target.Endpoint = "nonsense" }, func(b *Layerwise) { b.Target.SecretKey = "wrong" },
	} {
		b := layerwise(t, s, Geometry{2, 2, 10})
		edit(b)
		if _, err := b.Run(t.Context()); err == nil {
			t.Errorf("%+v ran", b)
		}
	}
}

func TestBareHandlerRefuses(t *testing.T) {
	g := Geometry{2, 2, 100}
	file := t.TempDir() + "/chunks"
	if err := writeChunkFile(file, g, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := NewBareHandler(file, Geometry{3, 2, 100}); err == nil {
		t.Error("a file that is too short was taken")
	}
	if _, err := NewBareHandler(file+"x", g); err == nil {
		t.Error("a file that is not there was taken")
	}
	h, err := NewBareHandler(file, g)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, q := range []string{"", "?write=0", "?write=x", "?write=99999999999"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/"+q, nil))
		if w.Code != 400 {
			t.Errorf("%q: %d", q, w.Code)
		}
	}
	for _, write := range []string{"1", "100", "150", "200", "300", "1000"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/?write="+write, nil))
		var want []byte
		for l := range 2 {
			for j := range 2 {
				p := make([]byte, 100)
				fillByDefinition(p, sliceSeed(uint64(j), l))
				want = append(want, p...)
			}
		}
		if !slices.Equal(w.Body.Bytes(), want) {
			t.Errorf("write=%s: wrong body of %d bytes", write, w.Body.Len())
		}
	}
}

func BenchmarkBadByte(b *testing.B) {
	p := make([]byte, 64<<10)
	fillSlice(p, 1)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if badByte(p, 1) >= 0 {
			b.Fatal("bad")
		}
	}
}
