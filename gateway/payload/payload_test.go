package payload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/objcached/objcached/checksum"
)

// readBy reads b to its end in pieces of n bytes.
func readBy(b *Body, n int) ([]byte, error) {
	var out []byte
	p := make([]byte, n)
	for {
		m, err := b.Read(p)
		out = append(out, p[:m]...)
		if err != nil {
			if _, again := b.Read(p); again != err {
				return out, fmt.Errorf("error %v, then %v", err, again)
			}
			if err == io.EOF {
				err = nil
			}
			return out, err
		}
	}
}

func TestAllForms(t *testing.T) {
	wraps := map[string]func(io.Reader) io.Reader{
		"whole": nil, "one byte": iotest.OneByteReader, "half": iotest.HalfReader, "error with data": iotest.DataErrReader,
	}
	for _, size := range []int{0, 1, 2, 4096, 8193, 65536, 200_001} {
		data := random(size, uint64(size))
		for i, a := range checksum.Algorithms {
			if size > 5000 && i > 0 {
				continue
			}
			for _, u := range forms(data, a) {
				for wname, w := range wraps {
					for _, step := range []int{1, 7, 4096, 1 << 20} {
						if step < 100 && size > 5000 {
							continue
						}
						b, _, err := u.open(t, w, Options{MaxSize: int64(size)})
						label := fmt.Sprintf("%s, %s, %d bytes, %s, reads of %d", u.name, a, size, wname, step)
						if err != nil {
							t.Fatalf("%s: %v", label, err)
						}
						if b.Size() != int64(size) || !b.Sum().IsZero() {
							t.Fatalf("%s: Size %d, Sum %v before the end", label, b.Size(), b.Sum())
						}
						got, err := readBy(b, step)
						if err != nil || !bytes.Equal(got, data) {
							t.Fatalf("%s: %d bytes, %v", label, len(got), err)
						}
						if want := (checksum.Sum{Algorithm: a, Type: checksum.FullObject, Value: sumOf(a, data)}); b.Sum() != want {
							t.Fatalf("%s: Sum %v, want %v", label, b.Sum(), want)
						}
					}
				}
				b, _, err := u.open(t, nil, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := b.ReadAll(int64(size)); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%s: ReadAll gives %d bytes, %v", u.name, len(got), err)
				}
			}
		}
	}
}

