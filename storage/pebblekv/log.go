package pebblekv

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// What becomes of Pebble's troubles:
//
//   - The log cannot be written or flushed: the Apply calls that waited for it
//     return ErrFailed, as does every later one.
//   - A new log cannot be made, or one that has failed must be finished, or a
//     directory cannot be flushed: Pebble would panic. watchFS sees it coming
//     and calls Fatal, with a reason, before.
//   - The manifest cannot be written, or an invariant does not hold: Pebble
//     calls its logger's Fatalf from whatever goroutine it is in. That is
//     logged and becomes Fatal.
//   - A flush or compaction fails: Pebble tries it again. It is logged as an
//     error each time; nothing acknowledged is at risk, the log still has it.

func (s *Store) failure() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail makes the store refuse writes because of err and returns what to tell
// the caller. The first cause is kept.
func (s *Store) fail(cause error) error {
	err := fmt.Errorf("%w: %w", ErrFailed, cause)
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("metadata log failed, no writes until restart", "err", cause)
	}
	return s.failure()
}

func (s *Store) die(msg string) {
	_ = s.fail(fmt.Errorf("%s", msg)) // for calls that run in between
	s.log.Error("metadata store cannot go on, ending the process", "reason", msg)
	s.fatal(msg)
}

func exit(string) { os.Exit(1) }

// pebbleLogger takes what Pebble has to say. Its information is of interest to
// Pebble's developers; what matters of it comes as events.
type pebbleLogger struct{ s *Store }

func (pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.log.Error("metadata store", "msg", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.die(fmt.Sprintf(format, args...))
}

func (s *Store) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: s.backgroundError,
		DiskSlow:        func(i pebble.DiskSlowInfo) { s.log.Warn("metadata store: slow disk", "info", i.String()) },
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			s.log.Warn("metadata store: writes stalled", "reason", i.Reason)
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.log.Error("metadata store: corruption found", "info", i.String())
		},
	}
}

// backgroundError logs the 1st, 2nd, 4th, 8th... failure: Pebble tries again
// without a pause. It runs with Pebble's lock held.
func (s *Store) backgroundError(err error) {
	if n := s.background.Add(1); n&(n-1) == 0 {
		s.log.Error("metadata store: background work failed, trying again", "err", err, "times", n)
	}
}
