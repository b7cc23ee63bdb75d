// Package lowwater makes connections whose large reads sleep until enough has
// come. A reader of a body that runs at gigabytes per second is woken for every
// few tens of kilobytes otherwise, and on a machine whose cores are busy with the
// sender the wake-ups cost as much as the copying (BenchmarkReading in package
// bench).
package lowwater

import (
	"context"
	"net"
)

// Bytes is the mark of a large read: the kernel wakes the reader when so many
// bytes have come, or as many as it asked for if they are fewer, or when the
// connection ends. Of 256 KiB to 1 MiB it took the least CPU.
const Bytes = 1 << 20

// large is the least that counts as a large read. Smaller reads are of heads
// and of what a buffered reader fetches ahead: nobody knows how much is to come.
const large = 64 << 10

// Dialer wraps what dial gives, if it is a TCP connection of a system that has
// such a mark. A read of more than 64 KiB must ask for no more than is to come:
// else the bytes wait for Bytes of them or for the connection's end. Bodies of
// net/http keep to that; a TLS connection does not, it reads ahead.
func Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
}
