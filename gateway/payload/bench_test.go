package payload

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"hash/crc32"
	"io"
	"testing"

	"github.com/minio/crc64nvme"

	"github.com/objcached/objcached/checksum"
)

// BenchmarkBody reads 8 MiB in reads of 1 MiB, in each form; BenchmarkHash is
// what the hashes it must compute cost by themselves.
func BenchmarkBody(b *testing.B) {
	data := random(8<<20, 5)
	p := make([]byte, 1<<20)
	for _, a := range []checksum.Algorithm{checksum.None, checksum.CRC32, checksum.CRC64NVME, checksum.SHA256} {
		name := string(a)
		use := a
		if a == checksum.None {
			name, use = "no checksum", checksum.CRC32
		}
		for _, u := range forms(data, use) {
			if a == checksum.None {
				delete(u.headers, "x-amz-checksum-crc32")
				delete(u.headers, "x-amz-trailer")
				delete(u.headers, "x-amz-sdk-checksum-algorithm")
			}
			delete(u.headers, "content-md5")
			r, seed := put(u.headers)
			raw := u.body(seed)
			if a == checksum.None && u.name == "unsigned trailer" {
				raw = chunked(data, []int{65536}, "")
			}
			if a == checksum.None && u.name == "signed chunks and trailer" {
				continue
			}
			res, err := verifier(when).Verify(r)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(name+"/"+u.name, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
					body, err := New(r, res, Options{})
					for err == nil {
						_, err = body.Read(p)
					}
					if err != io.EOF {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkHash(b *testing.B) {
	data := random(8<<20, 5)
	p := make([]byte, 1<<20)
	for _, c := range []struct {
		name string
		hs   []hash.Hash
	}{
		{"copy", nil},
		{"CRC32", []hash.Hash{crc32.NewIEEE()}},
		{"CRC64NVME", []hash.Hash{crc64nvme.New()}},
		{"SHA256", []hash.Hash{sha256.New()}},
		{"SHA256 and CRC32", []hash.Hash{sha256.New(), crc32.NewIEEE()}},
		{"SHA256 and CRC64NVME", []hash.Hash{sha256.New(), crc64nvme.New()}},
		{"SHA256 twice", []hash.Hash{sha256.New(), sha256.New()}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				for off := 0; off < len(data); off += len(p) {
					copy(p, data[off:])
					for _, h := range c.hs {
						h.Write(p)
					}
				}
			}
		})
	}
}