func TestNoChecksum(t *testing.T) {
	data := random(100, 1)
	for _, u := range forms(data, checksum.CRC32) {
		if strings.Contains(u.name, "trailer") {
			continue
		}
		delete(u.headers, "x-amz-checksum-crc32")
		b, _, err := u.open(t, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readBy(b, 64); err != nil || !bytes.Equal(got, data) || !b.Sum().IsZero() {
			t.Errorf("%s: %v, %v", u.name, err, b.Sum())
		}
	}
}

// Every way of cutting a body short fails, and so does every wrong byte that
// would change the data.
func TestCutAndChanged(t *testing.T) {
	data := random(300, 2)
	for _, u := range forms(data, checksum.CRC32C) {
		_, raw, err := u.open(t, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := put(u.headers)
		for cut := range raw {
			b, err := open(t, r, raw[:cut], nil, Options{})
			if err != nil {
				t.Fatal(err)
			}
			// As a server reads it: the announced length is the whole.
			b2, err := open(t, r, raw[:cut], func(rd io.Reader) io.Reader {
				return io.MultiReader(rd, iotest.ErrReader(io.ErrUnexpectedEOF))
			}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !b.kind.Streaming() {
				b.size, b.left = int64(len(raw)), int64(len(raw))
				b2.size, b2.left = b.size, b.left
			}
			_, err = readBy(b, 100)
			_, err2 := readBy(b2, 100)
			if code(err) != "IncompleteBody" || code(err2) != "IncompleteBody" {
				t.Fatalf("%s, cut to %d of %d bytes: %v and %v", u.name, cut, len(raw), err, err2)
			}
			if !b.Sum().IsZero() {
				t.Fatalf("%s: a sum in spite of %v", u.name, err)
			}
		}
		for i := range raw {
			for _, x := range []byte{1, 0x20} {
				bad := bytes.Clone(raw)
				bad[i] ^= x
				b, err := open(t, r, bad, nil, Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := readBy(b, 100)
				if err == nil && !bytes.Equal(got, data) {
					t.Fatalf("%s: byte %d changed by %#x, and other data pass", u.name, i, x)
				}
				var e *Error
				if err != nil && !errors.As(err, &e) {
					t.Fatalf("%s: byte %d changed by %#x: %v is no *Error", u.name, i, x, err)
				}
			}
		}
	}
}

// A connection's error comes through as it is, wherever it strikes.
func TestConnectionErrors(t *testing.T) {
	broken := errors.New("connection reset")
	data := random(300, 3)
	for _, u := range forms(data, checksum.SHA1) {
		r, seed := put(u.headers)
		raw := u.body(seed)
		for k := range raw {
			b, err := open(t, r, raw, func(rd io.Reader) io.Reader {
				return io.MultiReader(io.LimitReader(rd, int64(k)), iotest.ErrReader(broken))
			}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readBy(b, 50); !errors.Is(err, broken) {
				t.Fatalf("%s, broken after %d bytes: %v", u.name, k, err)
			}
		}
	}
}

func TestRefusedHeaders(t *testing.T) {
	data := []byte("data")
	crc := sumOf(checksum.CRC32, data)
	const unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	for _, c := range []struct {
		name   string
		h      map[string]string
		o      Options
		length int64
		code   string
		header string
	}{
		{"no length", map[string]string{}, Options{}, -1, "MissingContentLength", ""},
		{"too large", map[string]string{}, Options{MaxSize: 3}, 4, "EntityTooLarge", ""},
		{"no decoded length", map[string]string{"x-amz-content-sha256": unsignedTrailer}, Options{}, 4, "MissingContentLength", "x-amz-decoded-content-length"},
		{"negative decoded length", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "-1"}, Options{}, 4, "InvalidRequest", "x-amz-decoded-content-length"},
		{"odd decoded length", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "0x4"}, Options{}, 4, "InvalidRequest", "x-amz-decoded-content-length"},
		{"huge decoded length", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "9223372036854775808"}, Options{}, 4, "InvalidRequest", "x-amz-decoded-content-length"},
		{"decoded too large", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "5"}, Options{MaxSize: 4}, 4, "EntityTooLarge", ""},
		{"short md5", map[string]string{"content-md5": "AAAA"}, Options{}, 4, "InvalidDigest", "content-md5"},
		{"no md5", map[string]string{"content-md5": "?"}, Options{}, 4, "InvalidDigest", "content-md5"},
		{"bad checksum value", map[string]string{"x-amz-checksum-crc32": "?"}, Options{}, 4, "InvalidRequest", "x-amz-checksum-crc32"},
		{"two checksums", map[string]string{"x-amz-checksum-crc32": crc, "x-amz-checksum-crc32c": crc}, Options{}, 4, "InvalidRequest", "any"},
		{"unknown checksum", map[string]string{"x-amz-checksum-xxhash64": crc}, Options{}, 4, "InvalidRequest", "x-amz-checksum-xxhash64"},
		{"algorithm without a value", map[string]string{"x-amz-sdk-checksum-algorithm": "CRC32"}, Options{}, 4, "InvalidRequest", "x-amz-sdk-checksum-algorithm"},
		{"algorithm and another value", map[string]string{"x-amz-sdk-checksum-algorithm": "SHA1", "x-amz-checksum-crc32": crc}, Options{}, 4, "InvalidRequest", "x-amz-sdk-checksum-algorithm"},
		{"trailer of a plain payload", map[string]string{"x-amz-trailer": "x-amz-checksum-crc32"}, Options{}, 4, "InvalidRequest", "x-amz-trailer"},
		{"unknown trailer", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "4", "x-amz-trailer": "x-amz-meta-a"}, Options{}, 4, "InvalidRequest", "x-amz-trailer"},
		{"two trailers", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "4", "x-amz-trailer": "x-amz-checksum-crc32,x-amz-checksum-sha1"}, Options{}, 4, "InvalidRequest", "x-amz-trailer"},
		{"trailer and header", map[string]string{"x-amz-content-sha256": unsignedTrailer, "x-amz-decoded-content-length": "4", "x-amz-trailer": "x-amz-checksum-crc32", "x-amz-checksum-crc32": crc}, Options{}, 4, "InvalidRequest", "x-amz-checksum-crc32"},
	} {
		if c.h["x-amz-content-sha256"] == "" {
			c.h["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
		}
		r, _ := put(c.h)
		res, err := verifier(when).Verify(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(errors.New("New reads the body"))), c.length
		b, err := New(r, res, c.o)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || c.header != "any" && e.Header != c.header || b != nil {
			t.Errorf("%s: %v (%+v)", c.name, err, e)
			continue
		}
		if want := map[string]int{"MissingContentLength": http.StatusLengthRequired}[c.code]; want != 0 && e.Status != want {
			t.Errorf("%s: status %d", c.name, e.Status)
		}
	}
}

