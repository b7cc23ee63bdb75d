//go:build fabric && cgo

package fabric

import "context"

// probeAt is the offset in a region, after its length, of bytes that mean nothing.
const probeAt = ControlBytes - cellBytes

// Probe writes bytes that mean nothing to the client and returns when they have
// completed. A client that is gone shows in no other way as long as there is
// nothing to write to it: then it fails, and so does one that takes nothing for
// Config.Stall, and Gone is closed.
func (r *Remote) Probe(ctx context.Context) error {
	return r.writeSmall(ctx, &write{n: cellBytes, off: r.addr.Length + probeAt})
}

// writeSmall queues a write of a few bytes and waits for its completion.
func (r *Remote) writeSmall(ctx context.Context, w *write) error {
	done := make(chan error, 1)
	w.done = done
	r.d.mu.Lock()
	if err := r.err; err != nil {
		r.d.mu.Unlock()
		return err
	}
	r.push(w)
	r.d.advance()
	r.d.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
