package checksum

import (
	"math/rand/v2"
	"testing"
)

// crcBitwise is CRC32C by its definition, one bit at a time (reflected
// polynomial 0x82f63b78), written apart from hash/crc32.
func crcBitwise(p []byte) uint32 {
	c := ^uint32(0)
	for _, b := range p {
		c ^= uint32(b)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ 0x82f63b78
			} else {
				c >>= 1
			}
		}
	}
	return ^c
}

func TestBlock(t *testing.T) {
	if got := Block([]byte("123456789")); got != 0xe3069283 {
		t.Fatalf("check value: %08x", got)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 63, 64, 1000} {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		if got, want := Block(p), crcBitwise(p); got != want {
			t.Errorf("%d bytes: %08x, want %08x", n, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	p := make([]byte, 1000)
	for i := range p {
		p[i] = byte(i * 7)
	}
	const bs = 64
	table := AppendTable(nil, p[:bs*5], bs)
	table = AppendTable(table, p[bs*5:], bs)
	if want := 4 * ((len(p) + bs - 1) / bs); len(table) != want {
		t.Fatalf("table has %d bytes, want %d", len(table), want)
	}
	for i := 0; i*bs < len(p); i++ {
		blk := p[i*bs : min((i+1)*bs, len(p))]
		if got, want := TableAt(table, int64(i)), crcBitwise(blk); got != want {
			t.Errorf("block %d: %08x, want %08x", i, got, want)
		}
	}
}
