//go:build fabric && cgo

package fabric

import (
	"os"
	"testing"
)

// victimBytes is the memory of the client that is there to be written to until
// it is killed.
const victimBytes = 64 << 20

// TestVictim is that client.
func TestVictim(t *testing.T) {
	if os.Getenv(envRole) != roleVictim {
		t.Skip("a role in other tests")
	}
	m := newMemory(t, first(), victimBytes)
	c := dialPeer(t, m)
	defer c.Close()
	_, _ = c.Read(make([]byte, 1)) // until the server is done or we are killed
}
