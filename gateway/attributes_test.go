package gateway

import (
	"encoding/xml"
	"fmt"
	"slices"
	"testing"
)

// attributes is a client's view of the answer.
type attributes struct {
	ETag     string
	Checksum struct{ ChecksumCRC32, ChecksumCRC64NVME, ChecksumType string }
	Parts    *struct {
		PartsCount, PartNumberMarker, NextPartNumberMarker, MaxParts int
		IsTruncated                                                  bool
		Part                                                         []struct {
			PartNumber                       int
			Size                             int64
			ChecksumCRC32, ChecksumCRC64NVME string
		}
	} `xml:"ObjectParts"`
	StorageClass string
	ObjectSize   string
}

func (h *harness) attributes(t *testing.T, target string, header ...string) (a attributes) {
	t.Helper()
	q := wireRequest{method: "GET", target: target + "?attributes", header: map[string]string{}}
	for i := 0; i < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	got := h.want(t, 200, q)
	if err := xml.Unmarshal(got.body, &a); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	if got.Header.Get("Last-Modified") == "" {
		t.Error("no Last-Modified")
	}
	return a
}

func TestObjectAttributes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("hello"), "x-amz-checksum-crc32", crcOf([]byte("hello")))
	const every = "ETag,Checksum,ObjectParts, StorageClass,ObjectSize"
	a := h.attributes(t, "/box/k", "x-amz-object-attributes", every)
	if a.ETag != "5d41402abc4b2a76b9719d911017c592" || a.Checksum.ChecksumCRC32 != crcOf([]byte("hello")) || a.Checksum.ChecksumType != "FULL_OBJECT" ||
		a.Parts != nil || a.StorageClass != "STANDARD" || a.ObjectSize != "5" {
		t.Errorf("%+v", a)
	}
	if a := h.attributes(t, "/box/k", "x-amz-object-attributes", "ETag"); a.ETag == "" || a.ObjectSize != "" || a.StorageClass != "" || a.Checksum.ChecksumType != "" {
		t.Errorf("only the ETag: %+v", a)
	}
	h.put(t, "/box/none", nil)
	if a := h.attributes(t, "/box/none", "x-amz-object-attributes", "ObjectSize"); a.ObjectSize != "0" {
		t.Errorf("an empty object: %+v", a)
	}

	parts := [][]byte{content(1, 5<<20), content(2, 5<<20+9), content(3, 7)}
	h.multipart(t, "/box/mp", parts, nil, nil)
	a = h.attributes(t, "/box/mp", "x-amz-object-attributes", every)
	if a.Checksum.ChecksumCRC64NVME != nvmeOf(slices.Concat(parts...)) || a.Parts == nil || a.Parts.PartsCount != 3 || len(a.Parts.Part) != 3 || a.Parts.IsTruncated {
		t.Fatalf("%+v", a)
	}
	for i, p := range a.Parts.Part {
		if p.PartNumber != i+1 || p.Size != int64(len(parts[i])) || p.ChecksumCRC64NVME != nvmeOf(parts[i]) {
			t.Errorf("part %d: %+v", i+1, p)
		}
	}
	for _, c := range []struct {
		after, limit int
		want         []int
		truncated    bool
		next         int
	}{
		{0, 2, []int{1, 2}, true, 2}, {2, 2, []int{3}, false, 3}, {1, 1, []int{2}, true, 2}, {3, 5, nil, false, 0}, {77, 1000, nil, false, 0}, {0, 0, nil, false, 0},
		{1<<31 - 1, 1000, nil, false, 0},
	} {
		a := h.attributes(t, "/box/mp", "x-amz-object-attributes", "ObjectParts", "x-amz-max-parts", fmt.Sprint(c.limit), "x-amz-part-number-marker", fmt.Sprint(c.after))
		var got []int
		for _, p := range a.Parts.Part {
			got = append(got, p.PartNumber)
		}
		if !slices.Equal(got, c.want) || a.Parts.IsTruncated != c.truncated || a.Parts.NextPartNumberMarker != c.next || a.Parts.PartNumberMarker != c.after || a.Parts.MaxParts != c.limit {
			t.Errorf("%+v: %+v", c, a.Parts)
		}
	}
	for _, hd := range []map[string]string{
		nil, {"x-amz-object-attributes": ""}, {"x-amz-object-attributes": "ETag,Colour"}, {"x-amz-object-attributes": "etag"},
		{"x-amz-object-attributes": "ETag", "x-amz-max-parts": "many"}, {"x-amz-object-attributes": "ETag", "x-amz-part-number-marker": "-1"},
	} {
		h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/box/mp?attributes", header: hd})
	}
	h.wantCode(t, "NoSuchKey", wireRequest{method: "GET", target: "/box/gone?attributes", header: map[string]string{"x-amz-object-attributes": "ETag"}})
}
