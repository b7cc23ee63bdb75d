package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// healthTimeout bounds how long /healthz waits for the store.
const healthTimeout = 5 * time.Second

func (s *Server) adminHandler() http.Handler {
	r := chi.NewRouter()
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{}))
	r.Get("/healthz", s.health)
	r.Post("/verify", s.verifies.serve)
	if s.cfg.Profile {
		r.HandleFunc("/debug/pprof/*", pprof.Index)
		r.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		r.HandleFunc("/debug/pprof/profile", pprof.Profile)
		r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		r.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return r
}

// health answers 200 only when the store answers.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if _, err := s.cfg.Gateway.Store.ListBuckets(ctx); err != nil {
		http.Error(w, "store: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // nobody is left to tell
}

// ScrubFunc verifies the whole store. It calls progress now and then, from any
// goroutine but never from two at once, and returns a report that can be
// written as JSON and whether everything is sound.
type ScrubFunc func(ctx context.Context, progress func(Progress)) (report any, sound bool, err error)

// Progress says how far a scrub is.
type Progress struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Total   int64 `json:"total_bytes"` // an estimate; 0 if unknown
}

// VerifyLine is one line of the answer of POST /verify: progress while it
// runs, then the report or an error.
type VerifyLine struct {
	Progress *Progress       `json:"progress,omitempty"`
	Report   json.RawMessage `json:"report,omitempty"`
	Sound    bool            `json:"sound,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// verifies runs scrubs on demand, one at a time: two would only halve each
// other's speed.
type verifies struct {
	scrub ScrubFunc
	log   *slog.Logger
	mu    sync.Mutex
}

// progressEvery is the least time between two progress lines.
const progressEvery = 200 * time.Millisecond

// serve runs a scrub and streams its progress as lines of JSON. A client that
// leaves ends the scrub.
func (v *verifies) serve(w http.ResponseWriter, r *http.Request) {
	if v.scrub == nil {
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
		_ = enc.Encode(l) // a client that left also ends the context
		_ = flush.Flush()
	}
	last := time.Time{}
	report, sound, err := v.scrub(r.Context(), func(p Progress) {
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			send(VerifyLine{Progress: &p})
		}
	})
	if err != nil {
		v.log.Error("verify", "error", err)
		send(VerifyLine{Error: err.Error()})
		return
	}
	b, err := json.Marshal(report)
	if err != nil {
		send(VerifyLine{Error: err.Error()})
		return
	}
	v.log.Info("verified", "sound", sound)
	send(VerifyLine{Report: b, Sound: sound})
}
