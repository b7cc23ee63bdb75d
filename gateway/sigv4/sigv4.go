// Package sigv4 checks AWS Signature Version 4 on requests as a server sees
// them: signatures in the Authorization header, presigned URLs, and the chain
// of chunk and trailer signatures of streamed bodies.
//
// It does not read the body. What the signature says about the body is in
// Result; package payload holds the body to it.
package sigv4

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	algorithm  = "AWS4-HMAC-SHA256"
	terminator = "aws4_request"
	timeFormat = "20060102T150405Z"

	// DefaultMaxSkew is how far a client's clock may be off, as in S3.
	DefaultMaxSkew = 15 * time.Minute
	// MaxExpires is the longest life of a presigned URL, as in S3.
	MaxExpires = 7 * 24 * time.Hour
)

// EmptySHA256 is the SHA-256 of nothing, in hex.
const EmptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Payload says what the signature covers of the body.
type Payload uint8

// The forms of x-amz-content-sha256.
const (
	PayloadUnsigned        Payload = iota // UNSIGNED-PAYLOAD
	PayloadSigned                         // the hex SHA-256 of the body
	PayloadUnsignedTrailer                // STREAMING-UNSIGNED-PAYLOAD-TRAILER
	PayloadChunks                         // STREAMING-AWS4-HMAC-SHA256-PAYLOAD
	PayloadChunksTrailer                  // STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER
)

