package object

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
)

var testID = ID{1, 2, 3, 15: 0xff}

func sampleRecords() map[string][]byte {
	info := storage.ObjectInfo{
		ETag: strings.Repeat("0a", 16), Modified: time.Unix(1e9, 7).UTC(), Parts: 3,
		Checksum: checksum.Sum{Algorithm: checksum.CRC32, Type: checksum.Composite, Value: "AAAAAA==-3"},
		Headers:  map[string]string{"Content-Type": "a/b", "Expires": ""},
		UserMeta: map[string]string{"x": "y"},
		Chain:    storage.Chain{Parent: "p", Index: -1},
	}
	desc := appendDescription(nil, &info)
	ext := &record{kind: kindExtents, id: testID, size: 200_000,
		exts: []blob.Extent{{Volume: 1, Offset: 8192, Len: 65536}, {Volume: 0, Offset: 0, Len: 65536}, {Volume: 1 << 31, Offset: 1 << 40, Len: 68928}},
		crcs: bytes.Repeat([]byte{9}, 16)}
	seg := &record{kind: kindSegments, id: testID, size: 30,
		segs: appendSegment(appendSegment(nil, ID{1}, 30), ID{2}, 30)}
	multi := info
	multi.Parts = 2
	multiDesc := appendField(appendDescription(nil, &multi), fieldPartSums, []byte("aaaabbbb"))
	multiDesc = appendUploadField(multiDesc, ID{7}, 42)
	return map[string][]byte{
		"inline":   appendRecord(nil, &record{kind: kindInline, id: testID, size: 5, inline: []byte("hello")}, desc),
		"empty":    appendRecord(nil, &record{kind: kindInline, id: testID}, desc),
		"extents":  appendRecord(nil, ext, desc),
		"segments": appendRecord(nil, seg, nil),
		"multi":    appendRecord(nil, seg, multiDesc),
		"sweep":    appendRecord(nil, &record{kind: kindSweep, id: testID}, nil),
		"garbage":  (&garbage{id: testID, kind: kindExtents, exts: ext.exts}).value(),
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for name, b := range sampleRecords() {
		var r record
		if err := r.decode(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := appendRecord(nil, &r, r.desc); !bytes.Equal(got, b) {
			t.Errorf("%s: encoded again:\n%x\n%x", name, got, b)
		}
		if r.id != testID {
			t.Errorf("%s: id %s", name, r.id)
		}
		// Every flipped bit and every truncation is noticed.
		for i := range b {
			for bit := range 8 {
				bad := bytes.Clone(b)
				bad[i] ^= 1 << bit
				if err := r.decode(bad); !errors.Is(err, errBadRecord) {
					t.Fatalf("%s: byte %d bit %d: %v", name, i, bit, err)
				}
			}
			if err := r.decode(b[:i]); !errors.Is(err, errBadRecord) {
				t.Fatalf("%s: cut at %d: %v", name, i, err)
			}
		}
	}
	var r record
	if err := r.decode(sampleRecords()["extents"]); err != nil {
		t.Fatal(err)
	}
	info, err := r.describe("k", true)
	if err != nil || info.Size != 200_000 || info.Chain.Index != -1 || info.Headers["Content-Type"] != "a/b" || info.Checksum.Value != "AAAAAA==-3" ||
		info.ETag != strings.Repeat("0a", 16) || !info.Modified.Equal(time.Unix(1e9, 7)) || info.Parts != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// reseal makes a record's CRC right, so that a decoder behind it is reached.
func reseal(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) >= 5 {
		b[0] = recordVersion
		binary.LittleEndian.PutUint32(b[1:], checksum.Block(b[5:]))
	}
	return b
}

func FuzzRecord(f *testing.F) {
	for _, b := range sampleRecords() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = reseal(b)
		var r record
		if err := r.decode(b); err != nil {
			if !errors.Is(err, errBadRecord) {
				t.Fatal(err)
			}
			return
		}
		var sum int64
		for _, e := range r.exts {
			if e.Len <= 0 || e.Offset < 0 || e.Offset%blob.Align != 0 {
				t.Fatalf("extent %+v", e)
			}
			sum += e.Len
		}
		if r.kind == kindExtents && sum != r.size {
			t.Fatalf("extents of %d bytes, size %d", sum, r.size)
		}
		if r.kind == kindSegments && r.size > 0 {
			for _, off := range []int64{0, r.size / 2, r.size - 1} {
				i := r.findSegment(off)
				if r.segmentEnd(i) <= off || i > 0 && r.segmentEnd(i-1) > off {
					t.Fatalf("byte %d is not in segment %d", off, i)
				}
			}
		}
		info, err := r.describe("k", true)
		if err != nil {
			return
		}
		if info.Layout != nil {
			for n := range info.Parts {
				if x, ok := info.Part(n + 1); !ok || x.Size < 0 || x.Offset+x.Size > info.Size {
					t.Fatalf("part %d: %+v, %v", n+1, x, ok)
				}
			}
			info.Layout = nil // of the data part and the fields
		}
		again := appendDescription(nil, &info)
		d := record{desc: again, size: r.size}
		if got, err := d.describe("k", true); err != nil || !reflect.DeepEqual(got, info) {
			t.Fatalf("%+v, %v; was %+v", got, err, info)
		}
	})
}

