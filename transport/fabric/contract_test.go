//go:build fabric && cgo

package fabric

import (
	"crypto/sha256"
	"testing"

	"github.com/objcached/objcached/transport/transporttest"
)

// TestContract runs the contract with canaries on both sides of the window.
func TestContract(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		const before, after = 1000, 3000
		cfg.WriteBytes = 64 << 10
		d := newDomain(t, cfg)
		transporttest.Run(t, func(t *testing.T, size int) transporttest.Target {
			m, r := connect(t, d, int64(before+size+after))
			for i := range m.Bytes() {
				m.Bytes()[i] = 0xc5
			}
			clear(m.Bytes()[before : before+size])
			tr, err := r.Open(t.Context(), Window{Offset: before, Length: int64(size), Tag: 7, Layers: MaxLayers})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
				if !m.Wait(7, Over, patience) {
					t.Error("the client is not told of the end")
				}
				for i, c := range m.Bytes() {
					if (i < before || i >= before+size) && c != 0xc5 {
						t.Errorf("byte %d outside the window was written", i)
						break
					}
				}
			})
			return transporttest.Target{Sink: tr,
				Seen: func() []byte { return m.Bytes()[before : before+size] },
				Ready: func() []int {
					var out []int
					for l := range MaxLayers {
						if m.Wait(7, l, 0) {
							out = append(out, l)
						}
					}
					return out
				},
				Await: func(layer int) {
					if !m.Wait(7, layer, patience) {
						t.Fatalf("the client is not told of layer %d", layer)
					}
				},
			}
		})
	})
}

// TestNonce: a server proves that the memory is the caller's.
func TestNonce(t *testing.T) {
	everywhere(t, func(t *testing.T, cfg Config) {
		d := newDomain(t, cfg)
		m, r := connect(t, d, 1)
		if m.AwaitNonce(0) {
			t.Error("a nonce before one was written")
		}
		nonce := sha256.Sum256([]byte("nonce"))
		if err := r.WriteNonce(t.Context(), nonce[:]); err != nil {
			t.Fatal(err)
		}
		if !m.AwaitNonce(patience) {
			t.Fatal("the client is not told of the nonce")
		}
		if got := m.Nonce(); string(got) != string(nonce[:]) {
			t.Errorf("the nonce is %x, want %x", got, nonce)
		}
	})
}
