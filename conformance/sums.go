package conformance

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"
)

// nvme is the table of CRC-64/NVME.
var nvme = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// sums computes S3's checksums in their wire form, by the standard library only.
var sums = map[string]func([]byte) string{
	"CRC32": func(b []byte) string {
		return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)))
	},
	"CRC32C": func(b []byte) string {
		return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
	},
	"CRC64NVME": func(b []byte) string {
		return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc64.Checksum(b, nvme)))
	},
	"SHA1":   func(b []byte) string { s := sha1.Sum(b); return base64.StdEncoding.EncodeToString(s[:]) },
	"SHA256": func(b []byte) string { s := sha256.Sum256(b); return base64.StdEncoding.EncodeToString(s[:]) },
}

// sumNames is the algorithms in a fixed order.
var sumNames = []string{"CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"}

// composite is the checksum of checksums that S3 gives a multipart object.
func composite(alg string, parts [][]byte) string {
	var cat []byte
	for _, p := range parts {
		raw, err := base64.StdEncoding.DecodeString(sums[alg](p))
		if err != nil {
			panic(err) // we have just encoded it
		}
		cat = append(cat, raw...)
	}
	return sums[alg](cat)
}
