package payload

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/gateway/sigv4"
)

const (
	accessKey = "AKIAIOSFODNN7EXAMPLE"
	secretKey = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	amzDate   = "20130524T000000Z"
	scope     = "20130524/us-east-1/s3/aws4_request"
)

var when = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

func verifier(now time.Time) *sigv4.Verifier {
	return &sigv4.Verifier{
		Now:    func() time.Time { return now },
		Lookup: func(k string) (string, bool) { return secretKey, k == accessKey },
	}
}

// The signer of these tests is its own: HMAC chains spelled out from the
// specification, over the standard library.

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

func signingKey() []byte {
	return mac(mac(mac(mac([]byte("AWS4"+secretKey), "20130524"), "us-east-1"), "s3"), "aws4_request")
}

func hexSHA(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

// put makes a signed PUT with the given headers (x-amz-date and host are
// added); its body is what follows.
func put(h map[string]string) (r *http.Request, seed string) {
	r, err := http.NewRequest("PUT", "http://h/b/k", nil)
	if err != nil {
		panic(err)
	}
	names := []string{"host", "x-amz-date"}
	values := map[string]string{"host": "h", "x-amz-date": amzDate}
	for k, v := range h {
		k = strings.ToLower(k)
		names, values[k] = append(names, k), v
	}
	for i := range names { // few: insertion sort
		for j := i; j > 0 && names[j] < names[j-1]; j-- {
			names[j], names[j-1] = names[j-1], names[j]
		}
	}
	heads := ""
	for _, n := range names {
		heads += n + ":" + values[n] + "\n"
		if n != "host" {
			r.Header.Set(n, values[n])
		}
	}
	list := strings.Join(names, ";")
	cr := "PUT\n/b/k\n\n" + heads + "\n" + list + "\n" + values["x-amz-content-sha256"]
	seed = hex.EncodeToString(mac(signingKey(), "AWS4-HMAC-SHA256\n"+amzDate+"\n"+scope+"\n"+hexSHA([]byte(cr))))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+accessKey+"/"+scope+", SignedHeaders="+list+", Signature="+seed)
	return r, seed
}

// chunked frames data in chunks of the given sizes (the last repeats) and,
// with a seed, signs each. trailer lines follow, "name:value" each.
func chunked(data []byte, sizes []int, seed string, trailer ...string) []byte {
	var out bytes.Buffer
	prev, key := seed, signingKey()
	one := func(p []byte) {
		fmt.Fprintf(&out, "%x", len(p))
		if seed != "" {
			prev = hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256-PAYLOAD\n"+amzDate+"\n"+scope+"\n"+prev+"\n"+hexSHA(nil)+"\n"+hexSHA(p)))
			out.WriteString(";chunk-signature=" + prev)
		}
		out.WriteString("\r\n")
		if len(p) > 0 {
			out.Write(p)
			out.WriteString("\r\n")
		}
	}
	for i := 0; len(data) > 0; i++ {
		n := min(sizes[min(i, len(sizes)-1)], len(data))
		one(data[:n])
		data = data[n:]
	}
	one(nil)
	lines := ""
	for _, l := range trailer {
		out.WriteString(l + "\r\n")
		lines += l + "\n"
	}
	if seed != "" && len(trailer) > 0 {
		sig := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256-TRAILER\n"+amzDate+"\n"+scope+"\n"+prev+"\n"+hexSHA([]byte(lines))))
		out.WriteString("x-amz-trailer-signature:" + sig + "\r\n")
	}
	out.WriteString("\r\n")
	return out.Bytes()
}

func sumOf(a checksum.Algorithm, p []byte) string {
	h := checksum.New(a)
	h.Write(p)
	return checksum.Of(a, h).Value
}

func md5Of(p []byte) string {
	s := md5.Sum(p)
	return base64.StdEncoding.EncodeToString(s[:])
}

func random(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

// upload is a request in one of the forms, ready to be read.
type upload struct {
	name    string
	headers map[string]string
	body    func(seed string) []byte
}

// forms are all ways to send data right, with checksum a.
func forms(data []byte, a checksum.Algorithm) []upload {
	size := strconv.Itoa(len(data))
	v, head := sumOf(a, data), strings.ToLower(a.Header())
	plain := func(string) []byte { return data }
	return []upload{
		{"unsigned", map[string]string{"x-amz-content-sha256": "UNSIGNED-PAYLOAD", head: v}, plain},
		{"signed", map[string]string{"x-amz-content-sha256": hexSHA(data), head: v, "content-md5": md5Of(data)}, plain},
		{"unsigned trailer", map[string]string{"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-trailer": head,
			"x-amz-decoded-content-length": size, "x-amz-sdk-checksum-algorithm": string(a)},
			func(string) []byte { return chunked(data, []int{1, 8192, 65536}, "", head+":"+v) }},
		{"signed chunks", map[string]string{"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "x-amz-decoded-content-length": size, head: v},
			func(seed string) []byte { return chunked(data, []int{65536, 1, 10000}, seed) }},
		{"signed chunks and trailer", map[string]string{"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
			"x-amz-decoded-content-length": size, "x-amz-trailer": head},
			func(seed string) []byte { return chunked(data, []int{65536}, seed, head+":"+v) }},
	}
}

// open verifies the request and prepares its body.
func (u upload) open(t testing.TB, wrap func(io.Reader) io.Reader, o Options) (*Body, []byte, error) {
	t.Helper()
	r, seed := put(u.headers)
	raw := u.body(seed)
	b, err := open(t, r, raw, wrap, o)
	return b, raw, err
}

func open(t testing.TB, r *http.Request, raw []byte, wrap func(io.Reader) io.Reader, o Options) (*Body, error) {
	t.Helper()
	var src io.Reader = bytes.NewReader(raw)
	if wrap != nil {
		src = wrap(src)
	}
	r.Body, r.ContentLength = io.NopCloser(src), int64(len(raw))
	res, err := verifier(when).Verify(r)
	if err != nil {
		t.Fatal(err)
	}
	return New(r, res, o)
}

// code is the S3 code of err.
func code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}
