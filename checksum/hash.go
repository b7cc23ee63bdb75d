package checksum

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/minio/crc64nvme"
)

// Algorithms lists the algorithms of S3, without None.
var Algorithms = [...]Algorithm{CRC32, CRC32C, CRC64NVME, SHA1, SHA256}

// New returns a running hash of the algorithm, or nil for None or an unknown
// name. Its Sum is big-endian for CRCs, as S3 encodes them. A hash is for one
// goroutine.
func New(a Algorithm) hash.Hash {
	switch a {
	case CRC32:
		return crc32.NewIEEE()
	case CRC32C:
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case CRC64NVME:
		return crc64nvme.New()
	case SHA1:
		return sha1.New()
	case SHA256:
		return sha256.New()
	}
	return nil
}

// Size is the length of a raw value in bytes; 0 for None or an unknown name.
func (a Algorithm) Size() int {
	switch a {
	case CRC32, CRC32C:
		return crc32.Size
	case CRC64NVME:
		return crc64nvme.Size
	case SHA1:
		return sha1.Size
	case SHA256:
		return sha256.Size
	}
	return 0
}

// IsCRC reports whether checksums of parts can be combined into that of the whole.
func (a Algorithm) IsCRC() bool { return a == CRC32 || a == CRC32C || a == CRC64NVME }

// Of is the checksum of everything written to h, a hash of algorithm a.
func Of(a Algorithm, h hash.Hash) Sum {
	var buf [sha256.Size]byte
	return Sum{Algorithm: a, Type: FullObject, Value: Encode(h.Sum(buf[:0]))}
}

// Encode returns a raw value as S3 shows it.
func Encode(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// ValueError reports a checksum value that is not one of its algorithm.
type ValueError struct {
	Algorithm Algorithm
	Value     string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("%q is not a base64 %s checksum", e.Value, e.Algorithm)
}

// Decode returns the raw value, or a *ValueError if it does not have exactly
// the algorithm's length in canonical base64. Composite values ("...-N") are
// not taken.
func Decode(a Algorithm, value string) ([]byte, error) {
	var buf [sha256.Size + 3]byte
	n := a.Size()
	if n == 0 || len(value) != base64.StdEncoding.EncodedLen(n) {
		return nil, &ValueError{a, value}
	}
	// Strict refuses stray bits in the last group; the length check above
	// leaves no room for the line breaks that Decode would skip.
	got, err := base64.StdEncoding.Strict().Decode(buf[:], []byte(value))
	if err != nil || got != n {
		return nil, &ValueError{a, value}
	}
	return buf[:n:n], nil
}

// Valid reports whether value is a raw checksum of the algorithm in base64.
func Valid(a Algorithm, value string) bool {
	_, err := Decode(a, value)
	return err == nil
}
