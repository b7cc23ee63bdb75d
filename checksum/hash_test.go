package checksum

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func seq(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// The check values of the CRC catalogue, RFC 3720 B.4 (CRC32C), the NVM
// Express specification (CRC64NVME) and FIPS 180.
func TestPublishedVectors(t *testing.T) {
	for _, c := range []struct {
		alg  Algorithm
		in   []byte
		want string
	}{
		{CRC32, []byte("123456789"), "cbf43926"},
		{CRC32, nil, "00000000"},
		{CRC32C, []byte("123456789"), "e3069283"},
		{CRC32C, make([]byte, 32), "8a9136aa"},
		{CRC32C, bytes.Repeat([]byte{0xff}, 32), "62a8ab43"},
		{CRC32C, seq(32), "46dd794e"},
		{CRC64NVME, []byte("123456789"), "ae8b14860a799888"},
		{CRC64NVME, make([]byte, 4096), "6482d367eb22b64e"},
		{CRC64NVME, bytes.Repeat([]byte{0xff}, 4096), "c0ddba7302eca3ac"},
		{SHA1, []byte("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d"},
		{SHA1, nil, "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		{SHA256, []byte("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{SHA256, nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	} {
		h := New(c.alg)
		for i := range c.in { // byte by byte: streaming must not matter
			h.Write(c.in[i : i+1])
		}
		raw, err := hex.DecodeString(c.want)
		if err != nil {
			t.Fatal(err)
		}
		want := Sum{c.alg, FullObject, base64.StdEncoding.EncodeToString(raw)}
		if got := Of(c.alg, h); got != want {
			t.Errorf("%s of %d bytes: %v, want %v", c.alg, len(c.in), got, want)
		}
		if h.Size() != c.alg.Size() {
			t.Errorf("%s: Size %d, hash says %d", c.alg, c.alg.Size(), h.Size())
		}
		if got, err := Decode(c.alg, want.Value); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("Decode(%s, %s) = %x, %v", c.alg, want.Value, got, err)
		}
	}
	if New(None) != nil || New("MD5") != nil {
		t.Error("New must not know algorithms that S3 does not have")
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		alg   Algorithm
		value string
	}{
		{CRC32, ""}, {CRC32, "AAAAAA="}, {CRC32, "AAAAAA"}, {CRC32, "AAAAAAA="}, {CRC32, "AAAAAAAA"},
		{CRC32, "AAAAAB=="}, // stray bits after the last byte
		{CRC32, "AAAA\nA=="}, {CRC32, "AAA-AA=="}, {CRC32, "AAAAAA==-2"},
		{CRC64NVME, "AAAAAA=="}, {SHA1, "AAAAAA=="}, {None, ""}, {"MD5", "AAAAAA=="},
	} {
		_, err := Decode(c.alg, c.value)
		var ve *ValueError
		if !errors.As(err, &ve) || Valid(c.alg, c.value) {
			t.Errorf("Decode(%q, %q) = %v, want a ValueError", c.alg, c.value, err)
		}
	}
}

func direct(a Algorithm, b []byte) string {
	h := New(a)
	h.Write(b)
	return Of(a, h).Value
}

func TestCombineMatchesDirect(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 1<<17)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for _, a := range []Algorithm{CRC32, CRC32C, CRC64NVME} {
		for range 200 {
			b := data[:rng.IntN(1<<rng.IntN(18))]
			cut := 0
			if len(b) > 0 {
				cut = rng.IntN(len(b) + 1)
			}
			got, err := Combine(a, direct(a, b[:cut]), direct(a, b[cut:]), int64(len(b)-cut))
			if want := direct(a, b); err != nil || got != want {
				t.Fatalf("%s of %d bytes cut at %d: %s, %v; want %s", a, len(b), cut, got, err, want)
			}
			c, err := NewCombiner(a)
			if err != nil {
				t.Fatal(err)
			}
			step := 1 + rng.IntN(len(b)/2+1)
			for rest := b; len(rest) > 0; {
				n := min(step, len(rest))
				if rng.IntN(4) == 0 {
					n = rng.IntN(n + 1) // odd and empty parts in between
				}
				if err := c.Add(direct(a, rest[:n]), int64(n)); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if got, want := c.Sum(), (Sum{a, FullObject, direct(a, b)}); got != want {
				t.Fatalf("%s of %d bytes in steps of %d: %v, want %v", a, len(b), step, got, want)
			}
		}
	}
}

// A length beyond what can be hashed here: appending n zero bytes twice must
// equal appending 2n once, up to the top of int64.
func TestCombineHugeLengths(t *testing.T) {
	for _, a := range []Algorithm{CRC32, CRC32C, CRC64NVME} {
		f := fields()[a]
		for n := int64(1); n > 0 && n<<1 > 0; n = n<<1 | 1 {
			once, twice := f.shift(2*n), f.mul(f.shift(n), f.shift(n))
			if once != twice {
				t.Fatalf("%s: x^(16*%d) is %x by one way and %x by the other", a, n, once, twice)
			}
		}
	}
}

func TestCombineRefuses(t *testing.T) {
	for _, a := range []Algorithm{SHA1, SHA256, None} {
		if _, err := NewCombiner(a); err == nil {
			t.Errorf("NewCombiner(%q) must fail", a)
		}
	}
	ok := direct(CRC32, nil)
	if _, err := Combine(CRC32, "x", ok, 0); err == nil {
		t.Error("bad first value taken")
	}
	if _, err := Combine(CRC32, ok, "x", 0); err == nil {
		t.Error("bad second value taken")
	}
	if _, err := Combine(CRC32, ok, ok, -1); err == nil {
		t.Error("negative length taken")
	}
}

func TestComposite(t *testing.T) {
	parts := [][]byte{[]byte("one"), []byte("two"), {}}
	for _, a := range Algorithms {
		c, err := NewCompositor(a)
		if err != nil {
			t.Fatal(err)
		}
		var raws []byte
		for _, p := range parts {
			h := New(a)
			h.Write(p)
			raws = h.Sum(raws)
			if err := c.Add(direct(a, p)); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := c.Sum(), (Sum{a, Composite, direct(a, raws) + "-3"}); got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
		if err := c.Add("?"); err == nil {
			t.Errorf("%s: bad part value taken", a)
		}
	}
	if _, err := NewCompositor(None); err == nil {
		t.Error("NewCompositor(None) must fail")
	}
}

func TestHeaderNames(t *testing.T) {
	for _, a := range Algorithms {
		if want := "x-amz-checksum-" + strings.ToLower(string(a)); strings.ToLower(a.Header()) != want {
			t.Errorf("%s: header %s, want %s", a, a.Header(), want)
		}
		if FromHeaderName(strings.ToLower(a.Header())) != a {
			t.Errorf("%s is not found by its header", a)
		}
		if a.Element() != "Checksum"+string(a) {
			t.Errorf("%s: element %s", a, a.Element())
		}
		if p, ok := Parse(strings.ToLower(string(a))); !ok || p != a {
			t.Errorf("Parse(%s) = %s, %v", strings.ToLower(string(a)), p, ok)
		}
	}
	if None.Header() != "" || None.Element() != "" || FromHeaderName("") != None || FromHeaderName("X-Amz-Checksum-Md5") != None {
		t.Error("None must have no name")
	}
}

func BenchmarkCombiner(b *testing.B) {
	v := direct(CRC64NVME, []byte("x"))
	c, err := NewCombiner(CRC64NVME)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Add(v, 8<<20); err != nil {
			b.Fatal(err)
		}
	}
}
