// Package payload reads the body of an S3 request: it takes off the
// aws-chunked framing and holds the bytes to everything the request says
// about them, in one pass: the signed SHA-256, chunk and trailer signatures,
// Content-MD5, and the S3 checksum of a header or a trailer.
package payload

import (
	"bufio"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/gateway/sigv4"
)

// Error is a refusal of a body, with the S3 error code to answer.
type Error struct {
	Code    string
	Message string
	Status  int    // HTTP
	Header  string // the header at fault, lower case; may be empty
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func fail(code, message string) *Error {
	e := &Error{Code: code, Message: message, Status: http.StatusBadRequest}
	switch code {
	case "MissingContentLength":
		e.Status = http.StatusLengthRequired
	case "SignatureDoesNotMatch":
		e.Status = http.StatusForbidden
	}
	return e
}

func failHeader(code, header, message string) *Error {
	e := fail(code, message)
	e.Header = strings.ToLower(header)
	return e
}

// Options bound and describe a body.
type Options struct {
	// MaxSize is the most bytes taken, after the framing is off; 0: no limit.
	MaxSize int64
	// ObjectChecksum says that x-amz-checksum- headers do not speak of this
	// body but of an object (CompleteMultipartUpload). They are left alone.
	ObjectChecksum bool
	// Compute is a checksum to make of the payload in any case; see Computed.
	Compute checksum.Algorithm
}

// Body is the payload of one request. It is for one goroutine.
//
// Bytes are handed out before all of them are verified: whoever stores them
// must commit nothing before Read has returned io.EOF. Any other error means
// that the body is not what the request says. Except for errors of the
// connection, errors are *Error.
type Body struct {
	src  io.Reader     // the request's body, or the buffer before it
	buf  *bufio.Reader // for aws-chunked framing
	size int64
	left int64 // bytes of the payload not yet read
	err  error // what every further Read returns

	// The checks; each hash is nil where nothing needs it.
	sha     hash.Hash // of the payload, or of the chunk under way
	wantSHA [sha256.Size]byte
	md5     hash.Hash
	wantMD5 string // base64
	sum     hash.Hash
	shared  bool         // sum is sha: both are SHA-256 of the payload
	want    checksum.Sum // with an empty value until the trailer has come
	extra   hash.Hash    // of Options.Compute; nil: sum is that, or there is none
	compute checksum.Algorithm

	kind    sigv4.Payload
	chunks  *sigv4.Chunks
	inChunk bool
	chunk   int64  // bytes left of the chunk under way
	sig     []byte // its signature
	sigBuf  [2 * sha256.Size]byte
	raw     [sha256.Size]byte // where sums are put
}

// New prepares the body of a verified request. It reads nothing of it, so a
// client that waits for "100 Continue" goes on waiting until the first Read.
// The payload's size is taken from the headers.
//
// Nobody before it may have replaced r.Body of the server's own request:
// net/http then no longer knows that the client waits, and on a refusal reads
// a body that never comes. Wrap the body of a copy of the request.
func New(r *http.Request, res *sigv4.Result, o Options) (*Body, error) {
	b := &Body{src: r.Body, kind: res.Payload}
	if b.src == nil {
		b.src = http.NoBody
	}
	var err error
	if b.size, err = size(r, res.Payload.Streaming()); err != nil {
		return nil, err
	}
	if err := b.expect(r.Header, o); err != nil {
		return nil, err
	}
	if b.compute = o.Compute; b.compute != b.want.Algorithm {
		b.extra = checksum.New(b.compute)
	}
	switch {
	case res.Payload == sigv4.PayloadSigned:
		b.sha, b.wantSHA = sha256.New(), res.PayloadSHA256
		if b.want.Algorithm == checksum.SHA256 {
			b.sum, b.shared = b.sha, true
		}
	case res.Payload.SignedChunks():
		b.sha, b.chunks = sha256.New(), res.Chunks()
	}
	if b.kind.Streaming() {
		b.buf = bufio.NewReaderSize(b.src, 4<<10)
		b.src = b.buf
	}
	return b, nil
}

// FromMemory prepares a body of size bytes that do not come with the request
// but from src. Content-MD5 and x-amz-checksum- headers speak of them; the
// payload hash does not and is the caller's to check.
func FromMemory(h http.Header, src io.Reader, size int64, o Options) (*Body, error) {
	b := &Body{src: src, size: size, kind: sigv4.PayloadUnsigned}
	if err := b.expect(h, o); err != nil {
		return nil, err
	}
	return b, nil
}

// expect reads what the headers say about the payload, whose size is known.
func (b *Body) expect(h http.Header, o Options) error {
	if o.MaxSize > 0 && b.size > o.MaxSize {
		return fail("EntityTooLarge", "Your proposed upload of "+strconv.FormatInt(b.size, 10)+
			" bytes exceeds the maximum allowed size of "+strconv.FormatInt(o.MaxSize, 10)+".")
	}
	b.left = b.size
	if err := b.contentMD5(h); err != nil {
		return err
	}
	return b.checksum(h, o)
}

// size is the number of bytes of the payload itself.
func size(r *http.Request, streaming bool) (int64, error) {
	if !streaming {
		if r.ContentLength < 0 {
			return 0, fail("MissingContentLength", "You must provide the Content-Length HTTP header.")
		}
		return r.ContentLength, nil
	}
	const name = "X-Amz-Decoded-Content-Length"
	v := r.Header[name]
	if len(v) == 0 {
		return 0, failHeader("MissingContentLength", name, "You must provide the x-amz-decoded-content-length HTTP header.")
	}
	n, err := strconv.ParseUint(strings.TrimSpace(v[0]), 10, 63)
	if err != nil || len(v) > 1 {
		return 0, failHeader("InvalidRequest", name, "x-amz-decoded-content-length must be one number of bytes.")
	}
	return int64(n), nil
}

func (b *Body) contentMD5(h http.Header) error {
	v := h["Content-Md5"]
	if len(v) == 0 {
		return nil
	}
	b.wantMD5 = strings.TrimSpace(v[0])
	raw, err := base64.StdEncoding.Strict().DecodeString(b.wantMD5)
	if err != nil || len(raw) != md5.Size || len(v) > 1 {
		return failHeader("InvalidDigest", "content-md5", "The Content-MD5 you specified is not valid.")
	}
	b.md5 = md5.New()
	return nil
}

// checksum reads what S3 checksum the request announces, in a header or for
// the trailer.
func (b *Body) checksum(h http.Header, o Options) error {
	var err error
	if !o.ObjectChecksum {
		if b.want, err = checksum.FromHeaders(h); err != nil {
			return headerError(err)
		}
	}
	trailer, err := announced(h)
	if err != nil {
		return err
	}
	switch {
	case trailer == checksum.None:
	case !b.kind.Trailer():
		return failHeader("InvalidRequest", "x-amz-trailer", "x-amz-trailer needs a payload of a -TRAILER kind in x-amz-content-sha256.")
	case !b.want.IsZero():
		return failHeader("InvalidRequest", b.want.Algorithm.Header(), "Expecting a single x-amz-checksum- header; the trailer announces another.")
	default:
		b.want = checksum.Sum{Algorithm: trailer, Type: checksum.FullObject}
	}
	if !o.ObjectChecksum {
		sdk, err := checksum.SDKAlgorithm(h)
		if err != nil {
			return headerError(err)
		}
		if sdk != checksum.None && sdk != b.want.Algorithm {
			return failHeader("InvalidRequest", checksum.HeaderSDKAlgorithm,
				"x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.")
		}
	}
	b.sum = checksum.New(b.want.Algorithm)
	return nil
}

// headerError gives errors of package checksum their S3 code.
func headerError(err error) error {
	var he *checksum.HeaderError
	if errors.As(err, &he) {
		return failHeader("InvalidRequest", he.Header, "Value for "+strings.ToLower(he.Header)+" header is invalid: "+he.Reason)
	}
	return err
}

// announced is the checksum that x-amz-trailer announces. S3 has no other trailers.
func announced(h http.Header) (checksum.Algorithm, error) {
	found := checksum.None
	for _, v := range h["X-Amz-Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			a := checksum.FromHeaderName(name)
			if a == checksum.None {
				return a, failHeader("InvalidRequest", "x-amz-trailer", "The value specified in the x-amz-trailer header is not supported: "+name)
			}
			if found != checksum.None {
				return a, failHeader("InvalidRequest", "x-amz-trailer", "Expecting a single x-amz-checksum- trailer.")
			}
			found = a
		}
	}
	return found, nil
}