func TestRefusedBodies(t *testing.T) {
	data := []byte("some data")
	other := []byte("some dath")
	plain := func(h ...string) map[string]string {
		m := map[string]string{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
		for i := 0; i < len(h); i += 2 {
			m[h[i]] = h[i+1]
		}
		return m
	}
	stream := func(kind string) map[string]string {
		m := map[string]string{"x-amz-content-sha256": kind, "x-amz-decoded-content-length": "9"}
		if strings.HasSuffix(kind, "TRAILER") {
			m["x-amz-trailer"] = "x-amz-checksum-crc32"
		}
		return m
	}
	const ut, sc, sct = "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	crc := "x-amz-checksum-crc32:" + sumOf(checksum.CRC32, data)
	text := func(s string) func(string) []byte { return func(string) []byte { return []byte(s) } }
	for _, c := range []struct {
		name string
		h    map[string]string
		body func(seed string) []byte
		code string
	}{
		{"signed hash", plain("x-amz-content-sha256", hexSHA(other)), text("some data"), "XAmzContentSHA256Mismatch"},
		{"md5", plain("content-md5", md5Of(other)), text("some data"), "BadDigest"},
		{"crc32", plain("x-amz-checksum-crc32", sumOf(checksum.CRC32, other)), text("some data"), "BadDigest"},
		{"crc64", plain("x-amz-checksum-crc64nvme", sumOf(checksum.CRC64NVME, other)), text("some data"), "BadDigest"},
		{"sha256 of a signed payload", plain("x-amz-content-sha256", hexSHA(data), "x-amz-checksum-sha256", sumOf(checksum.SHA256, other)), text("some data"), "BadDigest"},
		{"trailer of other data", stream(ut), text("9\r\nsome dath\r\n0\r\n" + crc + "\r\n\r\n"), "BadDigest"},
		{"trailer is missing", stream(ut), text("9\r\nsome data\r\n0\r\n\r\n"), "MalformedTrailerError"},
		{"another trailer", stream(ut), text("9\r\nsome data\r\n0\r\nx-amz-checksum-sha1:" + sumOf(checksum.SHA1, data) + "\r\n\r\n"), "MalformedTrailerError"},
		{"unknown trailer", stream(ut), text("9\r\nsome data\r\n0\r\n" + crc + "\r\nx-other:1\r\n\r\n"), "MalformedTrailerError"},
		{"trailer twice", stream(ut), text("9\r\nsome data\r\n0\r\n" + crc + "\r\n" + crc + "\r\n\r\n"), "MalformedTrailerError"},
		{"trailer after the end", stream(ut), text("9\r\nsome data\r\n0\r\n\r\n" + crc + "\r\n\r\n"), "MalformedTrailerError"},
		{"bad trailer value", stream(ut), text("9\r\nsome data\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n"), "InvalidRequest"},
		{"no colon", stream(ut), text("9\r\nsome data\r\n0\r\nx-amz-checksum-crc32\r\n\r\n"), "MalformedTrailerError"},
		{"data after the end", stream(ut), text("9\r\nsome data\r\n0\r\n" + crc + "\r\n\r\nmore\r\n"), "MalformedTrailerError"},
		{"chunk after the end", stream(ut), text("9\r\nsome data\r\n0\r\n" + crc + "\r\n\r\n1\r\na\r\n"), "MalformedTrailerError"},
		{"many empty lines", stream(ut), text("9\r\nsome data\r\n0\r\n" + crc + strings.Repeat("\r\n", 40)), "MalformedTrailerError"},
		{"no last line", stream(ut), text("9\r\nsome data\r\n0\r\n" + crc + "\r\n"), "IncompleteBody"},
		{"too many bytes", stream(ut), text("a\r\nsome data!\r\n0\r\n" + crc + "\r\n\r\n"), "IncompleteBody"},
		{"too few bytes", stream(ut), text("8\r\nsome dat\r\n0\r\n" + crc + "\r\n\r\n"), "IncompleteBody"},
		{"huge chunk", stream(ut), text("7fffffffffffffff\r\nsome data"), "InvalidRequest"},
		{"large chunk", stream(ut), text("fffffffffffffff\r\nsome data"), "IncompleteBody"},
		{"negative chunk", stream(ut), text("-9\r\nsome data\r\n0\r\n\r\n"), "InvalidRequest"},
		{"empty size", stream(ut), text("\r\nsome data"), "InvalidRequest"},
		{"no hex", stream(ut), text("9g\r\nsome data"), "InvalidRequest"},
		{"bare LF", stream(ut), text("9\nsome data\r\n0\r\n" + crc + "\r\n\r\n"), "InvalidRequest"},
		{"no CRLF after a chunk", stream(ut), text("9\r\nsome data0\r\n" + crc + "\r\n\r\n"), "InvalidRequest"},
		{"long line", stream(ut), text(strings.Repeat("0", 300) + "9\r\nsome data"), "InvalidRequest"},
		{"endless line", stream(ut), text(strings.Repeat("0", 10_000)), "InvalidRequest"},
		{"extension", stream(ut), text("9;a=b\r\nsome data\r\n0\r\n" + crc + "\r\n\r\n"), "InvalidRequest"},
		{"unsigned chunks", stream(sc), text("9\r\nsome data\r\n0\r\n\r\n"), "InvalidRequest"},
		{"another seed", stream(sc), func(string) []byte { return chunked(data, []int{9}, strings.Repeat("0", 64)) }, "SignatureDoesNotMatch"},
		{"trailer of a payload without", stream(sc), func(seed string) []byte {
			return append(bytes.TrimSuffix(chunked(data, []int{9}, seed), []byte("\r\n")), crc+"\r\n\r\n"...)
		}, "MalformedTrailerError"},
		{"trailer without signature", stream(sct), func(seed string) []byte {
			return append(bytes.TrimSuffix(chunked(data, []int{9}, seed), []byte("\r\n")), crc+"\r\n\r\n"...)
		}, "MalformedTrailerError"},
		{"trailer with a bad signature", stream(sct), func(seed string) []byte {
			return bytes.Replace(chunked(data, []int{9}, seed, crc), []byte("trailer-signature:"), []byte("trailer-signature:0"), 1)
		}, "SignatureDoesNotMatch"},
		{"trailer signed, then changed", stream(sct), func(seed string) []byte {
			return bytes.Replace(chunked(data, []int{9}, seed, crc), []byte(crc), []byte("x-amz-checksum-crc32:AAAAAA=="), 1)
		}, "SignatureDoesNotMatch"},
		{"data after the trailer's signature", stream(sct), func(seed string) []byte {
			return append(chunked(data, []int{9}, seed, crc), "x:y\r\n"...)
		}, "MalformedTrailerError"},
		{"chunks swapped", stream(sc), func(seed string) []byte {
			raw := chunked([]byte("some aaaa"), []int{5, 2}, seed)
			// chunks 2 and 3 have the same bytes: only the chain tells them apart
			one := bytes.Index(raw, []byte("2;"))
			two := one + bytes.Index(raw[one+1:], []byte("2;")) + 1
			end := two + (two - one)
			out := append(bytes.Clone(raw[:one]), raw[two:end]...)
			return append(append(out, raw[one:two]...), raw[end:]...)
		}, "SignatureDoesNotMatch"},
		{"chunk left out", stream(sc), func(seed string) []byte {
			return bytes.Replace(chunked([]byte("some datasome"), []int{4, 5, 4}, seed), []byte("some\r\n"), []byte("same\r\n"), 1)
		}, "SignatureDoesNotMatch"},
	} {
		r, seed := put(c.h)
		b, err := open(t, r, c.body(seed), nil, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := readBy(b, 1000)
		if code(err) != c.code {
			t.Errorf("%s: %v after %q, want %s", c.name, err, got, c.code)
		}
		if !b.Sum().IsZero() {
			t.Errorf("%s: a sum in spite of the error", c.name)
		}
	}
}

// Bytes beyond the announced length cannot come out of net/http's server, but
// out of a body put in its place.
func TestMoreThanAnnounced(t *testing.T) {
	r, _ := put(map[string]string{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
	for _, raw := range []string{"abcde", "abcd"} {
		b, err := open(t, r, []byte(raw), iotest.OneByteReader, Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.size, b.left = 4, 4
		_, err = readBy(b, 100)
		if (err == nil) != (raw == "abcd") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	b, err := open(t, r, nil, func(io.Reader) io.Reader { return stuck{} }, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBy(b, 10); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestReadAllLimit(t *testing.T) {
	r, _ := put(map[string]string{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
	b, err := open(t, r, []byte("abcd"), nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := b.ReadAll(3); code(err) != "MaxMessageLengthExceeded" || p != nil {
		t.Errorf("%q, %v", p, err)
	}
	r, _ = put(map[string]string{"x-amz-content-sha256": hexSHA([]byte("other"))})
	if b, err = open(t, r, []byte("abcd"), nil, Options{}); err != nil {
		t.Fatal(err)
	}
	if p, err := b.ReadAll(4); code(err) != "XAmzContentSHA256Mismatch" || p != nil {
		t.Errorf("%q, %v", p, err)
	}
}

// The x-amz-checksum header of CompleteMultipartUpload speaks of the object.
func TestObjectChecksum(t *testing.T) {
	r, _ := put(map[string]string{"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-checksum-crc32": "AAAAAA==-3", "x-amz-checksum-type": "COMPOSITE"})
	b, err := open(t, r, []byte("<xml/>"), nil, Options{ObjectChecksum: true})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := b.ReadAll(100); err != nil || string(p) != "<xml/>" || !b.Sum().IsZero() {
		t.Errorf("%q, %v, %v", p, err, b.Sum())
	}
}

func TestContentEncoding(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string
	}{
		{nil, ""}, {[]string{"aws-chunked"}, ""}, {[]string{"aws-chunked,gzip"}, "gzip"}, {[]string{"gzip, AWS-Chunked"}, "gzip"},
		{[]string{"gzip", "aws-chunked"}, "gzip"}, {[]string{"gzip,br"}, "gzip,br"}, {[]string{"aws-chunked,"}, ""},
	} {
		if got := ContentEncoding(http.Header{"Content-Encoding": c.in}); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestNoAllocationPerChunk(t *testing.T) {
	data := random(1<<20, 4)
	for _, u := range forms(data, checksum.CRC32C)[2:] {
		// The same bytes in 16 and in 1024 chunks must cost the same.
		var got [2]float64
		for i, size := range []int{65536, 1024} {
			head := "x-amz-checksum-crc32c:" + sumOf(checksum.CRC32C, data)
			r, seed := put(u.headers)
			var raw []byte
			switch u.name {
			case "unsigned trailer":
				raw = chunked(data, []int{size}, "", head)
			case "signed chunks":
				raw = chunked(data, []int{size}, seed)
			default:
				raw = chunked(data, []int{size}, seed, head)
			}
			res, err := verifier(when).Verify(r)
			if err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 256<<10)
			got[i] = testing.AllocsPerRun(3, func() {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
				b, err := New(r, res, Options{})
				if err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = b.Read(p)
				}
				if err != io.EOF {
					t.Fatal(err)
				}
			})
		}
		if got[1] > got[0]+1 {
			t.Errorf("%s: %v allocations in 16 chunks, %v in 1024", u.name, got[0], got[1])
		}
	}
}

var _ io.Reader = (*Body)(nil)

// TestComputed: a checksum of the server's own choice comes beside the one the
// request carries, in every form, and only once all has been read and is right.
func TestComputed(t *testing.T) {
	for _, n := range []int{0, 1, 70_000} {
		data := random(n, 8)
		for _, a := range checksum.Algorithms {
			for _, u := range forms(data, a) {
				b, _, err := u.open(t, nil, Options{Compute: checksum.CRC64NVME})
				if err != nil {
					t.Fatal(err)
				}
				if !b.Computed().IsZero() {
					t.Fatalf("%s: a checksum of nothing read", u.name)
				}
				if _, err := readBy(b, 5000); err != nil {
					t.Fatal(err)
				}
				want := checksum.Sum{Algorithm: checksum.CRC64NVME, Type: checksum.FullObject, Value: sumOf(checksum.CRC64NVME, data)}
				if got := b.Computed(); got != want {
					t.Errorf("%d bytes, %s, %s: %+v, want %+v", n, u.name, a, got, want)
				}
				if b.Sum().Algorithm != a {
					t.Errorf("%s: the request's own is %+v", u.name, b.Sum())
				}
			}
		}
	}
	u := forms(random(9, 8), checksum.CRC32)[0]
	u.headers["x-amz-checksum-crc32"] = "AAAAAA=="
	b, _, err := u.open(t, nil, Options{Compute: checksum.CRC64NVME})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBy(b, 5000); code(err) != "BadDigest" || !b.Computed().IsZero() {
		t.Errorf("%v, %+v", err, b.Computed())
	}
}
