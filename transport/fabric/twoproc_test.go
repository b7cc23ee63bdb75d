//go:build fabric && cgo

package fabric

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// A test may have its client in another process, or on another machine: then
// each side runs TestTwoProcesses with its role, and the address at which the
// server takes the client's connection (it stands for the control channel).
//
//	OBJCACHED_TEST_FABRIC_ROLE=server OBJCACHED_TEST_FABRIC_PEER=10.0.0.2:7000 fabric.test -test.run TestTwoProcesses
//	OBJCACHED_TEST_FABRIC_ROLE=client OBJCACHED_TEST_FABRIC_PEER=10.0.0.2:7000 fabric.test -test.run TestTwoProcesses
const (
	envRole    = "OBJCACHED_TEST_FABRIC_ROLE"
	envPeer    = "OBJCACHED_TEST_FABRIC_PEER"
	roleServer = "server"
	roleClient = "client"
	roleVictim = "victim" // a client that is there to be killed
)

// hello is what the client says first.
type helloMsg struct{ Address Address }

// answer is what the client says of each delivery, and of the nonce.
type answer struct {
	Nonce []byte
	Error string
}

const (
	twoOffset = 4096 + 100 // of the window
	twoLayers = 4
	twoTurns  = 3
)

func twoLayerBytes() int {
	return less(3_000_001, 100_001)
}

// turn is the content of a delivery.
func turn(i int) []byte {
	b := make([]byte, twoLayers*twoLayerBytes())
	_, _ = rand.NewChaCha8([32]byte{9, byte(i)}).Read(b) // never fails
	return b
}

func TestTwoProcesses(t *testing.T) {
	switch role := os.Getenv(envRole); role {
	case roleServer:
		l, err := net.Listen("tcp", os.Getenv(envPeer))
		if err != nil {
			t.Fatal(err)
		}
		serveTwo(t, l, first())
	case roleClient:
		clientTwo(t, first())
	case "":
		everywhere(t, func(t *testing.T, cfg Config) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cmd := another(t, cfg, roleClient, l.Addr().String())
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			serveTwo(t, l, cfg)
			if err := cmd.Wait(); err != nil {
				t.Errorf("the client: %v\n%s", err, &out)
			}
		})
	default:
		t.Skipf("role %s", role)
	}
}

// another is this test binary in another role.
func another(t testing.TB, cfg Config, role, peer string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestTwoProcesses$")
	if role == roleVictim {
		cmd = exec.Command(exe, "-test.run=^TestVictim$")
	}
	cmd.Env = append(os.Environ(), envRole+"="+role, envPeer+"="+peer, envProvider+"="+cfg.Provider, envNode+"="+cfg.Node)
	return cmd
}

// serveTwo is the server's role: take the client's address, and deliver.
func serveTwo(t *testing.T, l net.Listener, cfg Config) {
	defer l.Close()
	d := newDomain(t, cfg)
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * patience))
	dec := json.NewDecoder(c)
	var h helloMsg
	if err := dec.Decode(&h); err != nil {
		t.Fatal(err)
	}
	r, err := d.Remote(h.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	nonce := sha256.Sum256([]byte("two"))
	if err := r.WriteNonce(t.Context(), nonce[:]); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := dec.Decode(&a); err != nil || !bytes.Equal(a.Nonce, nonce[:]) {
		t.Fatalf("the nonce came back as %x, %s, %v", a.Nonce, a.Error, err)
	}
	start, total := time.Now(), 0
	for i := range twoTurns {
		want := turn(i)
		tr, err := r.Open(t.Context(), Window{Offset: twoOffset, Length: int64(len(want)), Tag: int64(i * Slots), Layers: twoLayers})
		if err != nil {
			t.Fatal(err)
		}
		for l := range twoLayers {
			n := twoLayerBytes()
			if err := errors.Join(sendByTwo(tr, want, l*n, (l+1)*n), tr.LayerReady(l)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		total += len(want)
		if err := dec.Decode(&a); err != nil || a.Error != "" {
			t.Fatalf("delivery %d: %s %v", i, a.Error, err)
		}
	}
	t.Logf("%s, ordered %v: %.1f MB/s with every byte checked", d.Provider(), d.Ordered(), float64(total)/1e6/time.Since(start).Seconds())
}

// sendByTwo writes want[lo:hi) by two workers, slice by slice.
func sendByTwo(tr *Transfer, want []byte, lo, hi int) error {
	const slice = 16 << 10
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for w := range errs {
		mid := lo + (hi-lo)/2
		from, to := lo, mid
		if w == 1 {
			from, to = mid, hi
		}
		wg.Go(func() { errs[w] = send(tr, want, from, to, slice) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// send writes want[lo:hi), most bytes at a time, to the same place of the window.
func send(tr *Transfer, want []byte, lo, hi, most int) error {
	for lo < hi {
		p, err := tr.Grab(int64(lo), min(most, hi-lo))
		if err != nil {
			return err
		}
		n := copy(p, want[lo:])
		if err := tr.Commit(int64(lo), n); err != nil {
			return err
		}
		lo += n
	}
	return nil
}

// dialPeer connects to the server and says where the memory is.
func dialPeer(t *testing.T, m *Memory) net.Conn {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", os.Getenv(envPeer), 5*time.Second)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(5 * patience))
			if err := json.NewEncoder(c).Encode(helloMsg{m.Address()}); err != nil {
				t.Fatal(err)
			}
			return c
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// clientTwo is the client's role: check every layer when it is ready, and
// everything outside the window in the end.
func clientTwo(t *testing.T, cfg Config) {
	n := twoLayerBytes()
	m := newMemory(t, cfg, int64(twoOffset+twoLayers*n+PageSize))
	c := dialPeer(t, m)
	defer c.Close()
	enc := json.NewEncoder(c)
	a := answer{}
	if !m.AwaitNonce(patience) {
		a.Error = "no nonce"
	}
	a.Nonce = m.Nonce()
	if err := enc.Encode(a); err != nil {
		t.Fatal(err)
	}
	clear(m.Bytes()[:NonceBytes])
	for i := range twoTurns {
		a := answer{}
		if err := checkTurn(m, i); err != nil {
			a.Error = err.Error()
			t.Error(err)
		}
		if err := enc.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
}

func checkTurn(m *Memory, i int) error {
	want, n, tag := turn(i), twoLayerBytes(), int64(i*Slots)
	win := m.Bytes()[twoOffset:]
	for l := range twoLayers {
		if !m.Wait(tag, l, patience) {
			return fmt.Errorf("delivery %d: no layer %d", i, l)
		}
		if !bytes.Equal(win[l*n:(l+1)*n], want[l*n:(l+1)*n]) {
			return fmt.Errorf("delivery %d: layer %d is announced and not there", i, l)
		}
	}
	if !m.Wait(tag, Over, patience) {
		return fmt.Errorf("delivery %d has no end", i)
	}
	for k, c := range m.Bytes() {
		if c != 0 && (k < twoOffset || k >= twoOffset+len(want)) {
			return fmt.Errorf("byte %d outside the window was written", k)
		}
	}
	return nil
}
