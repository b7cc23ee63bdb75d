package sigv4

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	exampleKey    = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

var exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

func lookupExample(k string) (string, bool) { return exampleSecret, k == exampleKey }

func verifierAt(t time.Time) *Verifier {
	return &Verifier{Now: func() time.Time { return t }, Lookup: lookupExample}
}

// received parses wire text as net/http's server does.
func received(t testing.TB, text string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return r
}

// wire sends r through its wire form and back.
func wire(t testing.TB, r *http.Request) *http.Request {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return received(t, b.String())
}

func lines(s ...string) string { return strings.Join(s, "\r\n") + "\r\n\r\n" }

func authHeader(signed, signature string) string {
	return "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=" +
		signed + ",Signature=" + signature
}

// The examples of the Amazon S3 API reference, "Authenticating Requests: Using
// the Authorization Header" and "Using Query Parameters".
var published = []struct {
	name, text string
	payload    Payload
}{
	{"get with a range", lines("GET /test.txt HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "Range: bytes=0-9",
		"x-amz-content-sha256: "+EmptySHA256, "x-amz-date: 20130524T000000Z",
		authHeader("host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")), PayloadSigned},
	{"put", lines("PUT /test$file.text HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "Date: Fri, 24 May 2013 00:00:00 GMT",
		"x-amz-date: 20130524T000000Z", "x-amz-storage-class: REDUCED_REDUNDANCY",
		"x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
		authHeader("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd")), PayloadSigned},
	{"get lifecycle", lines("GET /?lifecycle HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "x-amz-date: 20130524T000000Z",
		"x-amz-content-sha256: "+EmptySHA256,
		authHeader("host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")), PayloadSigned},
	{"list", lines("GET /?max-keys=2&prefix=J HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "x-amz-date: 20130524T000000Z",
		"x-amz-content-sha256: "+EmptySHA256,
		authHeader("host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")), PayloadSigned},
	{"presigned get", lines("GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"+
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"+
		"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1",
		"Host: examplebucket.s3.amazonaws.com"), PayloadUnsigned},
	{"chunked upload", lines("PUT /examplebucket/chunkObject.txt HTTP/1.1", "Host: s3.amazonaws.com", "x-amz-date: 20130524T000000Z",
		"x-amz-storage-class: REDUCED_REDUNDANCY", "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "Content-Encoding: aws-chunked",
		"x-amz-decoded-content-length: 66560", "Content-Length: 66824",
		authHeader("content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
			"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9")), PayloadChunks},
	{"chunked upload with a trailer", lines("PUT /examplebucket/chunkObject.txt HTTP/1.1", "Host: s3.amazonaws.com", "x-amz-date: 20130524T000000Z",
		"x-amz-storage-class: REDUCED_REDUNDANCY", "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "Content-Encoding: aws-chunked",
		"x-amz-decoded-content-length: 66560", "x-amz-trailer: x-amz-checksum-crc32c", "Content-Length: 66824",
		authHeader("content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
			"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e")), PayloadChunksTrailer},
}

func TestPublishedExamples(t *testing.T) {
	for _, c := range published {
		res, err := verifierAt(exampleTime).Verify(received(t, c.text))
		if err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, err.(*Error).CanonicalRequest)
			continue
		}
		if res.AccessKey != exampleKey || res.Region != "us-east-1" || res.Payload != c.payload || res.Anonymous {
			t.Errorf("%s: %+v", c.name, res)
		}
		if res.Presigned != (c.name == "presigned get") || !res.IsSigned("Host") || res.IsSigned("x-amz-meta-none") {
			t.Errorf("%s: presigned %v, signed headers %v", c.name, res.Presigned, res.SignedHeaders)
		}
	}
}

