package storage

import "github.com/objcached/objcached/checksum"

// ObjectPart is one part of a stored object.
type ObjectPart struct {
	Number   int          // 1..n in the object's order, whatever numbers the upload gave them
	Offset   int64        // in the object, in bytes
	Size     int64        // bytes
	Checksum checksum.Sum // of the part, of the object's algorithm and type; zero if none is kept
}

// PartLayout says where the parts of a multipart object lie. An object may have
// 10,000 of them, so that they are decoded one by one when they are asked for.
// Implementations may be used concurrently.
type PartLayout interface {
	// Part returns part number, which is from 1 to ObjectInfo.Parts.
	Part(number int) ObjectPart
}

// Part returns a part of the object by number; false if it has none of that
// number. An object that was put in one piece is its own first part.
func (oi *ObjectInfo) Part(number int) (ObjectPart, bool) {
	if number < 1 || number > max(oi.Parts, 1) {
		return ObjectPart{}, false
	}
	if oi.Layout == nil {
		return ObjectPart{Number: 1, Size: oi.Size, Checksum: oi.Checksum}, oi.Parts == 0
	}
	return oi.Layout.Part(number), true
}
