package object

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// written returns an entry as a program of store version 1 wrote it.
func written(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "v1", name))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVersion1 reads what the first version of the store wrote.
func TestVersion1(t *testing.T) {
	plain := storage.ObjectInfo{
		Key: "k", ETag: "0123456789abcdef0123456789abcdef", Modified: time.Unix(1700000000, 123456789).UTC(),
		Checksum: checksum.Sum{Algorithm: checksum.SHA256, Type: checksum.FullObject, Value: "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="},
		Headers:  map[string]string{"Content-Type": "text/plain", "Expires": "never"}, UserMeta: map[string]string{"color": "blue"},
		Chain: storage.Chain{Parent: "before", Index: 7},
	}
	for name, size := range map[string]int64{"object-inline": 5, "object-extents": 70000, "object-segments": 5<<20 + 10} {
		var r record
		if err := r.decode(written(t, name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := plain
		want.Size = size
		if name == "object-segments" {
			want.ETag, want.Parts = plain.ETag+"-2", 2
			want.Checksum = checksum.Sum{Algorithm: checksum.CRC32, Type: checksum.Composite, Value: "AAAAAA==-2"}
		}
		got, err := r.describe("k", true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "object-segments" {
			if x, ok := got.Part(2); !ok || x != (storage.ObjectPart{Number: 2, Offset: 5 << 20, Size: 10}) {
				t.Errorf("%s: second part %+v", name, x)
			}
			got.Layout = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	u, err := decodeUpload("k", written(t, "upload"), true)
	if err != nil || u.id != testID || u.info.Checksum != (checksum.Sum{Algorithm: checksum.CRC32, Type: checksum.Composite}) || u.info.UserMeta["color"] != "blue" {
		t.Errorf("upload: %+v, %v", u, err)
	}
	var p part
	want := part{segment: testID, size: 77, etag: plain.ETag, modified: time.Unix(1700000000, 5).UTC(), sum: checksum.Sum{Algorithm: checksum.CRC32, Type: checksum.FullObject, Value: "y/Q5Jg=="}}
	if err := p.decode(written(t, "part")); err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("part: %+v, %v; want %+v", p, err, want)
	}
	b, err := decodeBucket("n", written(t, "bucket"))
	if err != nil || b.Bucket != (storage.Bucket{Name: "n", Owner: "o", Tenant: "t", Created: time.Unix(1700000000, 4).UTC()}) || b.part != "bxyz" {
		t.Errorf("bucket: %+v, %v", b, err)
	}
}

// TestUpgrade opens a store that version 1 left: it is marked before anything
// is written that version 1 could not read, and one of the future is refused.
func TestUpgrade(t *testing.T) {
	w := new(world)
	m := newMemMeta(w)
	put := func(v []byte) {
		t.Helper()
		var b meta.Batch
		b.Set([]byte{sysStore}, v)
		if err := m.Apply(bg, sysPartition, &b); err != nil {
			t.Fatal(err)
		}
	}
	put(written(t, "store"))
	b := newMemBlob(w, 1<<20)
	s := openMem(t, m, b, Options{})
	if s.UUID() != "00112233445566778899aabbccddeeff" {
		t.Errorf("UUID %s", s.UUID())
	}
	v, err := m.Get(bg, sysPartition, []byte{sysStore}, nil)
	if err != nil || len(v) == 0 || v[0] != Version || !bytes.Equal(v[1:], written(t, "store")[1:]) {
		t.Fatalf("the store's entry is %x, %v", v, err)
	}
	s.mustClose(t)
	put(append([]byte{Version + 1}, v[1:]...))
	if _, err := Open(bg, m, b, Options{}); err == nil {
		t.Error("a store of the future was opened")
	}
}

// TestFieldsRefuse: a field out of order, unknown, cut or twice is damage.
func TestFieldsRefuse(t *testing.T) {
	upload := appendUploadField(nil, ID{1}, 2)
	sums := appendField(nil, fieldPartSums, []byte("aaaa"))
	for name, b := range map[string][]byte{
		"order": append(bytes.Clone(upload), sums...), "twice": append(bytes.Clone(sums), sums...), "zero": {0, 0},
		"unknown": {99, 0}, "cut": sums[:4], "no length": {fieldPartSums}, "short": {fieldUpload, 1, 0},
	} {
		r := record{kind: kindInline, desc: append(appendDescription(nil, &storage.ObjectInfo{}), b...)}
		if _, err := r.describe("k", true); !errors.Is(err, errBadRecord) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.describe("k", false); err != nil {
			t.Errorf("%s: a listing looked at it: %v", name, err)
		}
	}
}
