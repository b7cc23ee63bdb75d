package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
)

// A record is the value of an object (o), a segment (s) or a garbage entry (g):
//
//	0      version
//	1..4   CRC32C of all that follows, little-endian
//	5      kind
//	6..21  id
//	       uvarint size in bytes
//	       uvarint length of the data part
//	       data part, by kind:
//	         inline    the bytes
//	         extents   uvarint n; n times uvarint volume, offset/4096, length;
//	                   then a CRC32C per block, 4 bytes little-endian each
//	         segments  n times the segment's id and, 8 bytes little-endian,
//	                   the offset in the object at which it ends
//	         sweep     nothing: whatever parts are left of the upload with this id
//	       description (object records only), see describe.go
//
// The data part comes first and by itself, so that opening a chunk decodes
// nothing it does not need.
const recordVersion = 1

type kind byte

const (
	kindInline   kind = 1
	kindExtents  kind = 2
	kindSegments kind = 3
	kindSweep    kind = 4
)

const (
	recordHead = 22
	segmentLen = 24
	// maxSize bounds every size and offset, so that sums cannot overflow.
	maxSize = math.MaxInt64 >> 8
)

var errBadRecord = errors.New("object: damaged record")

// record is a decoded record. Its slices point into the buffer it was decoded
// from, except extents. It must not be copied: exts may point into it.
type record struct {
	kind   kind
	id     ID
	size   int64
	inline []byte
	exts   []blob.Extent
	crcs   []byte // of the blocks, 4 bytes each
	segs   []byte // segmentLen bytes each
	desc   []byte // not decoded

	few [2]blob.Extent // where exts lie when they are few, which is the rule
}

func blocksOf(size int64) int64 { return (size + storage.BlockSize - 1) / storage.BlockSize }

// appendRecord encodes r with the description desc.
func appendRecord(dst []byte, r *record, desc []byte) []byte {
	start := len(dst)
	dst = append(dst, recordVersion, 0, 0, 0, 0, byte(r.kind))
	dst = append(dst, r.id[:]...)
	dst = binary.AppendUvarint(dst, uint64(r.size))
	switch r.kind {
	case kindInline:
		dst = binary.AppendUvarint(dst, uint64(len(r.inline)))
		dst = append(dst, r.inline...)
	case kindExtents:
		list := binary.AppendUvarint(nil, uint64(len(r.exts)))
		for _, e := range r.exts {
			list = binary.AppendUvarint(list, uint64(e.Volume))
			list = binary.AppendUvarint(list, uint64(e.Offset/blob.Align))
			list = binary.AppendUvarint(list, uint64(e.Len))
		}
		dst = binary.AppendUvarint(dst, uint64(len(list)+len(r.crcs)))
		dst = append(append(dst, list...), r.crcs...)
	case kindSegments:
		dst = binary.AppendUvarint(dst, uint64(len(r.segs)))
		dst = append(dst, r.segs...)
	case kindSweep:
		dst = append(dst, 0)
	}
	dst = append(dst, desc...)
	binary.LittleEndian.PutUint32(dst[start+1:], checksum.Block(dst[start+5:]))
	return dst
}

// decode reads a record. It checks everything a reader relies on: the CRC,
// that extents or segments add up to the size, that there is a CRC per block.
func (r *record) decode(b []byte) error {
	if len(b) < recordHead {
		return errBadRecord
	}
	if b[0] != recordVersion {
		return fmt.Errorf("%w: version %d", errBadRecord, b[0])
	}
	if binary.LittleEndian.Uint32(b[1:]) != checksum.Block(b[5:]) {
		return fmt.Errorf("%w: checksum", errBadRecord)
	}
	r.kind = kind(b[5])
	copy(r.id[:], b[6:])
	d := decoder{b: b[recordHead:]}
	r.size = d.size()
	data := decoder{b: d.bytes(d.size())}
	if d.bad {
		return errBadRecord
	}
	r.desc = d.b
	r.inline, r.exts, r.crcs, r.segs = nil, nil, nil, nil
	ok := false
	switch r.kind {
	case kindInline:
		r.inline = data.b
		ok = int64(len(data.b)) == r.size
	case kindExtents:
		ok = r.decodeExtents(&data)
	case kindSegments:
		r.segs = data.b
		ok = r.checkSegments()
	case kindSweep:
		ok = len(data.b) == 0
	}
	if !ok {
		return errBadRecord
	}
	return nil
}

func (r *record) decodeExtents(d *decoder) bool {
	n := d.size()
	if d.bad || n < 1 || n > int64(len(d.b)/3) { // an extent takes three bytes or more
		return false
	}
	if n <= int64(len(r.few)) {
		r.exts = r.few[:n]
	} else {
		r.exts = make([]blob.Extent, n)
	}
	left := r.size
	for i := range r.exts {
		vol, off, ln := d.size(), d.size(), d.size()
		if d.bad || vol > math.MaxUint32 || off > maxSize/blob.Align || ln < 1 || ln > left {
			return false
		}
		left -= ln
		r.exts[i] = blob.Extent{Volume: uint32(vol), Offset: off * blob.Align, Len: ln}
	}
	r.crcs = d.b
	// A garbage entry has no CRCs: nobody will read the bytes again.
	return left == 0 && (len(r.crcs) == 0 || int64(len(r.crcs)) == 4*blocksOf(r.size))
}

func (r *record) checkSegments() bool {
	if len(r.segs)%segmentLen != 0 {
		return false
	}
	prev := int64(0)
	for i := range r.segments() {
		end := r.segmentEnd(i)
		if end < prev || end > r.size {
			return false
		}
		prev = end
	}
	return prev == r.size
}

// readable reports whether r is a record with content: of an object or, if
// segments are out of the question, of a segment.
func (r *record) readable(segments bool) bool {
	switch r.kind {
	case kindInline:
		return true
	case kindExtents:
		return len(r.crcs) > 0
	case kindSegments:
		return segments
	}
	return false
}

// segments is the number of segments.
func (r *record) segments() int { return len(r.segs) / segmentLen }

func (r *record) segmentID(i int) (id ID) {
	copy(id[:], r.segs[i*segmentLen:])
	return id
}

// segmentEnd is where segment i ends in the object; one that is empty ends
// where it starts.
func (r *record) segmentEnd(i int) int64 { return segmentEnd(r.segs, i) }

func segmentEnd(segs []byte, i int) int64 {
	v := binary.LittleEndian.Uint64(segs[i*segmentLen+16:])
	return int64(min(v, math.MaxInt64))
}

// findSegment returns the segment that holds byte off of the object.
func (r *record) findSegment(off int64) int {
	return sort.Search(r.segments(), func(i int) bool { return r.segmentEnd(i) > off })
}

func appendSegment(dst []byte, id ID, end int64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, id[:]...), uint64(end))
}

// decoder takes values off the front of b. After the first that is not there
// bad is set and everything is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || d.bad {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 || d.bad {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// size reads a count or size; one above maxSize is bad.
func (d *decoder) size() int64 {
	v := d.uvarint()
	if v > maxSize {
		d.bad, d.b = true, nil
		return 0
	}
	return int64(v)
}

func (d *decoder) bytes(n int64) []byte {
	if d.bad || n < 0 || n > int64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) str() string { return string(d.bytes(d.size())) }

func (d *decoder) byte() byte {
	p := d.bytes(1)
	if p == nil {
		return 0
	}
	return p[0]
}
