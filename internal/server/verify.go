package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/objcached/objcached/storage/object"
)

// Progress says how far a verification is.
type Progress struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Total   int64 `json:"total_bytes"` // an estimate: what the extents of the store take
}

// VerifyReport is what a verification found.
type VerifyReport struct {
	Sound     bool       `json:"sound"`
	Objects   int64      `json:"objects"`
	Parts     int64      `json:"parts"` // of unfinished uploads
	Bytes     int64      `json:"bytes"`
	BadBlocks int64      `json:"bad_blocks"`
	Bad       []BadBlock `json:"bad,omitempty"` // the first of them
	// Problems are damaged records, and extents that have not exactly one owner.
	ProblemCount int64    `json:"problem_count"`
	Problems     []string `json:"problems,omitempty"`
	Seconds      float64  `json:"seconds"`
}

// BadBlock is one block that does not hold what was written.
type BadBlock struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Block  int64  `json:"block"` // of 64 KiB, within the object
	Error  string `json:"error"`
}

// Scrubber is a store that can verify itself while it is used.
type Scrubber interface {
	Scrub(ctx context.Context, o object.ScrubOptions) (object.ScrubReport, error)
	Stats() object.Stats
}

// progressEvery is the least time between two calls for progress.
const progressEvery = 200 * time.Millisecond

// Verify scrubs a whole store at rate bytes per second (0: unlimited) and calls
// progress now and then, never twice at once.
func Verify(ctx context.Context, s Scrubber, rate int64, progress func(Progress)) (VerifyReport, error) {
	start, last := time.Now(), time.Time{}
	total := s.Stats().Blob.Reserved
	r, err := s.Scrub(ctx, object.ScrubOptions{Rate: rate, Progress: func(r *object.ScrubReport) {
		if now := time.Now(); progress != nil && now.Sub(last) >= progressEvery {
			last = now
			progress(Progress{Objects: r.Objects + r.Parts, Bytes: r.Bytes, Total: max(total, r.Bytes)})
		}
	}})
	out := VerifyReport{
		Sound: err == nil && r.Clean(), Objects: r.Objects, Parts: r.Parts, Bytes: r.Bytes,
		BadBlocks: r.BadBlocks, ProblemCount: r.ProblemCount, Problems: r.Problems, Seconds: time.Since(start).Seconds(),
	}
	for _, b := range r.Bad {
		out.Bad = append(out.Bad, BadBlock{b.Bucket, b.Key, b.Block, b.Err.Error()})
	}
	return out, err
}

// VerifyLine is one line of the answer of POST /verify: progress while it
// runs, then the report or an error.
type VerifyLine struct {
	Progress *Progress     `json:"progress,omitempty"`
	Report   *VerifyReport `json:"report,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// verifies runs scrubs on demand, one at a time: two would only halve each
// other's speed.
type verifies struct {
	store Scrubber
	log   *slog.Logger
	mu    sync.Mutex
}

// serve runs a scrub and streams its progress as lines of JSON. A client that
// leaves ends the scrub. The query parameter rate bounds it in bytes per second.
func (v *verifies) serve(w http.ResponseWriter, r *http.Request) {
	rate := int64(0)
	if q := r.URL.Query().Get("rate"); q != "" {
		n, err := strconv.ParseInt(q, 10, 64)
		if err != nil || n < 0 {
			http.Error(w, fmt.Sprintf("rate %q is not a number of bytes per second", q), http.StatusBadRequest)
			return
		}
		rate = n
	}
	if v.store == nil {
		http.Error(w, "this store cannot be verified online", http.StatusNotImplemented)
		return
	}
	if !v.mu.TryLock() {
		http.Error(w, "a verification is under way", http.StatusConflict)
		return
	}
	defer v.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	send := func(l VerifyLine) {
		// A client that left ends the context, and with it the scrub.
		_ = enc.Encode(l)
		_ = flush.Flush()
	}
	report, err := Verify(r.Context(), v.store, rate, func(p Progress) { send(VerifyLine{Progress: &p}) })
	line := VerifyLine{Report: &report}
	if err != nil {
		line.Error = err.Error()
	}
	v.log.Info("verified", "sound", report.Sound, "objects", report.Objects, "bad_blocks", report.BadBlocks,
		"problems", report.ProblemCount, "error", line.Error)
	send(line)
}
