package checksum

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Block returns the CRC32C of p. It does not allocate.
func Block(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// AppendTable appends the CRC32C of every block of p, four bytes little-endian
// each, to table and returns it. Only the last block of an object may be
// shorter than blockSize, so that p of every call but the last must be a
// multiple of it.
func AppendTable(table, p []byte, blockSize int) []byte {
	for len(p) > 0 {
		n := min(len(p), blockSize)
		table = binary.LittleEndian.AppendUint32(table, Block(p[:n]))
		p = p[n:]
	}
	return table
}

// TableAt returns the CRC of block i of a table that AppendTable made.
func TableAt(table []byte, i int64) uint32 {
	return binary.LittleEndian.Uint32(table[4*i:])
}
