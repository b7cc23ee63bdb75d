package object

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"

	"github.com/objcached/objcached/storage/blob"
)

// ID names an object's bytes, a segment or an upload. It is random and never
// used again, so that a pin or a garbage entry cannot hit a later object.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// parseID reads what String wrote.
func parseID(s string) (ID, bool) {
	var id ID
	if len(s) != 2*len(id) {
		return id, false
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, false
	}
	return id, id.String() == s // hex.Decode takes upper case too
}

// The partition of the store's own entries, and its keys.
const sysPartition = "sys"

const (
	sysBucket = 'b' // + name: the bucket's record
	sysStore  = 'v' // the store's version and UUID
)

// The first byte of a key in a bucket's partition; see ARCHITECTURE.md.
const (
	keyConfig  = 'c' // + name: a setting of the bucket
	keyGarbage = 'g' // + id
	keyMarker  = 'm'
	keyObject  = 'o' // + object key
	keyPart    = 'p' // + upload id + number
	keySegment = 's' // + segment id
	keyUpload  = 'u' // + escaped object key + 0 0 + upload id
	keyExtent  = 'x' // + volume + offset
)

// MaxKeyLen is the longest object key, in bytes.
const MaxKeyLen = 1024

var markerKey = []byte{keyMarker}

// markerLive is what m holds in a bucket that takes writes. While a bucket is
// being deleted it is markerDeleting and a token of the call that deletes it.
var markerLive = []byte{1}

const markerDeleting = 2

// partitionName makes the partition of a bucket from its id.
func partitionName(id ID) string { return "b" + base64.RawURLEncoding.EncodeToString(id[:]) }

func appendObjectKey(dst []byte, key string) []byte {
	return append(append(dst, keyObject), key...)
}

func idKey(kind byte, id ID) []byte {
	return append(append(make([]byte, 0, 1+len(id)), kind), id[:]...)
}

func extentKey(e blob.Extent) []byte {
	b := make([]byte, 0, 13)
	b = append(b, keyExtent)
	b = binary.BigEndian.AppendUint32(b, e.Volume)
	return binary.BigEndian.AppendUint64(b, uint64(e.Offset))
}

// extentValue is the value of an x entry: who owns the extent and its length.
func extentValue(e blob.Extent, owner ID) []byte {
	b := make([]byte, 0, 16+binary.MaxVarintLen64)
	return binary.AppendUvarint(append(b, owner[:]...), uint64(e.Len))
}

// parseExtent reads an x entry.
func parseExtent(k, v []byte) (e blob.Extent, owner ID, ok bool) {
	if len(k) != 13 || k[0] != keyExtent || len(v) < len(owner) {
		return e, owner, false
	}
	copy(owner[:], v)
	n, w := binary.Uvarint(v[len(owner):])
	off := binary.BigEndian.Uint64(k[5:])
	if w <= 0 || w != len(v)-len(owner) || n == 0 || n > maxSize || off > maxSize {
		return e, owner, false
	}
	return blob.Extent{Volume: binary.BigEndian.Uint32(k[1:]), Offset: int64(off), Len: int64(n)}, owner, true
}

func partKey(upload ID, number int) []byte {
	return binary.BigEndian.AppendUint16(idKey(keyPart, upload), uint16(number))
}

// A zero byte of an object key is written 0 1 in an upload's key and the key
// ends with 0 0: so uploads sort by (object key, upload id) whatever is in a key.
func appendUploadPrefix(dst []byte, key string) []byte {
	dst = append(dst, keyUpload)
	for i := 0; i < len(key); i++ {
		dst = append(dst, key[i])
		if key[i] == 0 {
			dst = append(dst, 1)
		}
	}
	return dst
}

func uploadKey(key string, id ID) []byte {
	b := appendUploadPrefix(make([]byte, 0, len(key)+20), key)
	return append(append(b, 0, 0), id[:]...)
}

// parseUploadKey is the inverse of uploadKey.
func parseUploadKey(k []byte) (key string, id ID, ok bool) {
	if len(k) < 1+2+len(id) || k[0] != keyUpload {
		return "", id, false
	}
	n := len(k) - len(id)
	copy(id[:], k[n:])
	if k[n-1] != 0 || k[n-2] != 0 {
		return "", id, false
	}
	return string(bytes.ReplaceAll(k[1:n-2], []byte{0, 1}, []byte{0})), id, true
}

// successor returns the smallest key above every key that starts with p, or
// nil if there is none.
func successor(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			s := bytes.Clone(p[:i+1])
			s[i]++
			return s
		}
	}
	return nil
}
