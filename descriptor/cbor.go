package descriptor

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
)

// cborReader reads the part of CBOR (RFC 8949) that has a JSON equal. A value
// is an initial byte, major type in the upper three bits and argument in the
// lower five, and what follows it:
//
//	major  argument                         value
//	0      n                                integer n, up to 2^63-1
//	1      n                                integer -1-n, down to -2^63
//	3      n; n bytes of UTF-8              text
//	4      n; n values                      array
//	5      n; n pairs of text and value     object
//	7      20, 21, 22                       false, true, null
//	7      25, 26, 27; 2, 4, 8 bytes        float, finite
//
// Arguments below 24 stand for themselves; 24, 25, 26 and 27 mean that 1, 2, 4
// or 8 bytes follow with the argument, most significant first (not necessarily
// in the shortest form). 31 in majors 3, 4 and 5 is the indefinite length: the
// items (for a text: texts of definite length) follow until a byte 0xff.
// Anything else is refused: byte strings, tags, undefined, other simple
// values, keys that are no text. No length is believed before its bytes are
// there: nothing is allocated by it.
type cborReader struct {
	s     string
	i     int
	depth int
}

// Major types and arguments.
const (
	cborUint  = 0
	cborNeg   = 1
	cborText  = 3
	cborArray = 4
	cborMap   = 5
	cborOther = 7

	cborFalse  = 20
	cborTrue   = 21
	cborNull   = 22
	cborHalf   = 25
	cborSingle = 26
	cborDouble = 27
	cborOpen   = 31 // indefinite length

	cborBreak = 0xff
)

func (r *cborReader) errAt(msg string) error { return &syntaxError{r.i, msg} }

func (r *cborReader) kind() kind {
	if r.i == len(r.s) {
		return kindBad
	}
	switch ib := r.s[r.i]; ib >> 5 {
	case cborUint, cborNeg:
		return kindNumber
	case cborText:
		return kindText
	case cborArray:
		return kindArray
	case cborMap:
		return kindObject
	case cborOther:
		switch ib & 31 {
		case cborFalse, cborTrue:
			return kindBool
		case cborNull:
			return kindNull
		case cborHalf, cborSingle, cborDouble:
			return kindNumber
		}
	}
	return kindBad
}

// head consumes an initial byte and its argument. open: the length is indefinite.
func (r *cborReader) head() (arg uint64, open bool, err error) {
	if r.i == len(r.s) {
		return 0, false, r.errAt("document ends early")
	}
	ib := r.s[r.i]
	ai := ib & 31
	switch {
	case ai < 24:
		r.i++
		return uint64(ai), false, nil
	case ai <= 27:
		n := 1 << (ai - 24)
		if len(r.s)-r.i-1 < n {
			return 0, false, r.errAt("document ends early")
		}
		for _, c := range []byte(r.s[r.i+1 : r.i+1+n]) {
			arg = arg<<8 | uint64(c)
		}
		r.i += 1 + n
		return arg, false, nil
	case ai == cborOpen && (ib>>5 == cborText || ib>>5 == cborArray || ib>>5 == cborMap):
		r.i++
		return 0, true, nil
	}
	return 0, false, r.errAt("reserved argument")
}

// list reads the items of an array or map whose initial byte is at hand.
func (r *cborReader) list(item func() error) error {
	if r.depth == maxDepth {
		return r.errAt("nested too deep")
	}
	n, open, err := r.head()
	if err != nil {
		return err
	}
	r.depth++
	for ; open || n > 0; n-- {
		if open && r.i < len(r.s) && r.s[r.i] == cborBreak {
			r.i++
			break
		}
		if err := item(); err != nil {
			return err
		}
	}
	r.depth--
	return nil
}

func (r *cborReader) object(visit func(name string) error) error {
	return r.list(func() error {
		if r.kind() != kindText {
			return r.errAt("field name expected")
		}
		name, err := r.text()
		if err != nil {
			return err
		}
		return visit(name)
	})
}

