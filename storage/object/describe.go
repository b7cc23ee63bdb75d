package object

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// A description follows the data part of an object's record:
//
//	etag       form byte: 0 a string, 1 an MD5 (16 bytes)
//	modified   varint, nanoseconds since 1970
//	parts      uvarint
//	checksum   three strings: algorithm, type, value; or, of the type
//	           FULL_OBJECT, a byte from sumCode and the raw value
//	chain      string parent, varint index
//	headers    uvarint n, n times two strings, in name order
//	user meta  the same
//	fields     see fields.go; records of version 1 of the store have none
//
// A string is its uvarint length and its bytes.
const (
	etagString = 0
	etagMD5    = 1
	sumCode    = 0x20 // + place in sumCodes; above the length of any algorithm's name
)

// sumCodes must keep its order.
var sumCodes = [...]checksum.Algorithm{checksum.CRC32, checksum.CRC32C, checksum.CRC64NVME, checksum.SHA1, checksum.SHA256}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendMap(dst []byte, m map[string]string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = appendString(appendString(dst, k), m[k])
	}
	return dst
}

// appendSum takes a tenth of the strings' room for a checksum of the usual
// form: every object has one, and a chunk's record should fit an opened object.
func appendSum(dst []byte, s checksum.Sum) []byte {
	if i := slices.Index(sumCodes[:], s.Algorithm); i >= 0 && s.Type == checksum.FullObject {
		if raw, err := checksum.Decode(s.Algorithm, s.Value); err == nil {
			return append(append(dst, byte(sumCode+i)), raw...)
		}
	}
	dst = appendString(dst, string(s.Algorithm))
	dst = appendString(dst, string(s.Type))
	return appendString(dst, s.Value)
}

func appendETag(dst []byte, etag string) []byte {
	var md5 [16]byte
	if len(etag) == 32 {
		if _, err := hex.Decode(md5[:], []byte(etag)); err == nil && hex.EncodeToString(md5[:]) == etag {
			return append(append(dst, etagMD5), md5[:]...)
		}
	}
	return appendString(append(dst, etagString), etag)
}

// appendDescription encodes all of info but its key and size.
func appendDescription(dst []byte, info *storage.ObjectInfo) []byte {
	dst = appendETag(dst, info.ETag)
	dst = binary.AppendVarint(dst, info.Modified.UnixNano())
	dst = binary.AppendUvarint(dst, uint64(info.Parts))
	dst = appendSum(dst, info.Checksum)
	dst = appendString(dst, info.Chain.Parent)
	dst = binary.AppendVarint(dst, info.Chain.Index)
	dst = appendMap(dst, info.Headers)
	dst = appendMap(dst, info.UserMeta)
	return appendTags(dst, info.Tags)
}

func (d *decoder) etag() string {
	switch d.byte() {
	case etagString:
		return d.str()
	case etagMD5:
		return hex.EncodeToString(d.bytes(16))
	}
	d.bad, d.b = true, nil
	return ""
}

func (d *decoder) sum() checksum.Sum {
	if len(d.b) > 0 && d.b[0] >= sumCode && int(d.b[0]-sumCode) < len(sumCodes) {
		alg := sumCodes[d.byte()-sumCode]
		return checksum.Sum{Algorithm: alg, Type: checksum.FullObject, Value: checksum.Encode(d.bytes(int64(alg.Size())))}
	}
	return checksum.Sum{
		Algorithm: checksum.Algorithm(d.str()),
		Type:      checksum.Type(d.str()),
		Value:     d.str(),
	}
}

func (d *decoder) strings() map[string]string {
	n := d.size()
	if d.bad || n == 0 {
		return nil
	}
	if n > int64(len(d.b)/2) { // a pair takes two bytes or more
		d.bad, d.b = true, nil
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := d.str()
		m[k] = d.str()
	}
	return m
}

// describe decodes what a listing shows; with all, the rest too.
func (r *record) describe(key string, all bool) (storage.ObjectInfo, error) {
	d := decoder{b: r.desc}
	info := d.listed(key, r.size)
	if all {
		d.rest(&info, r)
	}
	if d.bad {
		return storage.ObjectInfo{}, errBadRecord
	}
	return info, nil
}

// describeFields is describe with the fields that are no part of ObjectInfo.
func (r *record) describeFields(key string) (storage.ObjectInfo, fields, error) {
	d := decoder{b: r.desc}
	info := d.listed(key, r.size)
	f := d.rest(&info, r)
	if d.bad {
		return storage.ObjectInfo{}, fields{}, errBadRecord
	}
	return info, f, nil
}

func (d *decoder) listed(key string, size int64) storage.ObjectInfo {
	info := storage.ObjectInfo{Key: key, Size: size}
	info.ETag = d.etag()
	info.Modified = time.Unix(0, d.varint()).UTC()
	info.Parts = int(d.size())
	info.Checksum = d.sum()
	return info
}

func (d *decoder) rest(info *storage.ObjectInfo, r *record) fields {
	info.Chain.Parent = d.str()
	info.Chain.Index = d.varint()
	info.Headers = d.strings()
	info.UserMeta = d.strings()
	f := d.fields()
	if len(f.tags) > 0 {
		tags, ok := decodeTags(f.tags)
		d.bad = d.bad || !ok
		info.Tags = tags
	}
	if !d.bad && r.kind == kindSegments && info.Parts == r.segments() {
		info.Layout = newPartLayout(r.segs, &f, info.Checksum)
	}
	return f
}
