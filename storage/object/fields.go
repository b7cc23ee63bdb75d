package object

import (
	"encoding/binary"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// At the end of a description are fields, each with
//
//	a byte    which it is, ascending
//	uvarint   its length
//	bytes     its value
//
// An object that has nothing to say in one leaves it out. A field that this
// program does not know is damage: a newer program changes the store's version.
const (
	fieldTags     = 1 // two strings for every tag
	fieldPartSums = 2 // of a multipart object: the raw checksum of every part, of the object's algorithm
	fieldUpload   = 3 // of a multipart object: the upload's id, CRC32C of the parts' numbers (numbersSum)
)

// fields are the decoded fields; their slices point into the record.
type fields struct {
	tags     []byte
	partSums []byte
	upload   []byte // uploadFieldLen bytes
}

const uploadFieldLen = len(ID{}) + 4

func appendField(dst []byte, id byte, value []byte) []byte {
	dst = binary.AppendUvarint(append(dst, id), uint64(len(value)))
	return append(dst, value...)
}

// fields takes all that is left.
func (d *decoder) fields() (f fields) {
	last := byte(0)
	for len(d.b) > 0 && !d.bad {
		id := d.byte()
		v := d.bytes(d.size())
		ok := id > last
		switch last = id; id {
		case fieldTags:
			f.tags = v
		case fieldPartSums:
			f.partSums = v
		case fieldUpload:
			f.upload = v
			ok = ok && len(v) == uploadFieldLen
		default:
			ok = false
		}
		if !ok || d.bad {
			d.bad, d.b = true, nil
			return fields{}
		}
	}
	return f
}

// madeBy reports whether the object was made by completing that upload with
// parts of those numbers.
func (f *fields) madeBy(upload ID, numbers uint32) bool {
	return len(f.upload) == uploadFieldLen && ID(f.upload[:len(upload)]) == upload &&
		binary.LittleEndian.Uint32(f.upload[len(upload):]) == numbers
}

func appendUploadField(dst []byte, upload ID, numbers uint32) []byte {
	return appendField(dst, fieldUpload, binary.LittleEndian.AppendUint32(upload[:], numbers))
}

// numbersSum stands for the list of part numbers of a completion. With the
// upload and the parts' ETags it says whether two are the same.
func numbersSum(parts []storage.CompletedPart) uint32 {
	b := make([]byte, 0, 2*len(parts))
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(p.Number))
	}
	return checksum.Block(b)
}

// partLayout implements storage.PartLayout on an object's record.
type partLayout struct {
	segs []byte
	sums []byte // raw, one behind the other; nil: none
	alg  checksum.Algorithm
	typ  checksum.Type
}

func newPartLayout(segs []byte, f *fields, whole checksum.Sum) *partLayout {
	l := &partLayout{segs: segs}
	if n := whole.Algorithm.Size(); n > 0 && len(f.partSums) == n*(len(segs)/segmentLen) {
		l.sums, l.alg, l.typ = f.partSums, whole.Algorithm, whole.Type
	}
	return l
}

// Part implements storage.PartLayout.
func (l *partLayout) Part(number int) storage.ObjectPart {
	i := number - 1
	p := storage.ObjectPart{Number: number}
	if i > 0 {
		p.Offset = segmentEnd(l.segs, i-1)
	}
	p.Size = segmentEnd(l.segs, i) - p.Offset
	if n := l.alg.Size(); n > 0 {
		p.Checksum = checksum.Sum{Algorithm: l.alg, Type: l.typ, Value: checksum.Encode(l.sums[i*n:][:n])}
	}
	return p
}