// Size is the number of bytes that Read gives before io.EOF.
func (b *Body) Size() int64 { return b.size }

// Sum is the S3 checksum to keep with the bytes: the one that the request
// carried, once it has been found right. It is zero before Read has returned
// io.EOF, and if the request carried none.
func (b *Body) Sum() checksum.Sum {
	if b.err != io.EOF {
		return checksum.Sum{}
	}
	return b.want
}

// Computed is the checksum of the algorithm in Options.Compute. It is zero
// before Read has returned io.EOF.
func (b *Body) Computed() checksum.Sum {
	switch {
	case b.err != io.EOF || b.compute == checksum.None:
		return checksum.Sum{}
	case b.extra == nil:
		return b.want
	}
	return checksum.Of(b.compute, b.extra)
}

// Read implements io.Reader. Reads of 4 KiB and more go from the connection
// straight into p.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.kind.Streaming() {
		n, err := b.readChunked(p)
		b.err = err
		return n, err
	}
	n, err := b.readPlain(p)
	b.err = err
	return n, err
}

func (b *Body) readPlain(p []byte) (int, error) {
	if b.left == 0 {
		if err := b.atEnd(); err != nil {
			return 0, err
		}
		return 0, b.finish()
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.hash(p[:n])
	switch {
	case err == nil:
	case b.left == 0 && err == io.EOF:
		err = b.finish()
	default:
		err = short(err)
	}
	return n, err
}

// atEnd makes sure that nothing follows the payload.
func (b *Body) atEnd() error {
	var one [1]byte
	for range 100 {
		n, err := b.src.Read(one[:])
		switch {
		case n > 0:
			return fail("InvalidRequest", "The request carries more bytes than it announced.")
		case err == io.EOF:
			return nil
		case err != nil:
			return short(err)
		}
	}
	return io.ErrNoProgress
}

// short is the error for a body that ends early; what is no end is passed on.
func short(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fail("IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header.")
	}
	return err
}

