package object

import (
	"encoding/binary"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// part is the value of a p entry: version, CRC32C of the rest, segment id,
// size, ETag, time, checksum.
type part struct {
	segment  ID
	size     int64
	etag     string
	modified time.Time
	sum      checksum.Sum
}

const partVersion = 1

func (p *part) encode() []byte {
	b := append([]byte{partVersion, 0, 0, 0, 0}, p.segment[:]...)
	b = binary.AppendUvarint(b, uint64(p.size))
	b = appendETag(b, p.etag)
	b = binary.AppendVarint(b, p.modified.UnixNano())
	b = appendSum(b, p.sum)
	binary.LittleEndian.PutUint32(b[1:], checksum.Block(b[5:]))
	return b
}

func (p *part) decode(b []byte) error {
	if len(b) < 5 || b[0] != partVersion || binary.LittleEndian.Uint32(b[1:]) != checksum.Block(b[5:]) {
		return errBadRecord
	}
	d := decoder{b: b[5:]}
	copy(p.segment[:], d.bytes(int64(len(p.segment))))
	p.size = d.size()
	p.etag = d.etag()
	p.modified = time.Unix(0, d.varint()).UTC()
	p.sum = d.sum()
	if d.bad || len(d.b) != 0 {
		return errBadRecord
	}
	return nil
}

func (p *part) info(number int) storage.Part {
	return storage.Part{Number: number, Size: p.size, ETag: p.etag, Modified: p.modified, Checksum: p.sum}
}
