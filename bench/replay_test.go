package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objcached/objcached/client/clienttest"
)

func testTrace(t testing.TB) []TraceRequest {
	t.Helper()
	f, err := os.Open("testdata/trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := ReadTrace(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func replay(t *testing.T, s *clienttest.Server) *Replay {
	return &Replay{
		Target: Target{Endpoint: s.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket},
		Trace:  testTrace(t), Layers: 4, Slice: 333, Concurrency: 1, Verify: VerifyFull, Command: "test",
		Progress: func(title string, total int64) Progress { return &syncCounter{} },
		Now:      time.Now,
		Sleep:    func(context.Context, time.Duration) error { return errors.New("must not sleep") },
	}
}

type syncCounter struct {
	mu sync.Mutex
	n  int64
}

func (c *syncCounter) Add(n int64) { c.mu.Lock(); c.n += n; c.mu.Unlock() }
func (c *syncCounter) Done()       {}

// The expected hits were counted by a separate program from the trace's ids
// alone: a block hits if it and all before it were in an earlier request.
const (
	traceBlocks, traceHits  = 440, 302
	traceTokens, tokenHits  = 217551, 154624
	traceDistinct, traceLen = 138, 40
)

func TestReplay(t *testing.T) {
	for _, plain := range []bool{false, true} {
		s := clienttest.New()
		s.Plain = plain
		b := replay(t, s)
		r, err := b.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		size := int64(4 * 333)
		if r.Errors != 0 || r.Requests != traceLen || r.Blocks != traceBlocks || r.BlocksHit != traceHits || r.Tokens != traceTokens ||
			r.TokensHit != tokenHits || r.ChunksStored != traceDistinct || r.ChunksExisted != 0 ||
			r.BytesGot != traceHits*size || r.BytesPut != traceDistinct*size || s.Keys() != traceDistinct {
			t.Fatalf("plain=%v: %+v, %d objects", plain, r, s.Keys())
		}
		if r.Layer0.P50 <= 0 || r.Total.P50 < r.Layer0.P50 || r.Match.P99 < r.Match.P50 || r.Put.Max <= 0 || r.GBps <= 0 || r.GetGBps <= 0 {
			t.Errorf("%+v", r)
		}
		var table, js bytes.Buffer
		if err := errors.Join(r.WriteTable(&table), WriteJSON(&js, r)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(table.String(), "71.1 % of tokens, 68.6 % of blocks (302 of 440)") {
			t.Error(table.String())
		}
		var back ReplayReport
		if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.BlocksHit != traceHits {
			t.Errorf("JSON does not read back: %v", err)
		}
		if plain {
			s.Close()
			continue
		}
		// Again: everything is there. With another salt: nothing is.
		if r, err = b.Run(t.Context()); err != nil || r.BlocksHit != traceBlocks || r.BytesPut != 0 || r.TokenHitRate != 1 {
			t.Errorf("again: %+v, %v", r, err)
		}
		b.Salt, b.Verify = "other", VerifySample
		if r, err = b.Run(t.Context()); err != nil || r.BlocksHit != traceHits || r.Errors != 0 {
			t.Errorf("other salt: %+v, %v", r, err)
		}
		s.Close()
	}
}

func TestReplayConcurrent(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	b := replay(t, s)
	b.Concurrency = 8
	r, err := b.Run(t.Context())
	if err != nil || r.Errors != 0 || r.Blocks != traceBlocks || r.ChunksStored != traceDistinct || s.Keys() != traceDistinct {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.BlocksHit+r.ChunksStored+r.ChunksExisted != traceBlocks {
		t.Errorf("%d hit, %d stored, %d existed: not %d", r.BlocksHit, r.ChunksStored, r.ChunksExisted, traceBlocks)
	}
}

// A store that mixes chunks up, and one that answers errors, must show.
func TestReplaySeesFaults(t *testing.T) {
	for _, verify := range []Verify{VerifyFull, VerifySample} {
		s := clienttest.New()
		b := replay(t, s)
		b.Verify = verify
		b.Trace = b.Trace[:6]
		if _, err := b.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		keys, err := b.root().Keys(b.Trace[0].Blocks)
		if err != nil {
			t.Fatal(err)
		}
		other, _ := s.Get(keys[1])
		s.Put(keys[0], other.Data)
		r, err := b.Run(t.Context())
		if err != nil || r.WrongBytes == 0 || r.WrongBytes != r.Errors || len(r.FirstError) == 0 || !strings.Contains(r.FirstError[0], "wrong byte") {
			t.Errorf("%s: %+v, %v", verify, r, err)
		}
		s.Close()
	}
	s := clienttest.New()
	defer s.Close()
	s.Inject = func(name string, _ *http.Request) *clienttest.Fault {
		if name == "kv-get" {
			return &clienttest.Fault{Cut: 100}
		}
		return nil
	}
	r, err := replay(t, s).Run(t.Context())
	if err != nil || r.Errors == 0 || r.WrongBytes != 0 || len(r.FirstError) != keptErrors {
		t.Errorf("%+v, %v", r, err)
	}
}

// With a fake clock: every request begins when the trace says, at the speed asked for.
func TestReplaySpeed(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	b := replay(t, s)
	var mu sync.Mutex
	now := time.Unix(0, 0)
	var slept time.Duration
	b.Speed = 10
	b.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	b.Sleep = func(_ context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		slept += d
		now = now.Add(d)
		return nil
	}
	r, err := b.Run(t.Context())
	span := b.Trace[len(b.Trace)-1].At - b.Trace[0].At
	if err != nil || slept != span/10 || r.Seconds != (span/10).Seconds() || r.MaxLag != 0 || r.Errors != 0 {
		t.Errorf("slept %v of %v: %+v, %v", slept, span/10, r, err)
	}
}

func TestReplayContext(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	b := replay(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int32
	s.Inject = func(string, *http.Request) *clienttest.Fault {
		if n.Add(1) == 20 {
			cancel()
		}
		return nil
	}
	if _, err := b.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	b = replay(t, s)
	b.Verify = "perhaps"
	if _, err := b.Run(t.Context()); err == nil {
		t.Error("an unknown verify mode was taken")
	}
}

func TestReadTrace(t *testing.T) {
	trace := testTrace(t)
	if len(trace) != traceLen || trace[0].At != 500*time.Millisecond || trace[0].InputTokens != 3072 || trace[0].OutputTokens != 38 ||
		!slices.Equal(trace[0].Blocks, []uint32{3, 4, 5, 6, 7, 8}) {
		t.Fatalf("%+v", trace[0])
	}
	third := trace[2] // 5119 tokens: the tenth block is one short
	if third.tokensOf(9) != 4608 || third.tokensOf(10) != 5119 || third.tokensOf(0) != 0 {
		t.Errorf("%+v", third)
	}
	good := `{"timestamp": 1, "input_length": 5, "output_length": 0, "hash_ids": [7], "other": 1}` + "\n"
	if got, err := ReadTrace(strings.NewReader(good+"\n"+good+good), 2); err != nil || len(got) != 2 {
		t.Errorf("limit: %v, %v", got, err)
	}
	for _, bad := range []string{
		"", "{}", "[1]", "x", good + `{"timestamp": 0, "input_length": 5, "hash_ids": [7]}`,
		`{"timestamp": -1, "input_length": 5, "hash_ids": [7]}`, `{"timestamp": 1e300, "input_length": 5, "hash_ids": [7]}`,
		`{"timestamp": 1, "input_length": 0, "hash_ids": [7]}`, `{"timestamp": 1, "input_length": 5, "hash_ids": []}`,
		`{"timestamp": 1, "input_length": 513, "hash_ids": [7]}`, `{"timestamp": 1, "input_length": 512, "hash_ids": [7, 8]}`,
		`{"timestamp": 1, "input_length": 5, "hash_ids": [-7]}`, `{"timestamp": 1, "input_length": 5, "hash_ids": [4294967296]}`,
		`{"timestamp": 1, "input_length": 5, "output_length": -1, "hash_ids": [7]}`, strings.Repeat(" ", maxTraceLine+1),
	} {
		if got, err := ReadTrace(strings.NewReader(bad), 0); err == nil {
			t.Errorf("%.60q gave %v", bad, got)
		}
	}
}

// What is accepted keeps its promises, and says the same when written again.
func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(`{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2353, 2354]}`))
	f.Add([]byte("{\"timestamp\": 1, \"input_length\": 5, \"hash_ids\": [7]}\n\n{\"timestamp\": 1.5, \"input_length\": 512, \"hash_ids\": [0]}"))
	f.Add([]byte(`{"timestamp": 1e308, "input_length": 9223372036854775807, "hash_ids": [7]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := ReadTrace(bytes.NewReader(data), 100)
		if err != nil {
			return
		}
		var again bytes.Buffer
		last := time.Duration(0)
		for _, r := range trace {
			n := len(r.Blocks)
			if n == 0 || r.At < last || r.InputTokens > n*BlockTokens || r.InputTokens <= (n-1)*BlockTokens || r.tokensOf(n) != int64(r.InputTokens) {
				t.Fatalf("%+v", r)
			}
			last = r.At
			line, err := json.Marshal(map[string]any{
				"timestamp": millis(r.At), "input_length": r.InputTokens, "output_length": r.OutputTokens, "hash_ids": r.Blocks,
			})
			if err != nil {
				t.Fatal(err)
			}
			again.Write(append(line, '\n'))
		}
		back, err := ReadTrace(&again, 0)
		if err != nil || len(back) != len(trace) {
			t.Fatalf("%v: %d and %d requests", err, len(back), len(trace))
		}
		for i := range back {
			if !slices.Equal(back[i].Blocks, trace[i].Blocks) || back[i].InputTokens != trace[i].InputTokens {
				t.Fatalf("%+v is not %+v", back[i], trace[i])
			}
		}
	})
}
