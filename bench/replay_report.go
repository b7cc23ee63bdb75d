package bench

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// ReplayReport is the result of a Replay.
type ReplayReport struct {
	Command     string  `json:"command"`
	Machine     Machine `json:"machine"`
	Layers      int     `json:"layers"`
	Slice       int64   `json:"slice_bytes"`
	Scale       float64 `json:"scale"` // a real slice (Llama 3.1 8B) is this many times as large
	Concurrency int     `json:"concurrency"`
	Speed       float64 `json:"speed"` // 0: as fast as possible
	Verify      Verify  `json:"verify"`

	Requests   int      `json:"requests"`
	Errors     int      `json:"errors"`
	WrongBytes int      `json:"requests_with_wrong_bytes"`
	FirstError []string `json:"first_errors,omitempty"`

	Blocks        int64   `json:"blocks"`
	BlocksHit     int64   `json:"blocks_hit"`
	Tokens        int64   `json:"tokens"`
	TokensHit     int64   `json:"tokens_hit"`
	BlockHitRate  float64 `json:"block_hit_rate"`
	TokenHitRate  float64 `json:"token_hit_rate"`
	ChunksStored  int64   `json:"chunks_stored"`
	ChunksExisted int64   `json:"chunks_existed"` // put by another request meanwhile

	BytesGot int64   `json:"bytes_got"`
	BytesPut int64   `json:"bytes_put"`
	Seconds  float64 `json:"seconds"`
	GBps     float64 `json:"gb_per_s"`     // bytes got and put, over the whole time
	GetGBps  float64 `json:"get_gb_per_s"` // bytes got, over the time of match and get, per request
	MaxLag   float64 `json:"max_lag_ms"`   // how late a request began at worst, with Speed
	Match    Latency `json:"match"`        // of kv-match
	Layer0   Latency `json:"layer0"`       // from the request's start to layer 0, where there was a hit
	Total    Latency `json:"total"`        // to the last layer
	Put      Latency `json:"put"`          // of all puts of a request that had some
	RSSAnon  int64   `json:"server_rss_anon_peak_bytes"`
}

// keptErrors is how many errors the report spells out.
const keptErrors = 5

func (b *Replay) report(outcomes []outcome, elapsed time.Duration, rss int64) *ReplayReport {
	r := &ReplayReport{
		Command: b.Command, Machine: ThisMachine(), Layers: b.Layers, Slice: b.Slice, Scale: float64(sliceOfModel) / float64(b.Slice),
		Concurrency: b.Concurrency, Speed: b.Speed, Verify: b.Verify, Requests: len(outcomes), Seconds: elapsed.Seconds(), RSSAnon: rss,
	}
	var match, layer0, total, put []time.Duration
	var getTime time.Duration
	for i, o := range outcomes {
		t := &b.Trace[i]
		if o.err != nil {
			r.Errors++
			if len(r.FirstError) < keptErrors {
				r.FirstError = append(r.FirstError, fmt.Sprintf("request %d: %v", i, o.err))
			}
			var wrong *wrongByteError
			if errors.As(o.err, &wrong) {
				r.WrongBytes++
			}
		}
		r.Blocks += int64(len(t.Blocks))
		r.BlocksHit += int64(o.matched)
		r.Tokens += int64(t.InputTokens)
		r.TokensHit += t.tokensOf(o.matched)
		r.ChunksStored += int64(o.put.Stored)
		r.ChunksExisted += int64(o.put.Existing)
		r.BytesGot += o.got
		r.BytesPut += o.put.Bytes
		r.MaxLag = max(r.MaxLag, millis(o.lag))
		match = append(match, o.matchTime)
		if o.total > 0 {
			layer0, total = append(layer0, o.layer0), append(total, o.total)
			getTime += o.total
		}
		if o.putTime > 0 {
			put = append(put, o.putTime)
		}
	}
	r.BlockHitRate = float64(r.BlocksHit) / float64(r.Blocks)
	r.TokenHitRate = float64(r.TokensHit) / float64(r.Tokens)
	r.GBps, r.GetGBps = gbps(r.BytesGot+r.BytesPut, elapsed), gbps(r.BytesGot, getTime)
	r.Match, r.Layer0, r.Total, r.Put = latencyOf(match), latencyOf(layer0), latencyOf(total), latencyOf(put)
	return r
}

// WriteTable prints the report for people.
func (r *ReplayReport) WriteTable(w io.Writer) error {
	pace := "as fast as possible"
	if r.Speed > 0 {
		pace = fmt.Sprintf("%g times the trace's speed, at most %.0f ms late", r.Speed, r.MaxLag)
	}
	fmt.Fprintf(w, "%d requests, %d at a time, %s; %.1f s\n", r.Requests, r.Concurrency, pace, r.Seconds)
	fmt.Fprintf(w, "%d layers of %s per %d-token block: scaled down %g times from Llama 3.1 8B\n\n",
		r.Layers, byteSize(r.Slice), BlockTokens, r.Scale)
	fmt.Fprintf(w, "hit rate   %.1f %% of tokens, %.1f %% of blocks (%d of %d)\n", 100*r.TokenHitRate, 100*r.BlockHitRate, r.BlocksHit, r.Blocks)
	fmt.Fprintf(w, "got        %s, %.3f GB/s per request from match to last layer\n", byteSize(r.BytesGot), r.GetGBps)
	fmt.Fprintf(w, "put        %s in %d chunks (%d were put by another request meanwhile)\n", byteSize(r.BytesPut), r.ChunksStored, r.ChunksExisted)
	fmt.Fprintf(w, "together   %.3f GB/s\n", r.GBps)
	if r.RSSAnon > 0 {
		fmt.Fprintf(w, "server     at most %s of memory beyond the page cache\n", byteSize(r.RSSAnon))
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ms\tp50\tp90\tp99\tmax\t")
	for _, l := range []struct {
		name string
		Latency
	}{{"match", r.Match}, {"layer 0", r.Layer0}, {"last layer", r.Total}, {"put", r.Put}} {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", l.name, l.P50, l.P90, l.P99, l.Max)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nerrors: %d (wrong bytes: %d; checked: %s)\n", r.Errors, r.WrongBytes, r.Verify)
	for _, e := range r.FirstError {
		fmt.Fprintln(w, " ", e)
	}
	return nil
}
