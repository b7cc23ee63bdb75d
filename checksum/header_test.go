package checksum

import (
	"errors"
	"net/http"
	"testing"
)

func headers(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}

func TestFromHeaders(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.Header
		want Sum
		bad  string // header named by the error
	}{
		{name: "none", h: headers("Content-Type", "x")},
		{name: "crc32", h: headers("x-amz-checksum-crc32", "AAAAAA=="), want: Sum{CRC32, FullObject, "AAAAAA=="}},
		{name: "with sdk", h: headers("x-amz-checksum-crc32", "AAAAAA==", "x-amz-sdk-checksum-algorithm", "crc32"),
			want: Sum{CRC32, FullObject, "AAAAAA=="}},
		{name: "mode, type and algorithm are no values",
			h: headers("x-amz-checksum-mode", "ENABLED", "x-amz-checksum-type", "COMPOSITE", "x-amz-checksum-algorithm", "CRC32")},
		{name: "sdk only", h: headers("x-amz-sdk-checksum-algorithm", "SHA256")},
		{name: "two kinds", h: headers("x-amz-checksum-crc32", "AAAAAA==", "x-amz-checksum-crc32c", "AAAAAA=="), bad: "any"},
		{name: "twice", h: headers("x-amz-checksum-crc32", "AAAAAA==", "x-amz-checksum-crc32", "AAAAAA=="), bad: "X-Amz-Checksum-Crc32"},
		{name: "bad value", h: headers("x-amz-checksum-sha1", "AAAAAA=="), bad: "X-Amz-Checksum-Sha1"},
		{name: "unknown", h: headers("x-amz-checksum-md5", "AAAAAA=="), bad: "X-Amz-Checksum-Md5"},
		{name: "unknown sdk", h: headers("x-amz-sdk-checksum-algorithm", "MD4"), bad: HeaderSDKAlgorithm},
		{name: "sdk contradicts", h: headers("x-amz-checksum-crc32", "AAAAAA==", "x-amz-sdk-checksum-algorithm", "SHA1"), bad: HeaderSDKAlgorithm},
	} {
		got, err := FromHeaders(c.h)
		var he *HeaderError
		switch {
		case c.bad == "" && (err != nil || got != c.want):
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		case c.bad != "" && (!errors.As(err, &he) || c.bad != "any" && he.Header != c.bad):
			t.Errorf("%s: %v, want an error naming %s", c.name, err, c.bad)
		}
	}
}

func TestForUpload(t *testing.T) {
	for _, c := range []struct {
		alg, typ string
		a        Algorithm
		t        Type
		ok       bool
	}{
		{"", "", None, "", true},
		{"CRC32", "", CRC32, Composite, true},
		{"CRC32C", "", CRC32C, Composite, true},
		{"CRC64NVME", "", CRC64NVME, FullObject, true},
		{"SHA1", "", SHA1, Composite, true},
		{"SHA256", "", SHA256, Composite, true},
		{"CRC32", "FULL_OBJECT", CRC32, FullObject, true},
		{"CRC32C", "full_object", CRC32C, FullObject, true},
		{"CRC32C", "COMPOSITE", CRC32C, Composite, true},
		{"CRC64NVME", "FULL_OBJECT", CRC64NVME, FullObject, true},
		{"SHA256", "COMPOSITE", SHA256, Composite, true},
		{"CRC64NVME", "COMPOSITE", None, "", false},
		{"SHA1", "FULL_OBJECT", None, "", false},
		{"SHA256", "FULL_OBJECT", None, "", false},
		{"", "COMPOSITE", None, "", false},
		{"MD5", "", None, "", false},
		{"CRC32", "HALF", None, "", false},
	} {
		h := http.Header{}
		if c.alg != "" {
			h.Set(HeaderAlgorithm, c.alg)
		}
		if c.typ != "" {
			h.Set(HeaderType, c.typ)
		}
		a, typ, err := ForUpload(h)
		var he *HeaderError
		if a != c.a || typ != c.t || (err == nil) != c.ok || err != nil && !errors.As(err, &he) {
			t.Errorf("%q %q: %s %s %v", c.alg, c.typ, a, typ, err)
		}
	}
	if _, _, err := ForUpload(headers(HeaderAlgorithm, "CRC32", HeaderAlgorithm, "SHA1")); err == nil {
		t.Error("two algorithms taken")
	}
}
