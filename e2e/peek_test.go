package e2e

import (
	"errors"

	"golang.org/x/sys/unix"
)

// peek looks at what a socket has received and leaves it there.
func peek(fd int) (int, error) {
	var b [16]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n, err
}

func again(err error) bool { return errors.Is(err, unix.EAGAIN) }