// The chunk signatures of "Signature Calculations for the Authorization
// Header: Transferring Payload in Multiple Chunks", and of its page on trailers.
func TestPublishedChunks(t *testing.T) {
	a := bytes.Repeat([]byte("a"), 65536)
	for _, c := range []struct {
		name    string
		sigs    [3]string
		trailer string
	}{
		{"chunked upload", [3]string{
			"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
			"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
			"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"}, ""},
		{"chunked upload with a trailer", [3]string{
			"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
			"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
			"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"},
			"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"},
	} {
		for _, p := range published {
			if p.name != c.name {
				continue
			}
			res, err := verifierAt(exampleTime).Verify(received(t, p.text))
			if err != nil {
				t.Fatal(err)
			}
			ch := res.Chunks()
			for i, n := range []int{65536, 1024, 0} {
				sum := sha256.Sum256(a[:n])
				if !ch.Verify([]byte(c.sigs[i]), &sum) {
					t.Fatalf("%s: chunk %d does not verify", c.name, i)
				}
			}
			if c.trailer != "" {
				sum := sha256.Sum256([]byte("x-amz-checksum-crc32c:sOO8/Q==\n"))
				if !ch.VerifyTrailer([]byte(c.trailer), &sum) {
					t.Errorf("%s: the trailer does not verify", c.name)
				}
				sum[0]++
				if ch.VerifyTrailer([]byte(c.trailer), &sum) {
					t.Errorf("%s: another trailer verifies", c.name)
				}
			}
			ch = res.Chunks()
			sum := sha256.Sum256(a[:1024])
			if ch.Verify([]byte(c.sigs[0]), &sum) || ch.Verify(nil, &sum) {
				t.Errorf("%s: another chunk verifies", c.name)
			}
		}
	}
}

func TestHMACMatchesStandard(t *testing.T) {
	for n := range 300 {
		key := sha256.Sum256([]byte{byte(n), byte(n >> 8)})
		msg := bytes.Repeat([]byte{byte(n)}, n)
		buf := append(make([]byte, hmacBlock), msg...)
		got := hmacSum(&key, buf)
		if want := mac(key[:], string(msg)); !bytes.Equal(got[:], want) {
			t.Fatalf("message of %d bytes: %x, want %x", n, got, want)
		}
		if !bytes.Equal(buf[hmacBlock:], msg) {
			t.Fatal("the message was changed")
		}
	}
}

// Verify must not touch the body: reading it is what makes the server say
// "100 Continue".
func TestBodyIsNotRead(t *testing.T) {
	r := received(t, published[5].text)
	r.Body = io.NopCloser(untouchable{t})
	if _, err := verifierAt(exampleTime).Verify(r); err != nil {
		t.Fatal(err)
	}
}

type untouchable struct{ t testing.TB }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func BenchmarkVerifyHeader(b *testing.B) { benchmark(b, published[0].text) }
func BenchmarkVerifyChunked(b *testing.B) {
	benchmark(b, published[6].text)
}
func BenchmarkVerifyPresigned(b *testing.B) { benchmark(b, published[4].text) }

func benchmark(b *testing.B, text string) {
	v := verifierAt(exampleTime)
	r := received(b, text)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkChunk(b *testing.B) {
	res, err := verifierAt(exampleTime).Verify(received(b, published[5].text))
	if err != nil {
		b.Fatal(err)
	}
	ch := res.Chunks()
	sum := sha256.Sum256(nil)
	sig := []byte("ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648")
	b.ReportAllocs()
	for b.Loop() {
		ch.Verify(sig, &sum)
	}
}

func TestAllocations(t *testing.T) {
	v := verifierAt(exampleTime)
	for _, c := range []struct {
		text string
		max  float64
	}{
		{published[0].text, 3}, // the Result and its list of headers, and one to spare
		{published[4].text, 16},
	} {
		r := received(t, c.text)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := v.Verify(r); err != nil {
				t.Fatal(err)
			}
		}); n > c.max && !raceEnabled {
			t.Errorf("%v allocations per request, want at most %v", n, c.max)
		}
	}
	res, err := v.Verify(received(t, published[5].text))
	if err != nil {
		t.Fatal(err)
	}
	ch := res.Chunks()
	sum := sha256.Sum256(nil)
	sig := make([]byte, hexSize)
	if n := testing.AllocsPerRun(100, func() { ch.Verify(sig, &sum) }); n != 0 {
		t.Errorf("%v allocations per chunk", n)
	}
}
