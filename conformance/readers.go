package conformance

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
)

// countingReader gives left zero bytes and counts what was taken.
type countingReader struct {
	left int
	read atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	clear(p[:n])
	c.left -= n
	c.read.Add(int64(n))
	return n, nil
}

func (c *countingReader) Close() error { return nil }

var errBroken = errors.New("the sender broke off")

// brokenReader gives left zero bytes and then fails, which breaks the connection.
type brokenReader struct{ left int }

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	n := min(len(p), b.left)
	clear(p[:n])
	b.left -= n
	return n, nil
}

func (b *brokenReader) Close() error { return nil }

func bodyOf(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
