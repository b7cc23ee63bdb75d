package conformance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The suite signs by itself what the SDKs cannot be made to send: this is a
// second account of Signature V4, written from Amazon's description of it and
// sharing nothing with the server.

// Payload hashes with a meaning of their own.
const (
	unsignedPayload   = "UNSIGNED-PAYLOAD"
	unsignedTrailer   = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks      = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedChunksTrail = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	emptySHA256       = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	amzTime           = "20060102T150405Z"
	algorithm         = "AWS4-HMAC-SHA256"
)

// signer holds what a signature needs.
type signer struct {
	access, secret, region string
	at                     time.Time
}

func (s signer) scope() string { return s.at.Format("20060102") + "/" + s.region + "/s3/aws4_request" }

func mac(key []byte, data string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(data))
	return h.Sum(nil)
}

func hexSHA256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (s signer) signature(toSign string) string {
	k := mac([]byte("AWS4"+s.secret), s.at.Format("20060102"))
	k = mac(k, s.region)
	k = mac(k, "s3")
	k = mac(k, "aws4_request")
	return hex.EncodeToString(mac(k, toSign))
}

// uriEncode is Amazon's: everything but unreserved characters, in upper-case hex.
func uriEncode(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// encodePath is uriEncode that leaves slashes.
func encodePath(p string) string { return strings.ReplaceAll(uriEncode(p), "%2F", "/") }

func canonicalQuery(q url.Values) string {
	names := slices.SortedFunc(maps.Keys(q), func(a, b string) int { return strings.Compare(uriEncode(a), uriEncode(b)) })
	var parts []string
	for _, k := range names {
		for _, v := range slices.Sorted(slices.Values(q[k])) {
			parts = append(parts, uriEncode(k)+"="+uriEncode(v))
		}
	}
	return strings.Join(parts, "&")
}

// canonical returns the canonical request and the list of signed headers. The
// path is encoded anew, whatever form it is sent in.
func canonical(r *http.Request, q url.Values, names []string, payload string) (string, string) {
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(r.Method + "\n" + encodePath(r.URL.Path) + "\n" + canonicalQuery(q) + "\n")
	for _, n := range names {
		v := strings.Join(r.Header.Values(n), ",")
		if n == "host" {
			v = r.Host
		} else if n == "content-length" {
			v = strconv.FormatInt(r.ContentLength, 10)
		}
		b.WriteString(n + ":" + strings.Join(strings.Fields(v), " ") + "\n")
	}
	signed := strings.Join(names, ";")
	b.WriteString("\n" + signed + "\n" + payload)
	return b.String(), signed
}

func (s signer) toSign(canonicalRequest string) string {
	return algorithm + "\n" + s.at.Format(amzTime) + "\n" + s.scope() + "\n" + hexSHA256([]byte(canonicalRequest))
}

// sign adds date, payload hash and Authorization; it signs the host, and every
// header that is set but for those in skip. It returns the signature, which
// seeds the chunk signatures.
func (s signer) sign(r *http.Request, payload string, skip ...string) string {
	r.Header.Set("X-Amz-Date", s.at.Format(amzTime))
	r.Header.Set("X-Amz-Content-Sha256", payload)
	names := []string{"host"}
	for n := range r.Header {
		if n = strings.ToLower(n); !slices.Contains(skip, n) {
			names = append(names, n)
		}
	}
	c, signed := canonical(r, r.URL.Query(), names, payload)
	sig := s.signature(s.toSign(c))
	r.Header.Set("Authorization", algorithm+" Credential="+s.access+"/"+s.scope()+",SignedHeaders="+signed+",Signature="+sig)
	return sig
}

// presign adds the query form of a signature.
func (s signer) presign(r *http.Request, expires time.Duration) {
	names := []string{"host"}
	for n := range r.Header {
		names = append(names, strings.ToLower(n))
	}
	slices.Sort(names)
	q := r.URL.Query()
	q.Set("X-Amz-Algorithm", algorithm)
	q.Set("X-Amz-Credential", s.access+"/"+s.scope())
	q.Set("X-Amz-Date", s.at.Format(amzTime))
	q.Set("X-Amz-Expires", strconv.Itoa(int(expires/time.Second)))
	q.Set("X-Amz-SignedHeaders", strings.Join(names, ";"))
	c, _ := canonical(r, q, names, unsignedPayload)
	q.Set("X-Amz-Signature", s.signature(s.toSign(c)))
	r.URL.RawQuery = q.Encode()
}

// chunked frames body as aws-chunked in pieces of size bytes. mode is one of
// the streaming payload hashes; seed is the request's signature; trailer, if
// not empty, is one "name:value".
func (s signer) chunked(body []byte, size int, mode, seed, trailer string) []byte {
	var out []byte
	prev := seed
	signed := mode != unsignedTrailer
	frame := func(p []byte) {
		out = strconv.AppendInt(out, int64(len(p)), 16)
		if signed {
			prev = s.signature(strings.Join([]string{"AWS4-HMAC-SHA256-PAYLOAD", s.at.Format(amzTime), s.scope(), prev, emptySHA256, hexSHA256(p)}, "\n"))
			out = append(out, ";chunk-signature="+prev...)
		}
		out = append(out, "\r\n"...)
		out = append(out, p...)
		if len(p) > 0 {
			out = append(out, "\r\n"...)
		}
	}
	for rest := body; len(rest) > 0; {
		n := min(size, len(rest))
		frame(rest[:n])
		rest = rest[n:]
	}
	frame(nil)
	if trailer != "" {
		out = append(out, trailer+"\r\n"...)
		if mode == signedChunksTrail {
			sig := s.signature(strings.Join([]string{"AWS4-HMAC-SHA256-TRAILER", s.at.Format(amzTime), s.scope(), prev, hexSHA256([]byte(trailer + "\n"))}, "\n"))
			out = append(out, "x-amz-trailer-signature:"+sig+"\r\n"...)
		}
	}
	return append(out, "\r\n"...)
}
