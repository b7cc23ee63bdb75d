// Package checksum holds the two kinds of checksums of the store: the CRC32C
// per 64 KiB block that guards every read, and the S3 checksums that clients
// send and ask for.
package checksum

// Algorithm is an S3 checksum algorithm by its S3 name.
type Algorithm string

// The algorithms of S3.
const (
	None      Algorithm = ""
	CRC32     Algorithm = "CRC32"
	CRC32C    Algorithm = "CRC32C"
	CRC64NVME Algorithm = "CRC64NVME"
	SHA1      Algorithm = "SHA1"
	SHA256    Algorithm = "SHA256"
)

// Type says what a checksum of a multipart object covers.
type Type string

// The checksum types of S3.
const (
	FullObject Type = "FULL_OBJECT"
	Composite  Type = "COMPOSITE"
)

// Sum is a checksum as S3 shows it. The zero value means none.
type Sum struct {
	Algorithm Algorithm
	Type      Type
	Value     string // base64, big-endian for CRCs; a composite has "-<parts>" appended
}

// IsZero reports whether there is no checksum.
func (s Sum) IsZero() bool { return s.Algorithm == None }
