package lowwater

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is a net.Conn for one reader at a time.
type conn struct {
	*net.TCPConn
	raw  syscall.RawConn
	mark int // in force; 0: setting it failed, and is not tried again
	want int
	set  func(fd uintptr) // sets want; made once, for it is called on the read path
}

func wrap(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return c
	}
	w := &conn{TCPConn: t, raw: raw, mark: 1}
	w.set = func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, w.want) == nil {
			w.mark = w.want
		} else if w.mark == 1 {
			w.mark = 0
		}
	}
	return w
}

func (c *conn) Read(p []byte) (int, error) {
	c.want = 1
	if len(p) > large {
		c.want = min(len(p), Bytes)
	}
	if c.want != c.mark && c.mark != 0 {
		// A connection that is closed says so in Read.
		_ = c.raw.Control(c.set)
	}
	return c.TCPConn.Read(p)
}
