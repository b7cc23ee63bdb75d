package transport

// Source gives the bytes of a window in a client's memory to one transfer, the
// other way round from a Sink. Offsets count from the start of the window.
type Source interface {
	// ReadAt fills p with the bytes from off on, or returns an error, after
	// which p's content is undefined; a range outside the window is one. The
	// client may write to its memory meanwhile: what p has afterwards is all
	// that counts, and nothing may be decided by reading the same bytes again.
	// Calls may run together.
	ReadAt(p []byte, off int64) (n int, err error)
	// Close ends the transfer: nothing more is read. No other call may run. It
	// may be called more than once.
	Close() error
}
