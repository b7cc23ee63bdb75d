package client

import (
	"context"
	"time"
)

func errClosedBuffer() *Error {
	return &Error{Code: "Closed", Message: "the buffer is closed", Matched: -1}
}

func errNoTags() *Error {
	return &Error{Code: "Closed", Message: "the buffer has used up its tags: register another", Matched: -1}
}

// use takes a slot for a transfer, waiting for one if all are taken. The
// context it returns ends with ctx, with the buffer, and when the store lets go
// of the memory: a store that is gone answers no more. The caller calls done
// when it has stopped; reusable says that nothing more is written or read under
// the slot's tags, else the slot is lost.
func (b *Buffer) use(ctx context.Context) (_ context.Context, slot int, done func(reusable bool), err error) {
	select {
	case slot = <-b.slots:
	case <-ctx.Done():
		return nil, 0, nil, networkError(ctx.Err())
	case <-b.ctx.Done():
		return nil, 0, nil, errClosedBuffer()
	case <-b.mem.Gone():
		return nil, 0, nil, &Error{Code: "Closed", Message: "the store has let go of the buffer", Matched: -1}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		b.slots <- slot
		return nil, 0, nil, errClosedBuffer()
	}
	b.work.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stopped := context.AfterFunc(b.ctx, cancel)
	go func() {
		select {
		case <-b.mem.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, slot, func(reusable bool) {
		stopped()
		cancel()
		if reusable {
			b.slots <- slot
		}
		b.work.Done()
	}, nil
}

// settling bounds how long what a store has sent, as it says, may be on its way.
const settling = 10 * time.Second

// arrived waits, after the store has said that a delivery into memory is over,
// for the transport to say so too: an answer may overtake the last bytes. If
// they do not come, the memory is withdrawn.
func (b *Buffer) arrived(tag int64) *Error {
	for end := time.Now().Add(settling); time.Now().Before(end) && !b.lost(); {
		if b.mem.Wait(tag, over, waitSlice) {
			return nil
		}
	}
	b.mem.Withdraw(letGo)
	return &Error{Code: "Memory", Message: "the store has sent what has not arrived", Matched: -1}
}

// lost reports whether the store holds the memory no more.
func (b *Buffer) lost() bool {
	select {
	case <-b.mem.Gone():
		return true
	default:
		return false
	}
}

// letGo adds to what the store said, if it said anything.
func (e *Error) letGo() {
	if e.Message != "" {
		e.Message += "; "
	}
	e.Message += "the store has let go of the memory"
}

// ends reports whether an answer says that the store does no more of what was
// asked. One of a proxy that gave up does not; nor one to a tag that is used up:
// then the request came twice, by net/http's own repetition, and the first may
// be under way still.
func (e *Error) ends() bool { return e.stores && e.Field != "rdma_target.tag" }

// overSoon waits, after a request without an answer, for the store to say in
// the memory's transport that the transfer is over. Of a request that the store has
// not begun yet nothing is said: then the memory is withdrawn, so that it cannot begin.
func (b *Buffer) overSoon(tag int64) bool {
	for range 50 {
		if b.mem.Wait(tag, over, waitSlice) || b.lost() {
			return true
		}
	}
	b.mem.Withdraw(letGo)
	return false
}
