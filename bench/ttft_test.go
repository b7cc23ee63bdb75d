package bench

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/internal/server"
)

// startServer runs a whole server with shared memory until the test ends.
func startServer(t *testing.T) Target {
	t.Helper()
	dir := t.TempDir()
	s, err := server.Open(t.Context(), server.Options{Dir: filepath.Join(dir, "store"), Listen: "127.0.0.1:0", Capacity: 128 << 20, VolumeSize: 64 << 20,
		RootAccessKey: clienttest.AccessKey, RootSecretKey: clienttest.SecretKey, ShmListen: filepath.Join(dir, "s")}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, io.Discard) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return Target{Endpoint: s.URL(), AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: "ttft"}
}

// TestTTFT plays two tiny prefixes against a whole server, over both
// transports.
func TestTTFT(t *testing.T) {
	b := TTFT{
		Contexts: []int{4096}, Hits: []float64{87.5, 50}, Grains: []int{16, 256}, Transports: []string{overStream, overShm},
		Rounds: 1, Scale: 60, Memory: 1 << 30, Target: startServer(t),
		Progress: func(title string, total int64) Progress { return &counter{t: t, title: title, total: total} },
	}
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// 50 %: 34 tokens, two chunks of 16 and none of 256; 87.5 %: 59, three and none.
	var played, skipped int
	for _, row := range r.Rows {
		if row.Skipped != "" {
			if row.G != 256 || !strings.Contains(row.Skipped, "less than one chunk") {
				t.Errorf("%+v", row)
			}
			skipped++
			continue
		}
		played++
		if want := map[float64]int{50: 2, 87.5: 3}[row.Hit]; row.Chunks != want || row.Slice != 65536 || len(row.Raw) != 5 {
			t.Errorf("%+v", row)
		}
		compute := 32 * row.ComputeUs / 1000
		if row.Local < compute || row.TTFT < compute || row.X0 <= 0 || row.Rate <= 0 || row.Eq3 < compute || row.Chunkwise < compute {
			t.Errorf("%+v", row)
		}
		for _, raw := range row.Raw {
			// A prefill never takes less than layer 0, the compute, and what it stalled.
			if sum := raw.X0 + raw.Stall + compute; raw.TTFT < sum-0.001 {
				t.Errorf("TTFT %v ms, parts %v ms", raw.TTFT, sum)
			}
		}
	}
	if played != 4 || skipped != 2 {
		t.Errorf("%d rows and %d skipped", played, skipped)
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || strings.Count(table.String(), "skipped: 4K tokens") != 2 || !strings.Contains(table.String(), "Rows: 4,") {
		t.Errorf("%s, %v", table.String(), err)
	}
	file := filepath.Join(t.TempDir(), "x.png")
	if err := r.Plot(file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 800 || img.Bounds().Dy() < 600 {
		t.Errorf("%v", err)
	}
	// Nothing is left in the store.
	if c, _, err := (&Layerwise{Target: b.Target}).clients(); err != nil {
		t.Error(err)
	} else {
		defer c.Close()
		keys, err := (&Layerwise{Geometry: Geometry{3, 32, 65536}}).keys()
		if n, matchErr := c.Match(t.Context(), keys); err != nil || matchErr != nil || n != 0 {
			t.Errorf("%d chunks left, %v, %v", n, err, matchErr)
		}
	}
}

// noBar shows nothing.
func noBar(string, int64) Progress { return silent{} }

type silent struct{}

func (silent) Add(int64) {}
func (silent) Done()     {}

func TestTTFTWrongBytes(t *testing.T) {
	g := Geometry{Chunks: 3, Layers: 2, Slice: 100}
	mem := make([]byte, g.Payload())
	for l := range g.Layers {
		for j := range g.Chunks {
			fillSlice(mem[(l*g.Chunks+j)*100:][:100], sliceSeed(uint64(j), l))
		}
	}
	if err := verifyLayers(mem, g); err != nil {
		t.Error(err)
	}
	mem[401] ^= 1
	if err := verifyLayers(mem, g); err == nil || !strings.Contains(err.Error(), "layer 1, chunk 1, offset 0") {
		t.Error(err)
	}
}

// TestTTFTRow works a row out from rounds whose figures are known.
func TestTTFTRow(t *testing.T) {
	ready := func(x0, x time.Duration) []time.Duration {
		r := make([]time.Duration, 32)
		for l := range r {
			r[l] = x0 + time.Duration(l)*x
		}
		return r
	}
	played := func(ttft, x0, x time.Duration) Played { return Played{Ready: ready(x0, x), TTFT: ttft} }
	ms := func(x float64) time.Duration { return ofMillis(x) }
	row := TTFTRow{Context: 65536, Geometry: Geometry{10, 32, 1 << 20}, PayloadBytes: 320 << 20, ComputeUs: 10000}
	row.Required = float64(10<<20) / 0.010 / 1e9
	row.fill(
		[]Played{played(ms(320), 0, 0), played(ms(321), 0, 0), played(ms(330), 0, 0)},
		[]Played{played(ms(324), ms(3), ms(2)), played(ms(326), ms(4), ms(2)), {TTFT: ms(331), Ready: ready(ms(5), ms(2)), Late: 40 * us}},
		[]Played{played(ms(40), ms(2), ms(5)), played(ms(40), ms(2), ms(4)), played(ms(40), ms(2), ms(20))},
		[]Played{played(ms(400), 0, 0), played(ms(500), 0, 0), played(ms(410), 0, 0)})
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	near("local", row.Local, 321)
	near("TTFT", row.TTFT, 326)
	near("added", row.Added, 4) // of 4, 5 and 1
	near("X0", row.X0, 4)
	near("beyond", row.BeyondPct, 0)
	near("rate", row.Rate, 10*(1<<20)/0.005/1e9)
	near("late", row.Late, 40)
	near("chunkwise", row.ChunkwiseAdded, 80)
	near("Eq. 3", row.Eq3, 322)                           // 2+31*10+10, 322, 2+31*20+10
	near("off", row.OffPct, 100*(324.0-322)/322)          // of 2, 4 and -301 ms
	near("Eq. 3 of round 2", row.Raw[2].Eq3, 2+31*20+10)  // the slow one
	near("delivery of round 0", row.Raw[0].Delivery, 157) // 2+31*5
	if !row.Fed || !row.Met {
		t.Errorf("%+v", row)
	}
}

func TestTTFTJudge(t *testing.T) {
	for _, tc := range []struct {
		row   TTFTRow
		bound string
		met   bool
	}{
		{TTFTRow{Context: 65536, Fed: true, BeyondPct: 0.9, AddedPct: 1.9}, "X0 + 1 %, and under 2 %", true},
		{TTFTRow{Context: 65536, Fed: true, BeyondPct: 1.1, AddedPct: 1.9}, "X0 + 1 %, and under 2 %", false},
		{TTFTRow{Context: 65536, Fed: true, BeyondPct: 0.1, AddedPct: 2.1}, "X0 + 1 %, and under 2 %", false},
		{TTFTRow{Context: 65536, BeyondPct: 50, AddedPct: 50, OffPct: -9}, "Eq. 3 within 10 %", true},
		{TTFTRow{Context: 4096, Fed: true, Added: 9.9, OffPct: 90}, "under 10 ms", true},
		{TTFTRow{Context: 4096, Fed: true, Added: 10.1}, "under 10 ms", false},
		{TTFTRow{Context: 4096, OffPct: 10.1}, "Eq. 3 within 10 %", false},
		{TTFTRow{Context: 16384, Fed: true, OffPct: 3}, "Eq. 3 within 10 %", true},
	} {
		tc.row.judge()
		if tc.row.Bound != tc.bound || tc.row.Met != tc.met {
			t.Errorf("%+v", tc.row)
		}
	}
}

func TestTTFTRefuses(t *testing.T) {
	good := TTFT{Contexts: []int{4096}, Hits: []float64{50}, Grains: []int{16}, Transports: []string{overStream}, Rounds: 1, Scale: 1, Progress: noBar,
		Target: Target{Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "b", Bucket: "ccc"}} // nobody is asked
	for name, spoil := range map[string]func(*TTFT){
		"rounds":    func(b *TTFT) { b.Rounds = 0 },
		"scale":     func(b *TTFT) { b.Scale = 0 },
		"no hits":   func(b *TTFT) { b.Hits = nil },
		"transport": func(b *TTFT) { b.Transports = []string{"tape"} },
		"G":         func(b *TTFT) { b.Grains = []int{0} },
		"context":   func(b *TTFT) { b.Contexts = []int{5000} },
		"hit":       func(b *TTFT) { b.Hits = []float64{51} },
	} {
		b := good
		spoil(&b)
		if _, err := b.Run(t.Context()); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	// Too large for the memory is a row that says so, not a failure.
	r, err := good.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 1 || r.Rows[0].Skipped != "needs 512 MiB of memory, 0 B may be used" {
		t.Errorf("%+v", r)
	}
	if err := r.Plot(filepath.Join(t.TempDir(), "x.png")); err == nil {
		t.Error("nothing was plotted")
	}
}

// TestTTFTFallback: a store without the layerwise GET is no store to measure.
func TestTTFTFallback(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	s.Plain = true
	b := TTFT{
		Contexts: []int{4096}, Hits: []float64{50}, Grains: []int{16}, Transports: []string{overStream}, Rounds: 1, Scale: 100, Memory: 1 << 30,
		Progress: noBar, Target: Target{Endpoint: s.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket},
	}
	if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no layerwise GET") {
		t.Error(err)
	}
}

// TestTTFTBreaks: a delivery that fails while playing ends the run.
func TestTTFTBreaks(t *testing.T) {
	broken := errors.New("broken")
	b := TTFT{Rounds: 1, Progress: noBar}
	ways := []way{{name: "odd", mode: descriptor.Layer, deliver: func(context.Context, func(int)) error { return broken }}}
	w, _ := findWindow(4096, 50)
	if _, err := b.measure(t.Context(), prefix{Window: w, Geometry: Geometry{Layers: 2}}, ways); !errors.Is(err, broken) || !strings.Contains(err.Error(), "odd, round 0") {
		t.Error(err)
	}
}
