//go:build linux

package shm

import "github.com/objcached/objcached/transport"

var _ transport.Source = (*Transfer)(nil)

// ReadAt copies bytes of the window, which the client may be changing.
func (t *Transfer) ReadAt(p []byte, off int64) (int, error) {
	t.mu.Lock()
	win, err := t.win, t.usable()
	t.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case off < 0 || off > int64(len(win)) || int64(len(p)) > int64(len(win))-off:
		return 0, errRange
	}
	// Not under the lock: the memory stays mapped until Close, which no one
	// calls while this runs.
	return copy(p, win[off:]), nil
}