const (
	unsignedPayload    = "UNSIGNED-PAYLOAD"
	streamUnsignedTrlr = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	streamSigned       = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamSignedTrlr   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// Streaming reports whether the body is in aws-chunked framing.
func (p Payload) Streaming() bool { return p >= PayloadUnsignedTrailer }

// SignedChunks reports whether every chunk carries a signature.
func (p Payload) SignedChunks() bool { return p == PayloadChunks || p == PayloadChunksTrailer }

// Trailer reports whether a trailer follows the last chunk.
func (p Payload) Trailer() bool { return p == PayloadUnsignedTrailer || p == PayloadChunksTrailer }

// Verifier checks requests. Lookup must be set; the other fields have S3's
// defaults. Fields must not change once it is in use; Verify may be called
// concurrently.
type Verifier struct {
	// Region, if not empty, is the only region accepted. Otherwise the region
	// that the client signed with is.
	Region string
	// Service is the service of the credential scope; "s3" if empty.
	Service string
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// MaxSkew is how far a request's date may be off; DefaultMaxSkew if zero.
	MaxSkew time.Duration
	// Lookup finds the secret key of an access key. It may be called concurrently.
	Lookup func(accessKey string) (secret string, ok bool)

	keys keyCache
}

// Result is what a verified request proves. It is read-only.
type Result struct {
	Anonymous bool   // no credentials were given; only Payload and PayloadSHA256 are set
	Presigned bool   // the signature came in the query
	AccessKey string // whose signature it is
	Region    string // as signed
	// SignedHeaders are the lower-case names the signature covers, sorted.
	SignedHeaders []string

	Payload       Payload
	PayloadSHA256 [sha256.Size]byte // for PayloadSigned

	date      string // as in the string to sign
	scope     string // date/region/service/aws4_request
	signature string // hex; the seed of the chunk signatures
	key       [sha256.Size]byte
}

// Format prints what may be seen; the signing key may not.
func (r Result) Format(f fmt.State, _ rune) {
	if r.Anonymous {
		fmt.Fprint(f, "anonymous")
		return
	}
	fmt.Fprintf(f, "%s/%s", r.AccessKey, r.scope)
}

// Verify checks the signature of r, which must be as the server received it:
// path, query and headers unchanged. It reads nothing from the body. A request
// without credentials gives an anonymous Result. Errors are *Error.
func (v *Verifier) Verify(r *http.Request) (*Result, error) {
	s := getScratch()
	defer putScratch(s)
	if err := s.parseQuery(r.URL.RawQuery); err != nil {
		return nil, err
	}
	auth := r.Header["Authorization"]
	presigned := s.has(queryAlgorithm) || s.has(querySignature) || s.has(queryCredential)
	if s.has("AWSAccessKeyId") && s.has("Signature") {
		return nil, errV2()
	}
	switch {
	case presigned && len(auth) > 0:
		return nil, fail("InvalidArgument", "Only one auth mechanism allowed; the Authorization header and the X-Amz-Algorithm query parameter are both given.")
	case presigned:
		return v.verifyQuery(r, s)
	case len(auth) > 1:
		return nil, malformed("The Authorization header is given more than once.")
	case len(auth) == 1:
		return v.verifyHeader(r, s, auth[0])
	}
	res := &Result{Anonymous: true}
	hash, err := contentSHA256(r)
	if err != nil {
		return nil, err
	}
	if hash == "" {
		return res, nil // UNSIGNED-PAYLOAD
	}
	if err := res.setPayload(hash); err != nil {
		return nil, err
	}
	if res.Payload.SignedChunks() {
		return nil, fail("AccessDenied", "Signed chunks need credentials in the request.")
	}
	return res, nil
}

func (v *Verifier) now() time.Time {
	if v.Now != nil {
		return v.Now()
	}
	return time.Now()
}

func (v *Verifier) skew() time.Duration {
	if v.MaxSkew != 0 {
		return v.MaxSkew
	}
	return DefaultMaxSkew
}

func (v *Verifier) verifyHeader(r *http.Request, s *scratch, auth string) (*Result, error) {
	a, err := parseAuthorization(auth)
	if err != nil {
		return nil, err
	}
	c, reason := v.checkScope(a.credential)
	if reason != "" {
		e := malformed("The authorization header is malformed; " + reason)
		e.Region = v.Region
		return nil, e
	}
	signed, reason := splitSigned(a.signedHeaders)
	if reason != "" {
		return nil, malformed("The authorization header is malformed; " + reason)
	}
	if len(r.Header["X-Amz-Security-Token"]) > 0 {
		return nil, errToken()
	}
	t, date, err := requestDate(r)
	if err != nil {
		return nil, err
	}
	if date[:8] != c.date {
		return nil, malformed("The authorization header is malformed; Invalid credential date \"" + c.date +
			"\". This date is not the same as X-Amz-Date: \"" + date[:8] + "\".")
	}
	hash, err := contentSHA256(r)
	if err != nil {
		return nil, err
	}
	if hash == "" {
		e := fail("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
		e.Header = "x-amz-content-sha256"
		return nil, e
	}
	now := v.now()
	if d := now.Sub(t); d > v.skew() || d < -v.skew() {
		return nil, fail("RequestTimeTooSkewed", "The difference between the request time ("+date+
			") and the current time ("+now.UTC().Format(timeFormat)+") is too large.")
	}
	res := &Result{date: date, signature: a.signature}
	return v.check(r, s, c, res, signed, a.signedHeaders, hash)
}

// check does the part that needs the secret. Everything before it depends on
// the request alone, so it tells nothing about which access keys exist.
func (v *Verifier) check(r *http.Request, s *scratch, c credential, res *Result, signed []string, signedList, hash string) (*Result, error) {
	res.AccessKey, res.Region, res.scope, res.SignedHeaders = c.accessKey, c.region, c.scope, signed
	if err := res.setPayload(hash); err != nil {
		return nil, err
	}
	if err := allSigned(r, signed); err != nil {
		return nil, err
	}
	if err := s.canonical(r, signed, signedList, hash, res.Presigned); err != nil {
		return nil, err
	}

	secret, known := v.Lookup(c.accessKey)
	if !known {
		secret = dummySecret
	}
	key, cached := v.keys.get(c, secret)
	if !cached {
		key = deriveKey(secret, c)
	}
	s.stringToSign(res.date, c.scope)
	mac := hmacSum(&key, s.sts)
	var want [2 * sha256.Size]byte
	hex.Encode(want[:], mac[:])
	ok := subtle.ConstantTimeCompare(want[:], []byte(res.signature)) == 1
	if !known || !ok {
		if cached {
			// A refusal costs one derivation, whether the access key is unknown,
			// known, or known and in use: time must not tell them apart.
			key = deriveKey(secret, c)
		}
		if !known {
			e := fail("InvalidAccessKeyId", "The access key ID you provided does not exist in our records.")
			e.AccessKey = c.accessKey
			return nil, e
		}
		e := fail("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your key and signing method.")
		e.AccessKey = c.accessKey
		e.SignatureProvided = res.signature
		e.StringToSign = string(s.sts[hmacBlock:])
		e.CanonicalRequest = string(s.buf)
		return nil, e
	}
	if !cached {
		v.keys.put(c, secret, key)
	}
	res.key = key
	return res, nil
}

// dummySecret stands in for the secret of an access key that does not exist.
const dummySecret = "no such access key, and no such secret ..."

func (r *Result) setPayload(hash string) error {
	switch hash {
	case unsignedPayload:
		r.Payload = PayloadUnsigned
	case streamUnsignedTrlr:
		r.Payload = PayloadUnsignedTrailer
	case streamSigned:
		r.Payload = PayloadChunks
	case streamSignedTrlr:
		r.Payload = PayloadChunksTrailer
	default:
		r.Payload = PayloadSigned
		if len(hash) == 2*sha256.Size {
			if _, err := hex.Decode(r.PayloadSHA256[:], []byte(hash)); err == nil {
				return nil
			}
		}
		e := fail("InvalidArgument", "x-amz-content-sha256 must be "+unsignedPayload+", "+streamUnsignedTrlr+", "+
			streamSigned+", "+streamSignedTrlr+" or a valid sha256 value.")
		e.Header = "x-amz-content-sha256"
		return e
	}
	return nil
}

// contentSHA256 is the one value of x-amz-content-sha256, empty if there is none.
func contentSHA256(r *http.Request) (string, error) {
	v := r.Header["X-Amz-Content-Sha256"]
	switch len(v) {
	case 0:
		return "", nil
	case 1:
		return strings.TrimSpace(v[0]), nil
	}
	e := fail("InvalidRequest", "x-amz-content-sha256 is given more than once.")
	e.Header = "x-amz-content-sha256"
	return "", e
}

// requestDate is the time of a request signed in its header: x-amz-date, or
// Date for clients that cannot set the former.
func requestDate(r *http.Request) (t time.Time, date string, err error) {
	if d := r.Header["X-Amz-Date"]; len(d) == 1 {
		date = strings.TrimSpace(d[0])
		t, err = time.Parse(timeFormat, date)
	} else if d := r.Header["Date"]; len(r.Header["X-Amz-Date"]) == 0 && len(d) == 1 {
		if t, err = time.Parse(timeFormat, d[0]); err != nil {
			t, err = http.ParseTime(d[0])
		}
		t = t.UTC()
		date = t.Format(timeFormat)
	} else {
		err = errNoDate
	}
	if err != nil || len(date) != len(timeFormat) {
		return time.Time{}, "", fail("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
	}
	return t, date, nil
}
