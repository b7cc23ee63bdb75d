package payload

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	miniocreds "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/gateway/sigv4"
)

// sink is a server that verifies each request and keeps what it brought.
type sink struct {
	mu   sync.Mutex
	kind sigv4.Payload
	data []byte
	sum  checksum.Sum
	enc  string
	err  error
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data, s.sum, s.enc = nil, checksum.Sum{}, ContentEncoding(r.Header)
	var res *sigv4.Result
	if res, s.err = verifier(time.Now()).Verify(r); s.err == nil {
		s.kind = res.Payload
		var b *Body
		if b, s.err = New(r, res, Options{}); s.err == nil {
			if s.data, s.err = b.ReadAll(64 << 20); s.err == nil {
				s.sum = b.Sum()
				w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
				return
			}
		}
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusForbidden)
}

func (s *sink) check(t *testing.T, name string, clientErr error, data []byte, a checksum.Algorithm) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if clientErr != nil || s.err != nil || !bytes.Equal(s.data, data) {
		t.Errorf("%s: client %v, server %v, %d of %d bytes", name, clientErr, s.err, len(s.data), len(data))
		return
	}
	if a != checksum.None && (s.sum.Algorithm != a || s.sum.Value != sumOf(a, data)) {
		t.Errorf("%s: kind %d, sum %v, want %s %s", name, s.kind, s.sum, a, sumOf(a, data))
	}
	if s.enc != "" {
		t.Errorf("%s: Content-Encoding %q would be stored", name, s.enc)
	}
}

// What today's SDKs really send, over HTTP and TLS.
func TestSDKs(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := new(sink)
		srv := httptest.NewUnstartedServer(s)
		if secure {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		t.Cleanup(srv.Close)
		kinds := map[sigv4.Payload]bool{}
		for _, size := range []int{0, 1, 65536, 65537, 3<<20 + 1} {
			data := random(size, 9)
			for _, a := range checksum.Algorithms {
				if size > 1<<20 && a != checksum.CRC32 {
					continue
				}
				// aws-sdk-go-v2 builds its HTTP client around the server's certificate.
				c := s3.New(s3.Options{
					Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), UsePathStyle: true, HTTPClient: srv.Client(),
					Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""), RetryMaxAttempts: 1,
				})
				_, err := c.PutObject(context.Background(), &s3.PutObjectInput{
					Bucket: aws.String("bucket"), Key: aws.String("a key/with+odd ~*%bytes"), Body: bytes.NewReader(data),
					ChecksumAlgorithm: types.ChecksumAlgorithm(a), Metadata: map[string]string{"a": "b  c"},
				})
				s.check(t, fmt.Sprintf("aws, TLS %v, %d bytes, %s", secure, size, a), err, data, a)
				kinds[s.kind] = true
			}
			for _, m := range []struct {
				ct minio.ChecksumType
				a  checksum.Algorithm
			}{
				{minio.ChecksumNone, checksum.None}, {minio.ChecksumCRC32, checksum.CRC32}, {minio.ChecksumCRC32C, checksum.CRC32C},
				{minio.ChecksumCRC64NVME, checksum.CRC64NVME}, {minio.ChecksumSHA1, checksum.SHA1}, {minio.ChecksumSHA256, checksum.SHA256},
			} {
				// Checksums need trailing headers in minio-go.
				mc, err := minio.New(srv.Listener.Addr().String(), &minio.Options{
					Creds: miniocreds.NewStaticV4(accessKey, secretKey, ""), Secure: secure, Region: "us-east-1",
					Transport: srv.Client().Transport, TrailingHeaders: m.a != checksum.None, MaxRetries: 1,
				})
				if err != nil {
					t.Fatal(err)
				}
				opts := minio.PutObjectOptions{DisableMultipart: true, Checksum: m.ct}
				_, err = mc.PutObject(context.Background(), "bucket", "k y+/%~é", bytes.NewReader(data), int64(size), opts)
				want := m.a
				if size == 0 {
					want = checksum.None // minio-go sends none with nothing
				}
				s.check(t, fmt.Sprintf("minio, TLS %v, %d bytes, %s", secure, size, m.a), err, data, want)
				kinds[s.kind] = true
			}
		}
		t.Logf("TLS %v: payload kinds seen: %v", secure, kinds)
		for _, k := range map[bool][]sigv4.Payload{
			false: {sigv4.PayloadSigned, sigv4.PayloadChunks, sigv4.PayloadChunksTrailer},
			true:  {sigv4.PayloadUnsignedTrailer},
		}[secure] {
			if !kinds[k] {
				t.Errorf("TLS %v: no SDK sent payload kind %d", secure, k)
			}
		}
	}
}

// A client that waits for "100 Continue" is told so by the first Read and not
// before: a refused request sends no byte of its body.
func TestExpectContinue(t *testing.T) {
	for _, good := range []bool{true, false} {
		data := []byte("the body")
		var before int
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// On a copy: a server that finds another body in its own request takes
			// the client for one that sends without being asked, and waits for it.
			count := &countReads{ReadCloser: r.Body}
			r = r.WithContext(r.Context())
			r.Body = count
			res, err := verifier(when).Verify(r)
			if err != nil {
				before = count.n
				w.WriteHeader(http.StatusForbidden)
				return
			}
			b, err := New(r, res, Options{})
			before = count.n
			if err == nil {
				var got []byte
				if got, err = b.ReadAll(100); err == nil && bytes.Equal(got, data) {
					return
				}
			}
			t.Errorf("after 100 Continue: %v", err)
		}))
		r, _ := put(map[string]string{"x-amz-content-sha256": hexSHA(data)})
		if !good {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "Signature=", "Signature=0", 1))
		}
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var head bytes.Buffer
		fmt.Fprintf(&head, "PUT /b/k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: %d\r\n", len(data))
		if err := r.Header.Write(&head); err != nil {
			t.Fatal(err)
		}
		head.WriteString("\r\n")
		if _, err := conn.Write(head.Bytes()); err != nil {
			t.Fatal(err)
		}
		rd := bufio.NewReader(conn)
		first, err := rd.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "HTTP/1.1 100 Continue\r\n", false: "HTTP/1.1 403 Forbidden\r\n"}[good]
		if first != want {
			t.Errorf("good %v: the first line is %q, want %q", good, first, want)
		}
		if good {
			if _, err := conn.Write(data); err != nil {
				t.Fatal(err)
			}
			if _, err := rd.ReadString('\n'); err != nil { // the empty line of the 100
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(rd, nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("after the body: %v, %v", resp, err)
			}
		}
		conn.Close()
		srv.Close()
		if before != 0 {
			t.Errorf("good %v: %d reads of the body before it was authenticated", good, before)
		}
	}
}

type countReads struct {
	io.ReadCloser
	n int
}

func (c *countReads) Read(p []byte) (int, error) {
	c.n++
	return c.ReadCloser.Read(p)
}
