package gateway

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/storage/object"
)

// golden compares got with a file, or writes it when GOLDEN=update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".xml")
	if os.Getenv("GOLDEN") == "update" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != strings.TrimSuffix(string(want), "\n") {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}

// TestDocuments compares the documents of successful requests with golden
// files; the clock and the ids are fixed.
func TestDocuments(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
	store, _ := openStoreWith(t, object.Options{
		Now:  func() time.Time { return at },
		Rand: rand.NewChaCha8([32]byte{1}),
	})
	h := newHarness(t, func(c *Config) {
		c.Store, c.Now = store, func() time.Time { return at }
	})
	do := func(q wireRequest) []byte {
		t.Helper()
		q.at = at
		return h.want(t, 200, q).body
	}
	do(wireRequest{method: "PUT", target: "/box"})
	do(wireRequest{method: "PUT", target: "/other"})
	do(wireRequest{method: "PUT", target: "/box/a%20%3C%26%2B", body: []byte("hello"), header: map[string]string{"x-amz-checksum-crc32": crcOf([]byte("hello"))}})
	do(wireRequest{method: "PUT", target: "/box/dir/b", body: []byte("world")})
	golden(t, "ListBuckets", do(wireRequest{method: "GET", target: "/"}))
	golden(t, "ListBucketsPage", do(wireRequest{method: "GET", target: "/?max-buckets=1"}))
	golden(t, "GetBucketLocation", do(wireRequest{method: "GET", target: "/box?location"}))
	golden(t, "ListObjects", do(wireRequest{method: "GET", target: "/box?delimiter=/&max-keys=1"}))
	golden(t, "ListObjectsV2", do(wireRequest{method: "GET", target: "/box?list-type=2&max-keys=1&fetch-owner=true"}))
	golden(t, "ListObjectsV2URL", do(wireRequest{method: "GET", target: "/box?list-type=2&delimiter=/&encoding-type=url&start-after=A%20"}))
	golden(t, "CopyObject", do(wireRequest{method: "PUT", target: "/other/c", header: map[string]string{"x-amz-copy-source": "box/a%20%3C%26%2B"}}))
	up := do(wireRequest{method: "POST", target: "/box/mp?uploads", header: map[string]string{"x-amz-checksum-algorithm": "CRC32"}})
	golden(t, "CreateMultipartUpload", up)
	id := element(up, "UploadId")
	do(wireRequest{method: "PUT", target: "/box/mp?partNumber=1&uploadId=" + id, body: []byte("hello"), header: map[string]string{"x-amz-checksum-crc32": crcOf([]byte("hello"))}})
	golden(t, "UploadPartCopy", do(wireRequest{method: "PUT", target: "/box/mp?partNumber=2&uploadId=" + id, header: map[string]string{"x-amz-copy-source": "box/dir/b"}}))
	golden(t, "ListParts", do(wireRequest{method: "GET", target: "/box/mp?uploadId=" + id}))
	golden(t, "ListMultipartUploads", do(wireRequest{method: "GET", target: "/box?uploads"}))
	done := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>5d41402abc4b2a76b9719d911017c592</ETag></Part></CompleteMultipartUpload>"
	golden(t, "CompleteMultipartUpload", do(wireRequest{method: "POST", target: "/mp?uploadId=" + id, host: "box.s3.test", body: []byte(done)}))
	del := "<Delete><Object><Key>mp</Key></Object><Object><Key>none</Key></Object><Object><Key>dir/b</Key><VersionId>1</VersionId></Object></Delete>"
	golden(t, "DeleteObjects", do(wireRequest{method: "POST", target: "/box?delete", body: []byte(del), header: map[string]string{"x-amz-checksum-crc32": crcOf([]byte(del))}}))
}
