package gateway

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/objcached/objcached/internal/reqid"
)

// identify gives the request its id, its place in the context, and the
// deadlines that keep a stalled peer from holding anything.
func (g *Gateway) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		id := g.requestID(hr)
		r := &request{ID: id, start: g.now()}
		rw := newResponse(w, g.cfg.StallTimeout)
		ctx := withRequest(reqid.With(hr.Context(), id), r)
		hr = hr.WithContext(ctx)
		r.body = newStallReader(hr.Body, rw.rc, g.cfg.StallTimeout, hr.ContentLength != 0)
		hr.Body = r.body
		r.Request = hr
		w = rw
		h := w.Header()
		h.Set("X-Amz-Request-Id", id)
		h.Set("Server", "objcached")
		next.ServeHTTP(w, hr)
		r.body.finish()
	})
}

// requestID takes the client's id if it is sane, so that one id can be
// followed from the client's log to ours.
func (g *Gateway) requestID(r *http.Request) string {
	for _, name := range [...]string{"X-Request-Id", "X-Amz-Request-Id"} {
		if id := r.Header.Get(name); saneID(id) {
			return id
		}
	}
	var b [8]byte
	if _, err := io.ReadFull(g.cfg.Rand, b[:]); err != nil {
		// An id that repeats makes a log harder to read; it is no reason to fail.
		return strconv.FormatInt(g.now().UnixNano(), 16)
	}
	return hex.EncodeToString(b[:])
}

func saneID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// observe counts and logs every request once, however it ends.
func (g *Gateway) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r := requestOf(hr)
		rw := responseOf(w)
		g.metrics.inFlight.Inc()
		defer func() {
			p := recover()
			g.metrics.inFlight.Dec()
			took := g.now().Sub(r.start)
			status := strconv.Itoa(rw.status)
			if p != nil {
				status = "aborted"
			}
			op := r.opName()
			g.metrics.requests.WithLabelValues(op, status).Inc()
			g.metrics.duration.WithLabelValues(op).Observe(took.Seconds())
			g.metrics.bytesIn.Add(float64(r.body.n))
			g.metrics.bytesOut.Add(float64(rw.bytes))

			g.logRequest(r, rw, op, status, took)
			if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(w, hr)
	})
}

// logRequest writes the one log line of a request.
func (g *Gateway) logRequest(r *request, rw *response, op, status string, took time.Duration) {
	// A line per request would cost a ranged GET a tenth of its time, so that
	// what went as it should is told at debug only.
	level := slog.LevelDebug
	switch {
	case r.err != nil && rw.status >= 500 && rw.status != http.StatusNotImplemented:
		level = slog.LevelError
	case rw.status == http.StatusForbidden:
		level = slog.LevelInfo
	}
	ctx := r.Context()
	if !g.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("request_id", r.ID), slog.String("op", op),
		slog.String("method", r.Method), slog.String("path", r.URL.EscapedPath()),
		slog.String("status", status), slog.Int64("bytes_in", r.body.n), slog.Int64("bytes_out", rw.bytes),
		slog.Duration("took", took), slog.String("remote", r.RemoteAddr))
	if r.Identity != nil {
		attrs = append(attrs, slog.String("user", r.Identity.Name), slog.String("tenant", r.Identity.Tenant))
	}
	if r.err != nil {
		attrs = append(attrs, slog.String("error", r.err.Error()))
	}
	g.log.LogAttrs(ctx, level, "request", attrs...)
}

// recover turns a panic of a handler into a 500 and keeps the server up.
func (g *Gateway) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r := requestOf(hr)
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(http.ErrAbortHandler)
			}
			g.metrics.panics.Inc()
			g.log.Error("panic", slog.String("request_id", r.ID), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			g.renderError(w, r, fmt.Errorf("panic: %v", p))
		}()
		next.ServeHTTP(w, hr)
	})
}

// authenticated finds the target and the sender of a request.
func (g *Gateway) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r := requestOf(hr)
		if err := r.parseTarget(g.domains); err != nil {
			g.renderError(w, r, err)
			return
		}
		if err := g.auth.authenticate(r); err != nil {
			g.renderError(w, r, err)
			return
		}
		release, ok := g.admit.enterTenant(r.Identity.Tenant)
		if !ok {
			g.metrics.slowDowns.Inc()
			g.renderError(w, r, slowDown("too many requests of this tenant are in flight"))
			return
		}
		defer release()
		r.in = true
		next.ServeHTTP(w, hr)
	})
}
