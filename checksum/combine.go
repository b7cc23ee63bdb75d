package checksum

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"strconv"
	"sync"

	"github.com/minio/crc64nvme"
)

// A CRC of A followed by B is crc(A) multiplied by x^(8*len(B)) modulo the
// polynomial, plus crc(B). Init and final inversions cancel out because they
// are the same (all ones) for the three CRCs of S3. Polynomials are kept bit
// reflected: the highest bit of the word is the coefficient of x^0.

// field is arithmetic modulo one reflected CRC polynomial.
type field struct {
	poly uint64
	one  uint64 // x^0: the highest bit of the CRC
	pow  [66]uint64
}

// newField computes x^(2^i) for all i that a length in bytes can need: 63 bits
// of an int64, times 8 bits.
func newField(poly uint64, bits int) *field {
	f := &field{poly: poly, one: 1 << (bits - 1)}
	p := f.one >> 1 // x^1
	for i := range f.pow {
		f.pow[i] = p
		p = f.mul(p, p)
	}
	return f
}

// mul is a*b modulo the polynomial.
func (f *field) mul(a, b uint64) uint64 {
	var p uint64
	for m := f.one; a != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
			a ^= m
		}
		if b&1 != 0 {
			b = b>>1 ^ f.poly
		} else {
			b >>= 1
		}
	}
	return p
}

// shift is x^(8*n).
func (f *field) shift(n int64) uint64 {
	p := f.one
	for i := 3; n > 0; n, i = n>>1, i+1 {
		if n&1 != 0 {
			p = f.mul(p, f.pow[i])
		}
	}
	return p
}

var fields = sync.OnceValue(func() map[Algorithm]*field {
	return map[Algorithm]*field{
		CRC32:     newField(crc32.IEEE, 32),
		CRC32C:    newField(crc32.Castagnoli, 32),
		CRC64NVME: newField(crc64nvme.NVME, 64),
	}
})

// Combiner makes the CRC of a whole out of the CRCs of its consecutive parts.
// It is for one goroutine.
type Combiner struct {
	alg     Algorithm
	f       *field
	crc     uint64
	lastLen int64 // parts are mostly of one size: keep its factor
	lastMul uint64
}

// NewCombiner starts with the CRC of nothing. It fails for an algorithm that
// is no CRC.
func NewCombiner(a Algorithm) (*Combiner, error) {
	f := fields()[a]
	if f == nil {
		return nil, fmt.Errorf("checksums of type %q do not combine", a)
	}
	return &Combiner{alg: a, f: f, lastMul: f.one}, nil
}

// Add appends a part: its CRC in base64 and its length in bytes.
func (c *Combiner) Add(value string, n int64) error {
	raw, err := Decode(c.alg, value)
	if err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("part of negative length %d", n)
	}
	if n != c.lastLen {
		c.lastLen, c.lastMul = n, c.f.shift(n)
	}
	c.crc = c.f.mul(c.crc, c.lastMul) ^ number(raw)
	return nil
}

// Sum is the full-object checksum of the parts added so far.
func (c *Combiner) Sum() Sum {
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], c.crc)
	return Sum{Algorithm: c.alg, Type: FullObject, Value: Encode(buf[8-c.alg.Size():])}
}

func number(raw []byte) uint64 {
	if len(raw) == 4 {
		return uint64(binary.BigEndian.Uint32(raw))
	}
	return binary.BigEndian.Uint64(raw)
}

// Combine is the CRC of A followed by B, from both CRCs in base64 and B's
// length in bytes.
func Combine(a Algorithm, crcA, crcB string, lenB int64) (string, error) {
	c, err := NewCombiner(a)
	if err != nil {
		return "", err
	}
	if err := c.Add(crcA, 0); err != nil {
		return "", err
	}
	if err := c.Add(crcB, lenB); err != nil {
		return "", err
	}
	return c.Sum().Value, nil
}

// Compositor makes a composite checksum: the hash of the parts' raw
// checksums, then a dash and their number. It is for one goroutine.
type Compositor struct {
	alg   Algorithm
	h     hash.Hash
	parts int
}

// NewCompositor fails for an unknown algorithm.
func NewCompositor(a Algorithm) (*Compositor, error) {
	h := New(a)
	if h == nil {
		return nil, fmt.Errorf("unknown checksum algorithm %q", a)
	}
	return &Compositor{alg: a, h: h}, nil
}

// Add appends a part's checksum in base64.
func (c *Compositor) Add(value string) error {
	raw, err := Decode(c.alg, value)
	if err != nil {
		return err
	}
	c.h.Write(raw)
	c.parts++
	return nil
}

// Sum is the composite checksum of the parts added so far.
func (c *Compositor) Sum() Sum {
	s := Of(c.alg, c.h)
	s.Type = Composite
	s.Value += "-" + strconv.Itoa(c.parts)
	return s
}
