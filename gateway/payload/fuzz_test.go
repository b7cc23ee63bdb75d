package payload

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"testing/iotest"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/gateway/sigv4"
)

var (
	refHeader  = regexp.MustCompile(`^([0-9a-fA-F]{1,15})\r\n`)
	refTrailer = regexp.MustCompile(`^(?:(?i:x-amz-checksum-crc32):([^\n]*)\n)?(?:\r?\n){1,16}$`)
)

// reference decodes an unsigned aws-chunked body with a CRC32 trailer that is
// whole in memory.
func reference(raw []byte, size int) (data []byte, ok bool) {
	for {
		m := refHeader.FindSubmatch(raw)
		if m == nil {
			return nil, false
		}
		n, err := strconv.ParseInt(string(m[1]), 16, 64)
		if err != nil {
			return nil, false
		}
		raw = raw[len(m[0]):]
		if n == 0 {
			break
		}
		if int64(len(raw)) < n+2 || int64(len(data))+n > int64(size) || string(raw[n:n+2]) != "\r\n" {
			return nil, false
		}
		data = append(data, raw[:n]...)
		raw = raw[n+2:]
	}
	m := refTrailer.FindSubmatch(raw)
	if m == nil || m[1] == nil || bytes.Count(raw, []byte("\n")) > maxTrailer {
		return nil, false
	}
	for _, l := range bytes.SplitAfter(raw, []byte("\n")) {
		if len(l) > maxLine {
			return nil, false
		}
	}
	return data, len(data) == size && string(bytes.TrimSpace(m[1])) == sumOf(checksum.CRC32, data)
}

// FuzzChunked decodes anything and compares with a decoder that sees the whole.
func FuzzChunked(f *testing.F) {
	for _, n := range []int{0, 1, 9, 300} {
		data := random(n, uint64(n))
		t := "x-amz-checksum-crc32:" + sumOf(checksum.CRC32, data)
		f.Add(chunked(data, []int{1, 5, 100}, "", t), uint16(n), byte(n))
		f.Add(bytes.Replace(chunked(data, []int{100}, "", t), []byte("\r\n\r\n"), []byte("\n\r\n\r\n"), 1), uint16(n), byte(1))
	}
	f.Add([]byte("9\r\nsome data\r\n0\r\n\r\n"), uint16(9), byte(0))
	f.Add([]byte("fffffffffffffff\r\n"), uint16(9), byte(3))
	f.Fuzz(func(t *testing.T, raw []byte, size uint16, step byte) {
		r := &http.Request{Header: http.Header{
			"X-Amz-Trailer": {"x-amz-checksum-crc32"}, "X-Amz-Decoded-Content-Length": {strconv.Itoa(int(size))},
		}, ContentLength: int64(len(raw))}
		var src io.Reader = bytes.NewReader(raw)
		switch step % 3 {
		case 1:
			src = iotest.OneByteReader(src)
		case 2:
			src = iotest.DataErrReader(src)
		}
		r.Body = io.NopCloser(src)
		b, err := New(r, &sigv4.Result{Anonymous: true, Payload: sigv4.PayloadUnsignedTrailer}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readBy(b, int(step)+1)
		want, ok := reference(raw, int(size))
		if ok != (err == nil) {
			t.Fatalf("%v, but the reference says %v", err, ok)
		}
		if ok && (!bytes.Equal(got, want) || b.Sum().Value != sumOf(checksum.CRC32, want)) {
			t.Fatalf("%q, the reference says %q", got, want)
		}
	})
}

// FuzzSignedChunks signs a body, changes some of it, and expects a failure or
// the very data that were signed.
func FuzzSignedChunks(f *testing.F) {
	f.Add([]byte("some data"), uint64(1), uint16(0), []byte{}, uint16(0))
	f.Add([]byte("some data"), uint64(2), uint16(90), []byte("x"), uint16(1))
	f.Add([]byte(""), uint64(3), uint16(3), []byte("\r\n"), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, cuts uint64, at uint16, insert []byte, remove uint16) {
		u := forms(data, checksum.CRC64NVME)[4]
		r, seed := put(u.headers)
		rng := rand.New(rand.NewPCG(cuts, 0))
		var sizes []int
		for range 5 {
			sizes = append(sizes, 1+rng.IntN(len(data)+1))
		}
		raw := chunked(data, sizes, seed, "x-amz-checksum-crc64nvme:"+sumOf(checksum.CRC64NVME, data))
		i := int(at) % (len(raw) + 1)
		j := min(i+int(remove), len(raw))
		bad := append(append(bytes.Clone(raw[:i]), insert...), raw[j:]...)
		b, err := open(t, r, bad, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readBy(b, 1+rng.IntN(5000))
		if err == nil && !bytes.Equal(got, data) {
			t.Fatalf("signed %q, read %q", data, got)
		}
		if err != nil && bytes.Equal(bad, raw) {
			t.Fatal(err)
		}
	})
}
