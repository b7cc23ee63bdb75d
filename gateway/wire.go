package gateway

import (
	"io"
	"net/http"
	"time"
)

// pieceSize is how much of an object is read and written at a time: a
// multiple of the block size, small enough to stay in cache and to make a
// write's deadline mean a sensible rate.
const pieceSize = 256 << 10

// maxWrite is the most that one write deadline covers.
const maxWrite = 1 << 20

// response counts what is sent and gives every write a deadline of its own, so
// that a client that stops reading is dropped and everything held for it is
// freed. It has no ReadFrom on purpose: bodies are written from memory that
// has been verified.
type response struct {
	http.ResponseWriter
	rc     *http.ResponseController
	stall  time.Duration
	status int
	bytes  int64
}

func newResponse(w http.ResponseWriter, stall time.Duration) *response {
	rw := &response{ResponseWriter: w, rc: http.NewResponseController(w), stall: stall}
	// The deadline of the last answer on this connection is still in force.
	rw.extend()
	return rw
}

// responseOf returns the wrapper that the first middleware made.
func responseOf(w http.ResponseWriter) *response { return w.(*response) }

// extend renews the write deadline. A writer that has none (a test recorder)
// cannot stall either, so the error says nothing.
func (w *response) extend() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.stall)) }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	done := 0
	for {
		piece := p[done:min(len(p), done+maxWrite)]
		w.extend()
		n, err := w.ResponseWriter.Write(piece)
		done += n
		w.bytes += int64(n)
		if err != nil || done == len(p) {
			return done, err
		}
	}
}

// Flush sends what is buffered.
func (w *response) Flush() {
	w.extend()
	_ = w.rc.Flush() // a broken connection shows at the next write
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// progress is how much a sender must deliver within one stall timeout. Renewing
// the deadline by bytes and not by reads also cuts off one who drips.
const progress = 16 << 10

// stallReader is a request body whose sender must keep sending.
type stallReader struct {
	io.ReadCloser
	rc    *http.ResponseController
	stall time.Duration
	n     int64 // bytes read
	since int64 // bytes read since the deadline was set
	open  bool  // the body has not ended
	fault bool  // reading it failed
	waste bool  // the rest is read only to be dropped
}

func newStallReader(body io.ReadCloser, rc *http.ResponseController, stall time.Duration, open bool) *stallReader {
	s := &stallReader{ReadCloser: body, rc: rc, stall: stall, open: open}
	s.extend()
	return s
}

// extend sets the read deadline while there is a body to come, and lifts it
// when there is none: the server goes on reading in the background to notice
// a client that leaves, and that read must not time out.
func (s *stallReader) extend() {
	var t time.Time
	if s.open {
		t = time.Now().Add(s.stall)
	}
	s.since = 0
	_ = s.rc.SetReadDeadline(t) // a test recorder has no deadline and no stall
}

func (s *stallReader) Read(p []byte) (int, error) {
	if !s.waste && (s.n == 0 || s.since >= progress) {
		s.extend()
	}
	n, err := s.ReadCloser.Read(p)
	s.n += int64(n)
	s.since += int64(n)
	if err != nil {
		s.open = s.open && err != io.EOF
		s.fault = err != io.EOF
		s.extend()
	}
	return n, err
}

// finish is called when the handler has returned: what is left of the body is
// discarded by the server, under a deadline too.
func (s *stallReader) finish() {
	if s.open {
		s.extend()
	}
}

// maxDrain is how much of a refused body is read and dropped, in bytes.
const maxDrain = 16 << 20

// drain takes what is left of the body of a request that failed, up to a
// limit: a client that is still writing when the connection is closed sees a
// reset and not the answer. A client that waits for 100 Continue sends nothing.
// All of it gets one stall timeout: who drips must not keep a place for hours.
func (s *stallReader) drain(expect bool) {
	if !s.open || s.fault || expect && s.n == 0 {
		return
	}
	s.extend()
	s.waste = true
	_, _ = io.CopyN(io.Discard, s, maxDrain) // the answer goes out either way
}