// hashStep keeps the bytes in the processor's cache from one hash to the next.
const hashStep = 16 << 10

func (b *Body) hash(p []byte) {
	for len(p) > 0 {
		q := p[:min(len(p), hashStep)]
		if b.sha != nil {
			b.sha.Write(q)
		}
		if b.md5 != nil {
			b.md5.Write(q)
		}
		if b.sum != nil && !b.shared {
			b.sum.Write(q)
		}
		if b.extra != nil {
			b.extra.Write(q)
		}
		p = p[len(q):]
	}
}

// finish makes the checks of the whole payload; io.EOF says that all hold.
func (b *Body) finish() error {
	if b.kind == sigv4.PayloadSigned && [sha256.Size]byte(b.sha.Sum(b.raw[:0])) != b.wantSHA {
		return fail("XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
	}
	if b.md5 != nil && base64.StdEncoding.EncodeToString(b.md5.Sum(b.raw[:0])) != b.wantMD5 {
		return failHeader("BadDigest", "content-md5", "The Content-MD5 you specified did not match what we received.")
	}
	if b.sum != nil {
		if got := checksum.Of(b.want.Algorithm, b.sum); got != b.want {
			return failHeader("BadDigest", b.want.Algorithm.Header(),
				"The "+string(b.want.Algorithm)+" you specified did not match the calculated checksum.")
		}
	}
	return io.EOF
}

// ReadAll reads and verifies a small body whole. A body of more than max
// bytes is refused before anything of it is read.
func (b *Body) ReadAll(max int64) ([]byte, error) {
	if b.size > max {
		return nil, fail("MaxMessageLengthExceeded", "Your request was too big: "+strconv.FormatInt(b.size, 10)+
			" bytes, the limit is "+strconv.FormatInt(max, 10)+".")
	}
	// Grow with what arrives: an announced size is no reason to spend memory.
	p := make([]byte, 0, min(b.size+1, 64<<10))
	for {
		if len(p) == cap(p) {
			p = append(p, 0)[:len(p)]
		}
		n, err := b.Read(p[len(p):cap(p)])
		p = p[:len(p)+n]
		if err == io.EOF {
			return p, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// ContentEncoding is what to store for the Content-Encoding headers of an
// upload: aws-chunked is a framing of the request and no property of the
// object.
func ContentEncoding(h http.Header) string {
	var kept []string
	for _, v := range h["Content-Encoding"] {
		for c := range strings.SplitSeq(v, ",") {
			if c = strings.TrimSpace(c); c != "" && !strings.EqualFold(c, "aws-chunked") {
				kept = append(kept, c)
			}
		}
	}
	return strings.Join(kept, ",")
}