func (r *cborReader) array(visit func() error) error { return r.list(visit) }

func (r *cborReader) text() (string, error) {
	n, open, err := r.head()
	if err != nil {
		return "", err
	}
	if !open {
		return r.bytes(n)
	}
	var b strings.Builder
	for {
		if r.i == len(r.s) {
			return "", r.errAt("document ends early")
		}
		ib := r.s[r.i]
		if ib == cborBreak {
			r.i++
			return b.String(), nil
		}
		if ib>>5 != cborText || ib&31 == cborOpen {
			return "", r.errAt("piece of text expected")
		}
		if n, _, err = r.head(); err != nil {
			return "", err
		}
		piece, err := r.bytes(n)
		if err != nil {
			return "", err
		}
		b.WriteString(piece)
	}
}

// bytes takes n bytes of text.
func (r *cborReader) bytes(n uint64) (string, error) {
	if n > uint64(len(r.s)-r.i) {
		return "", r.errAt("document ends early")
	}
	s := r.s[r.i : r.i+int(n)]
	if !utf8.ValidString(s) {
		return "", r.errAt("not UTF-8")
	}
	r.i += int(n)
	return s, nil
}

func (r *cborReader) number() (number, error) {
	ib := r.s[r.i]
	arg, _, err := r.head()
	if err != nil {
		return number{}, err
	}
	var f float64
	switch {
	case ib>>5 != cborOther:
		if arg > math.MaxInt64 {
			return number{}, valueError("integer out of range")
		}
		i := int64(arg)
		if ib>>5 == cborNeg {
			i = -1 - i
		}
		return number{true, i, float64(i)}, nil
	case ib&31 == cborHalf:
		f = half(uint16(arg))
	case ib&31 == cborSingle:
		f = float64(math.Float32frombits(uint32(arg)))
	default:
		f = math.Float64frombits(arg)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return number{}, valueError("number out of range")
	}
	return number{false, 0, f}, nil
}

// half is the value of an IEEE 754 half-precision float.
func half(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&1023)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		f = math.Inf(1)
	default:
		f = math.Ldexp(frac+1024, exp-25)
	}
	if h&0x8000 != 0 {
		f = -f
	}
	return f
}

func (r *cborReader) literal() (bool, error) {
	v := r.s[r.i]&31 == cborTrue
	r.i++
	return v, nil
}

func (r *cborReader) end() error {
	if r.i < len(r.s) {
		return r.errAt("data after the document")
	}
	return nil
}

// cborWriter writes definite lengths and shortest arguments.
type cborWriter struct{ b []byte }

func (w *cborWriter) bytes() []byte { return w.b }

func (w *cborWriter) head(major byte, arg uint64) {
	switch {
	case arg < 24:
		w.b = append(w.b, major<<5|byte(arg))
	case arg <= math.MaxUint8:
		w.b = append(w.b, major<<5|24, byte(arg))
	case arg <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, major<<5|25), uint16(arg))
	case arg <= math.MaxUint32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, major<<5|26), uint32(arg))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, major<<5|27), arg)
	}
}

func (w *cborWriter) object(n int, item func(i int)) {
	w.head(cborMap, uint64(n))
	for i := range n {
		item(i)
	}
}

func (w *cborWriter) array(n int, item func(i int)) {
	w.head(cborArray, uint64(n))
	for i := range n {
		item(i)
	}
}

func (w *cborWriter) name(s string) { w.text(s) }

func (w *cborWriter) text(s string) {
	w.head(cborText, uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *cborWriter) integer(i int64) {
	if i < 0 {
		w.head(cborNeg, uint64(-1-i))
		return
	}
	w.head(cborUint, uint64(i))
}

func (w *cborWriter) float(f float64) {
	w.b = binary.BigEndian.AppendUint64(append(w.b, cborOther<<5|cborDouble), math.Float64bits(f))
}