func FuzzPart(f *testing.F) {
	p := part{segment: testID, size: 77, etag: strings.Repeat("ab", 16), modified: time.Unix(5, 0), sum: checksum.Sum{Algorithm: checksum.SHA1, Value: "x"}}
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 5 {
			b = reseal(b)
			b[0] = partVersion
		}
		var p, again part
		if p.decode(b) != nil {
			return
		}
		if err := again.decode(p.encode()); err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v, %v; was %+v", again, err, p)
		}
	})
}

func FuzzKeys(f *testing.F) {
	f.Add("a\x00b", "a", []byte("x\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"), []byte("0123456789abcdef\x05"))
	f.Fuzz(func(t *testing.T, a, b string, k, v []byte) {
		ka, kb := uploadKey(a, testID), uploadKey(b, ID{})
		if got, id, ok := parseUploadKey(ka); !ok || got != a || id != testID {
			t.Fatalf("%q came back as %q", a, got)
		}
		if a != b && (a < b) != (bytes.Compare(ka, kb) < 0) {
			t.Fatalf("uploads of %q and %q are out of order", a, b)
		}
		if e, owner, ok := parseExtent(k, v); ok {
			if !bytes.Equal(extentKey(e), k) || e.Len <= 0 || e.Offset < 0 {
				t.Fatalf("%+v", e)
			}
			if e2, o2, ok := parseExtent(k, extentValue(e, owner)); !ok || e2 != e || o2 != owner {
				t.Fatalf("%+v came back as %+v", e, e2)
			}
		}
		parseUploadKey(k)
	})
}

func FuzzBucket(f *testing.F) {
	b := bucket{Bucket: storage.Bucket{Name: "n", Owner: "o", Tenant: "t", Created: time.Unix(3, 4).UTC()}, part: "bxyz"}
	f.Add(b.encode())
	f.Fuzz(func(t *testing.T, v []byte) {
		b, err := decodeBucket("n", v)
		if err != nil {
			return
		}
		again, err := decodeBucket("n", b.encode())
		if err != nil || again.Bucket != b.Bucket || again.part != b.part {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}

func TestSuccessor(t *testing.T) {
	for _, c := range [][2]string{{"a", "b"}, {"a\xff", "b"}, {"o", "p"}, {"o\xff\xff", "p"}} {
		if got := successor([]byte(c[0])); string(got) != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
	if got := successor([]byte("\xff")); got != nil {
		t.Errorf("%q", got)
	}
}
