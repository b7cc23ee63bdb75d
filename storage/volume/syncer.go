package volume

import (
	"io/fs"
	"sync"
	"sync/atomic"
)

// syncer shares flushes of one file. A caller is served by a round that
// starts after its request, because one already under way may have passed its
// pages by. One round runs at a time; who comes meanwhile shares the next.
type syncer struct {
	flush func() error

	mu      sync.Mutex
	running bool
	stopped bool
	next    *round         // not started, nil if nobody waits
	idle    sync.WaitGroup // the goroutine that runs rounds

	// failed is set, once, by the first flush that fails. Every later request
	// fails with it and no flush is tried again: the kernel reports a lost
	// write once and may forget the page, so a second flush could succeed
	// over bytes that are nowhere.
	failed atomic.Pointer[error]
}

// round is one flush. err may be read after done is closed.
type round struct {
	done chan struct{}
	err  error
}

func (s *syncer) poisoned() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// request returns a round that starts after the call. onFail runs, before
// anybody is told, if the round it starts is the one that fails.
func (s *syncer) request(onFail func()) *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return endedRound(fs.ErrClosed)
	}
	if err := s.poisoned(); err != nil {
		return endedRound(err)
	}
	if s.next == nil {
		s.next = &round{done: make(chan struct{})}
	}
	r := s.next
	if !s.running {
		s.running = true
		s.idle.Add(1)
		go s.run(onFail)
	}
	return r
}

func endedRound(err error) *round {
	r := &round{done: make(chan struct{}), err: err}
	close(r.done)
	return r
}

// run flushes until nobody waits. A goroutine of its own, rather than the
// first caller, so that a caller may give up at any time.
func (s *syncer) run(onFail func()) {
	defer s.idle.Done()
	for {
		s.mu.Lock()
		r := s.next
		s.next = nil
		if r == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()

		r.err = s.poisoned() // of the round before this one
		if r.err == nil {
			if err := s.flush(); err != nil {
				r.err = &poisonError{err}
				s.failed.Store(&r.err)
				onFail()
			}
		}
		close(r.done)
	}
}

// stop lets the rounds asked for end and fails later requests.
func (s *syncer) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.idle.Wait()
}

// poisonError is ErrPoisoned with its cause.
type poisonError struct{ cause error }

func (e *poisonError) Error() string   { return ErrPoisoned.Error() + ": " + e.cause.Error() }
func (e *poisonError) Unwrap() []error { return []error{ErrPoisoned, e.cause} }
