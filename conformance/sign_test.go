package conformance

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Amazon's own examples (Signature Calculations for the Authorization Header,
// for query parameters, and for chunked uploads) pin the suite's signer.

func amazonExample() signer {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	return signer{access: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", region: "us-east-1", at: at}
}

func TestSignHeader(t *testing.T) {
	r, err := http.NewRequest("GET", "https://examplebucket.s3.amazonaws.com/test.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Range", "bytes=0-9")
	if got, want := amazonExample().sign(r, emptySHA256), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestPresign(t *testing.T) {
	r, err := http.NewRequest("GET", "https://examplebucket.s3.amazonaws.com/test.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	amazonExample().presign(r, 24*time.Hour)
	if got, want := r.URL.Query().Get("X-Amz-Signature"), "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestSignChunks(t *testing.T) {
	s := amazonExample()
	r, err := http.NewRequest("PUT", "https://s3.amazonaws.com/examplebucket/chunkObject.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Storage-Class", "REDUCED_REDUNDANCY")
	r.Header.Set("Content-Encoding", "aws-chunked")
	r.Header.Set("X-Amz-Decoded-Content-Length", "66560")
	r.Header.Set("Content-Length", "66824")
	r.ContentLength = 66824
	seed := s.sign(r, signedChunks)
	if want := "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"; seed != want {
		t.Fatalf("seed signature %s, want %s", seed, want)
	}
	body := s.chunked([]byte(strings.Repeat("a", 66560)), 64<<10, signedChunks, seed, "")
	if len(body) != 66824 {
		t.Errorf("framed body has %d bytes, want 66824", len(body))
	}
	for _, sig := range []string{
		"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
		"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
		"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
	} {
		if !strings.Contains(string(body), sig) {
			t.Errorf("no chunk with %s", sig)
		}
	}
}

// The check values of the catalogue of CRC algorithms, and of the hashes.
func TestSums(t *testing.T) {
	for alg, want := range map[string]string{
		"CRC32":     "y/Q5Jg==",
		"CRC32C":    "4waSgw==",
		"CRC64NVME": "rosUhgp5mIg=",
		"SHA1":      "98O8HYCOBHMq32eZZczDTKeuNEE=",
		"SHA256":    "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
	} {
		if got := sums[alg]([]byte("123456789")); got != want {
			t.Errorf("%s of the check string is %s, want %s", alg, got, want)
		}
	}
}
