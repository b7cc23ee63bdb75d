package descriptor

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonReader reads JSON as RFC 8259 has it, strictly: UTF-8 without a byte
// order mark, no control characters in strings, no unpaired surrogate escapes,
// no leading zeros, nothing after the value.
//
//	object  {"name": value, ...}
//	array   [value, ...]
//	text    "..." with the escapes \" \\ \/ \b \f \n \r \t \uXXXX
//	number  -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
//	        an integer if it has neither fraction nor exponent
//	literal true | false | null
type jsonReader struct {
	s     string
	i     int
	depth int
	bad   bool // not UTF-8
}

func newJSONReader(s string) *jsonReader {
	return &jsonReader{s: s, bad: !utf8.ValidString(s)}
}

func (r *jsonReader) errAt(msg string) error {
	if r.bad {
		msg = "not UTF-8"
	}
	return &syntaxError{r.i, msg}
}

func (r *jsonReader) space() {
	for r.i < len(r.s) {
		switch r.s[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (r *jsonReader) peek() byte {
	r.space()
	if r.i == len(r.s) {
		return 0
	}
	return r.s[r.i]
}

func (r *jsonReader) kind() kind {
	if r.bad {
		return kindBad
	}
	switch c := r.peek(); {
	case c == '{':
		return kindObject
	case c == '[':
		return kindArray
	case c == '"':
		return kindText
	case c == '-' || '0' <= c && c <= '9':
		return kindNumber
	case c == 't' || c == 'f':
		return kindBool
	case c == 'n':
		return kindNull
	}
	return kindBad
}

func (r *jsonReader) object(visit func(name string) error) error {
	return r.list('}', func() error {
		if r.peek() != '"' {
			return r.errAt("field name expected")
		}
		name, err := r.text()
		if err != nil {
			return err
		}
		if r.peek() != ':' {
			return r.errAt("':' expected")
		}
		r.i++
		return visit(name)
	})
}

func (r *jsonReader) array(visit func() error) error { return r.list(']', visit) }

// list reads what stands between a bracket, which is at hand, and its match.
func (r *jsonReader) list(closing byte, item func() error) error {
	if r.depth == maxDepth {
		return r.errAt("nested too deep")
	}
	r.depth++
	r.i++
	if r.peek() == closing {
		r.i++
		r.depth--
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.i++
		case closing:
			r.i++
			r.depth--
			return nil
		default:
			return r.errAt("',' or '" + string(rune(closing)) + "' expected")
		}
	}
}

func (r *jsonReader) text() (string, error) {
	start := r.i + 1
	for i := start; i < len(r.s); i++ {
		switch c := r.s[i]; {
		case c == '"':
			r.i = i + 1
			return r.s[start:i], nil
		case c == '\\':
			return r.escaped(start, i)
		case c < 0x20:
			r.i = i
			return "", r.errAt("control character in a text")
		}
	}
	r.i = len(r.s)
	return "", r.errAt("text not closed")
}

// escaped reads a text that began at start and has its first escape at i.
func (r *jsonReader) escaped(start, i int) (string, error) {
	var b strings.Builder
	b.WriteString(r.s[start:i])
	for i < len(r.s) {
		c := r.s[i]
		switch {
		case c == '"':
			r.i = i + 1
			return b.String(), nil
		case c < 0x20:
			r.i = i
			return "", r.errAt("control character in a text")
		case c != '\\':
			b.WriteByte(c)
			i++
			continue
		}
		r.i = i
		if i+1 == len(r.s) {
			break
		}
		i += 2
		switch e := r.s[i-1]; e {
		case '"', '\\', '/':
			b.WriteByte(e)
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			c := hex4(r.s, i)
			i += 4
			if 0xd800 <= c && c < 0xdc00 && strings.HasPrefix(r.s[min(i, len(r.s)):], `\u`) {
				low := hex4(r.s, i+2)
				if low < 0xdc00 || low > 0xdfff {
					return "", r.errAt("unpaired surrogate")
				}
				c = (c-0xd800)<<10 + (low - 0xdc00) + 0x10000
				i += 6
			}
			switch {
			case c < 0:
				return "", r.errAt("bad escape")
			case 0xd800 <= c && c <= 0xdfff:
				return "", r.errAt("unpaired surrogate")
			}
			b.WriteRune(c)
		default:
			return "", r.errAt("bad escape")
		}
	}
	r.i = len(r.s)
	return "", r.errAt("text not closed")
}

// hex4 reads four hexadecimal digits at i, or returns -1.
func hex4(s string, i int) rune {
	if i+4 > len(s) {
		return -1
	}
	var v rune
	for _, c := range []byte(s[i : i+4]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}

func (r *jsonReader) digits() bool {
	from := r.i
	for r.i < len(r.s) && '0' <= r.s[r.i] && r.s[r.i] <= '9' {
		r.i++
	}
	return r.i > from
}

func (r *jsonReader) number() (number, error) {
	from := r.i
	at := func(c byte) bool { return r.i < len(r.s) && r.s[r.i] == c }
	if at('-') {
		r.i++
	}
	if at('0') {
		r.i++
	} else if !r.digits() {
		return number{}, r.errAt("digit expected")
	}
	isInt := true
	if at('.') {
		r.i++
		isInt = false
		if !r.digits() {
			return number{}, r.errAt("digit expected")
		}
	}
	if at('e') || at('E') {
		r.i++
		isInt = false
		if at('+') || at('-') {
			r.i++
		}
		if !r.digits() {
			return number{}, r.errAt("digit expected")
		}
	}
	lit := r.s[from:r.i]
	if isInt {
		i, err := strconv.ParseInt(lit, 10, 64)
		if err != nil {
			return number{}, valueError("integer out of range")
		}
		return number{true, i, float64(i)}, nil
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil {
		return number{}, valueError("number out of range")
	}
	return number{false, 0, f}, nil
}

func (r *jsonReader) literal() (bool, error) {
	for _, lit := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(r.s[r.i:], lit) {
			r.i += len(lit)
			return lit == "true", nil
		}
	}
	return false, r.errAt("value expected")
}

func (r *jsonReader) end() error {
	if r.space(); r.i < len(r.s) {
		return r.errAt("data after the document")
	}
	return nil
}

// jsonWriter writes the compact form.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) bytes() []byte { return w.b }

func (w *jsonWriter) object(n int, item func(i int)) {
	w.b = append(w.b, '{')
	for i := range n {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		item(i)
	}
	w.b = append(w.b, '}')
}

func (w *jsonWriter) name(s string) {
	w.text(s)
	w.b = append(w.b, ':')
}

func (w *jsonWriter) array(n int, item func(i int)) {
	w.b = append(w.b, '[')
	for i := range n {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		item(i)
	}
	w.b = append(w.b, ']')
}

func (w *jsonWriter) text(s string) {
	const hex = "0123456789abcdef"
	w.b = append(w.b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.b = append(w.b, '\\', c)
		case c < 0x20:
			w.b = append(w.b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			w.b = append(w.b, c)
		}
	}
	w.b = append(w.b, '"')
}

func (w *jsonWriter) integer(i int64) { w.b = strconv.AppendInt(w.b, i, 10) }

// float writes f so that it reads back as a float of the same value: an
// exponent keeps a whole number from being taken for an integer.
func (w *jsonWriter) float(f float64) {
	if f == math.Trunc(f) {
		w.b = strconv.AppendFloat(w.b, f, 'e', -1, 64)
		return
	}
	w.b = strconv.AppendFloat(w.b, f, 'g', -1, 64)
}
