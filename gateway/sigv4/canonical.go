package sigv4

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// scratch is the memory one verification works in.
type scratch struct {
	query []byte // keys and values of the query, each encoded
	pairs []pair
	buf   []byte // canonical request
	sts   []byte // string to sign, after one block for the HMAC
	name  []byte
}

// pair is a query parameter: key query[key:value], value query[value:end].
type pair struct{ key, value, end int }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func getScratch() *scratch { return scratches.Get().(*scratch) }

func putScratch(s *scratch) {
	// A huge request must not leave its memory behind.
	if cap(s.query)+cap(s.buf) <= 64<<10 {
		scratches.Put(s)
	}
}

const upperHex = "0123456789ABCDEF"

// unreserved are the bytes that stand for themselves in a canonical request.
var unreserved = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~") {
		t[c] = true
	}
	return
}()

func appendEncoded(b []byte, c byte) []byte {
	if unreserved[c] {
		return append(b, c)
	}
	return append(b, '%', upperHex[c>>4], upperHex[c&15])
}

// appendPath encodes a decoded path: every byte but the unreserved and the
// slash. Nothing is cleaned away: "//" and ".." are parts of keys.
func appendPath(b []byte, path string) []byte {
	if path == "" {
		return append(b, '/')
	}
	for i := range len(path) {
		if c := path[i]; c == '/' {
			b = append(b, c)
		} else {
			b = appendEncoded(b, c)
		}
	}
	return b
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// appendRecoded decodes one part of a query and encodes it again. A plus is a
// space, as it is for net/url, which the handlers read the query with.
func appendRecoded(b []byte, s string) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			if i+2 >= len(s) {
				return b, false
			}
			hi, ok1 := unhex(s[i+1])
			lo, ok2 := unhex(s[i+2])
			if !ok1 || !ok2 {
				return b, false
			}
			c = hi<<4 | lo
			i += 2
		}
		b = appendEncoded(b, c)
	}
	return b, true
}

// parseQuery fills pairs with the parameters, sorted and encoded.
func (s *scratch) parseQuery(raw string) error {
	s.query, s.pairs = s.query[:0], s.pairs[:0]
	for start := 0; start < len(raw); {
		end := start
		eq := -1
		for ; end < len(raw) && raw[end] != '&'; end++ {
			if raw[end] == '=' && eq < 0 {
				eq = end
			}
		}
		if end > start {
			if eq < 0 {
				eq = end
			}
			p := pair{key: len(s.query)}
			var ok1, ok2 bool
			s.query, ok1 = appendRecoded(s.query, raw[start:eq])
			p.value = len(s.query)
			s.query, ok2 = appendRecoded(s.query, raw[min(eq+1, end):end])
			p.end = len(s.query)
			if !ok1 || !ok2 {
				return fail("InvalidURI", "The query string holds a malformed escape.")
			}
			s.pairs = append(s.pairs, p)
		}
		start = end + 1
	}
	if len(s.pairs) > 1 {
		q := s.query
		slices.SortFunc(s.pairs, func(a, b pair) int {
			if c := bytes.Compare(q[a.key:a.value], q[b.key:b.value]); c != 0 {
				return c
			}
			return bytes.Compare(q[a.value:a.end], q[b.value:b.end])
		})
	}
	return nil
}

// canonical writes the canonical request into s.buf.
func (s *scratch) canonical(r *http.Request, signed []string, signedList, payload string, presigned bool) error {
	b := append(s.buf[:0], r.Method...)
	b = append(b, '\n')
	b = appendPath(b, r.URL.Path)
	b = append(b, '\n')
	first := true
	for _, p := range s.pairs {
		key := s.query[p.key:p.value]
		if presigned && string(key) == querySignature {
			continue
		}
		if !first {
			b = append(b, '&')
		}
		first = false
		b = append(b, key...)
		b = append(b, '=')
		b = append(b, s.query[p.value:p.end]...)
	}
	b = append(b, '\n')
	for _, name := range signed {
		b = append(b, name...)
		b = append(b, ':')
		var ok bool
		if b, ok = s.appendHeader(b, r, name); !ok {
			e := fail("SignatureDoesNotMatch", "The signed header "+name+" is not in the request.")
			e.Header = name
			return e
		}
		b = append(b, '\n')
	}
	b = append(b, '\n')
	b = append(b, signedList...)
	b = append(b, '\n')
	b = append(b, payload...)
	s.buf = b
	return nil
}

// appendHeader writes the value of a signed header. The server of net/http
// keeps a few of them outside of r.Header.
func (s *scratch) appendHeader(b []byte, r *http.Request, name string) ([]byte, bool) {
	var values []string
	switch name {
	case "host":
		return appendTrimmed(b, r.Host), true
	case "content-length":
		if r.ContentLength < 0 {
			return b, false
		}
		return strconv.AppendInt(b, r.ContentLength, 10), true
	case "transfer-encoding":
		values = r.TransferEncoding
	default:
		s.name = appendCanonicalKey(s.name[:0], name)
		values = r.Header[string(s.name)]
	}
	if len(values) == 0 {
		// HTTP/2 takes it out of the headers.
		if name == "expect" && r.ProtoMajor == 2 {
			return append(b, "100-continue"...), true
		}
		return b, false
	}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTrimmed(b, v)
	}
	return b, true
}

// appendCanonicalKey writes a lower-case header name as net/http keys it.
func appendCanonicalKey(b []byte, name string) []byte {
	upper := true
	for i := range len(name) {
		c := name[i]
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		b = append(b, c)
		upper = c == '-'
	}
	return b
}

// appendTrimmed writes a header value without leading and trailing white
// space, and with runs of it as one space.
func appendTrimmed(b []byte, v string) []byte {
	start := len(b)
	space := false
	for i := range len(v) {
		c := v[i]
		if c == ' ' || '\t' <= c && c <= '\r' {
			space = true
			continue
		}
		if space && len(b) > start {
			b = append(b, ' ')
		}
		space = false
		b = append(b, c)
	}
	return b
}

// stringToSign writes the string to sign for the canonical request.
func (s *scratch) stringToSign(date, scope string) {
	sum := sha256.Sum256(s.buf)
	b := append(s.sts[:0], zeroBlock[:]...)
	b = append(b, algorithm+"\n"...)
	b = append(b, date...)
	b = append(b, '\n')
	b = append(b, scope...)
	b = append(b, '\n')
	s.sts = hex.AppendEncode(b, sum[:])
}
