package server

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// DefaultMaxConnections is how many connections are open at one time at most.
// Clients need no credentials to open one, and each takes some 20 KiB and a
// file descriptor, which the store needs too.
const DefaultMaxConnections = 8192

// maxConnections is the bound to use where n is asked for, 0 being the
// default: no more than half of the descriptors that the process may have.
func maxConnections(n int) int64 {
	if n > 0 {
		return int64(n)
	}
	most := int64(DefaultMaxConnections)
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err == nil && r.Cur/2 < uint64(most) {
		most = max(1, int64(r.Cur/2))
	}
	return most
}

// connLimit is a listener of which at most max connections are open. Further
// ones are told so and closed: left in the listen queue they would hang.
type connLimit struct {
	*net.TCPListener
	max     int64
	open    atomic.Int64
	refused atomic.Int64
	answer  []byte // what a connection over the limit gets; nil: nothing
}

// busyAnswer is what a plain connection over the limit gets.
const busyAnswer = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/xml\r\n" +
	"Content-Length: 158\r\n\r\n" +
	`<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
	"<Error><Code>SlowDown</Code><Message>Please reduce your request rate: too many connections are open.</Message></Error>\n"

func (l *connLimit) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &limitedConn{TCPConn: c, l: l}, nil
		}
		l.open.Add(-1)
		l.refused.Add(1)
		// A new connection has room for it, so this does not wait; whether the
		// client is there to read it is its own affair.
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(l.answer)
		_ = c.Close()
	}
}

// limitedConn counts itself out when it is closed. It stays a TCPConn to those
// who ask for what only that can do.
type limitedConn struct {
	*net.TCPConn
	l    *connLimit
	once sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.l.open.Add(-1) })
	return c.TCPConn.Close()
}
