package payload

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/objcached/objcached/checksum"
)

// The aws-chunked framing:
//
//	size[;chunk-signature=hex] CRLF  size bytes  CRLF     for each chunk
//	0[;chunk-signature=hex] CRLF                          after the last one
//	name:value (LF or CRLF)                               trailer, if announced
//	[CRLF] x-amz-trailer-signature:hex CRLF               if chunks are signed
//	CRLF
//
// SDKs differ in the line ends and empty lines of the trailer; each of their
// ways is taken. Chunks are never kept: their size is bounded only by what is
// left of the payload.

const (
	// maxLine bounds a chunk's header and a line of the trailer.
	maxLine = 256
	// maxTrailer bounds the lines of a trailer, empty ones included.
	maxTrailer = 16
)

var chunkSignature = []byte("chunk-signature=")

func badChunk(why string) *Error {
	return fail("InvalidRequest", "The aws-chunked body is malformed: "+why+".")
}

func badTrailer(why string) *Error {
	return fail("MalformedTrailerError", "The request contained trailing data that was not well-formed or did not conform to our published schema: "+why+".")
}

func badSignature(what string) *Error {
	return fail("SignatureDoesNotMatch", "The signature of "+what+" does not match the signature we calculated.")
}

func (b *Body) readChunked(p []byte) (int, error) {
	for b.chunk == 0 {
		if b.inChunk {
			if err := b.endChunk(); err != nil {
				return 0, err
			}
		}
		last, err := b.chunkHeader()
		if err != nil {
			return 0, err
		}
		if last {
			if err := b.end(); err != nil {
				return 0, err
			}
			return 0, b.finish()
		}
	}
	n, err := b.buf.Read(p[:min(int64(len(p)), b.chunk)])
	b.chunk -= int64(n)
	b.left -= int64(n)
	b.hash(p[:n])
	if err != nil {
		err = short(err) // framing must follow
	}
	return n, err
}

// line reads one line without its end. It is valid until the next read.
func (b *Body) line() (l []byte, crlf bool, err error) {
	l, err = b.buf.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || err == nil && len(l) > maxLine {
		return nil, false, badChunk("a line is too long")
	}
	if err != nil {
		if err == io.EOF && len(l) == 0 {
			return nil, false, io.EOF
		}
		return nil, false, short(err)
	}
	l = l[:len(l)-1]
	if n := len(l); n > 0 && l[n-1] == '\r' {
		return l[:n-1], true, nil
	}
	return l, false, nil
}

// chunkHeader reads a chunk's header; last says that it has no bytes.
func (b *Body) chunkHeader() (last bool, err error) {
	l, crlf, err := b.line()
	if err != nil {
		return false, short(err)
	}
	if !crlf {
		return false, badChunk("a chunk header does not end in CRLF")
	}
	digits, rest, signed := bytes.Cut(l, []byte(";"))
	size, ok := parseHex(digits)
	if !ok {
		return false, badChunk("a chunk size is no hexadecimal number")
	}
	switch sig, ok := bytes.CutPrefix(rest, chunkSignature); {
	case b.chunks == nil && signed:
		return false, badChunk("unsigned chunks take no extension")
	case b.chunks != nil && (!ok || len(sig) != len(b.sigBuf)):
		return false, badChunk("a chunk has no chunk-signature")
	case b.chunks != nil:
		b.sig = append(b.sigBuf[:0], sig...)
		b.sha.Reset()
	}
	if size > b.left {
		return false, fail("IncompleteBody", "The body has more bytes than x-amz-decoded-content-length says.")
	}
	b.chunk, b.inChunk = size, true
	if size > 0 {
		return false, nil
	}
	if b.left > 0 {
		return false, fail("IncompleteBody", "The body has fewer bytes than x-amz-decoded-content-length says.")
	}
	return true, b.checkChunk()
}

// parseHex parses up to 15 hexadecimal digits, which cannot overflow.
func parseHex(s []byte) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 15 {
		return 0, false
	}
	for _, c := range s {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, true
}

// endChunk checks what follows a chunk's bytes, and its signature.
func (b *Body) endChunk() error {
	for _, want := range [...]byte{'\r', '\n'} {
		c, err := b.buf.ReadByte()
		if err != nil {
			return short(err)
		}
		if c != want {
			return badChunk("a chunk does not end in CRLF")
		}
	}
	b.inChunk = false
	return b.checkChunk()
}

func (b *Body) checkChunk() error {
	if b.chunks == nil {
		return nil
	}
	b.sha.Sum(b.raw[:0])
	if !b.chunks.Verify(b.sig, &b.raw) {
		return badSignature("a chunk")
	}
	return nil
}

// trailer is what has been seen of the lines after the last chunk.
type trailer struct {
	value  string // of the announced checksum
	signed bool
	empty  bool // there was an empty line
}

// end reads everything after the header of the last chunk, up to the body's end.
func (b *Body) end() error {
	var t trailer
	if b.chunks != nil {
		b.sha.Reset() // now of the trailer's lines
	}
	for n := 0; ; n++ {
		l, _, err := b.line()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if n == maxTrailer {
			return badTrailer("it has too many lines")
		}
		if len(l) == 0 {
			t.empty = true
			continue
		}
		if err := b.trailerLine(l, &t); err != nil {
			return err
		}
	}
	switch {
	case !t.empty:
		return fail("IncompleteBody", "The body ends before its last line.")
	case b.kind.Trailer() && b.chunks != nil && !t.signed:
		return badTrailer("x-amz-trailer-signature is missing")
	case b.kind.Trailer() && b.want.Value == "" && !b.want.IsZero():
		if t.value == "" {
			return badTrailer("the announced " + strings.ToLower(b.want.Algorithm.Header()) + " is missing")
		}
		b.want.Value = t.value
	}
	return nil
}

func (b *Body) trailerLine(l []byte, t *trailer) error {
	name, value, ok := bytes.Cut(l, []byte(":"))
	if !ok {
		return badTrailer("a line has no colon")
	}
	if !b.kind.Trailer() {
		return badTrailer("the payload is not of a -TRAILER kind")
	}
	if t.signed {
		return badTrailer("data follow the signature")
	}
	value = bytes.TrimSpace(value)
	if b.chunks != nil && bytes.EqualFold(name, []byte("x-amz-trailer-signature")) {
		b.sha.Sum(b.raw[:0])
		if !b.chunks.VerifyTrailer(value, &b.raw) {
			return badSignature("the trailer")
		}
		t.signed, t.empty = true, false
		return nil
	}
	if t.empty {
		return badTrailer("data follow the empty line")
	}
	a := checksum.FromHeaderName(string(name))
	if a == checksum.None || a != b.want.Algorithm || b.want.Value != "" {
		return badTrailer("a trailer is not the one announced in x-amz-trailer")
	}
	if t.value != "" {
		return badTrailer("a trailer is given twice")
	}
	t.value = string(value)
	if !checksum.Valid(a, t.value) {
		return failHeader("InvalidRequest", a.Header(), "Value for "+strings.ToLower(a.Header())+" trailing header is invalid.")
	}
	if b.chunks != nil {
		b.sha.Write(bytes.ToLower(name))
		b.sha.Write([]byte(":"))
		b.sha.Write(value)
		b.sha.Write([]byte("\n"))
	}
	return nil
}
