package gateway

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/storage"
)

// span is a run of bytes of an object.
type span struct {
	off, n int64
	part   bool // answer 206: a range was asked for and understood
}

// contentRange is the header of a partial answer.
func (s span) contentRange(size int64) string {
	return fmt.Sprintf("bytes %d-%d/%d", s.off, s.off+s.n-1, size)
}

// rangeOf finds what a GET or HEAD of an object of the given size asks for.
// Like S3 it ignores a Range it cannot read, and several ranges at once, and
// gives the whole object. A range that lies outside is InvalidRange.
func rangeOf(h http.Header, oi *storage.ObjectInfo) (span, error) {
	size := oi.Size
	whole := span{n: size}
	v := h.Get("Range")
	if v == "" || !ifRange(h, oi) {
		return whole, nil
	}
	unit, spec, ok := strings.Cut(v, "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") || strings.Contains(spec, ",") {
		return whole, nil
	}
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return whole, nil
	}
	if first == "" {
		n, ok := digits(last)
		if !ok {
			return whole, nil
		}
		if n == 0 || size == 0 {
			return span{}, invalidRange(v, size)
		}
		n = min(n, size)
		return span{size - n, n, true}, nil
	}
	a, ok := digits(first)
	if !ok {
		return whole, nil
	}
	b := int64(math.MaxInt64)
	if last != "" {
		if b, ok = digits(last); !ok || b < a {
			return whole, nil
		}
	}
	if a >= size {
		return span{}, invalidRange(v, size)
	}
	b = min(b, size-1)
	return span{a, b - a + 1, true}, nil
}

// ifRange reports whether If-Range, if there is one, lets Range stand.
func ifRange(h http.Header, oi *storage.ObjectInfo) bool {
	v := h.Get("If-Range")
	if v == "" {
		return true
	}
	if t, err := http.ParseTime(v); err == nil {
		return oi.Modified.UTC().Format(http.TimeFormat) == t.UTC().Format(http.TimeFormat)
	}
	return matchesAny(v, oi.ETag, false)
}

// digits reads a number without sign. One too large for an int64 is as good as
// the largest.
func digits(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

func invalidRange(asked string, size int64) error {
	return fail("InvalidRange", "The requested range is not satisfiable").
		with("RangeRequested", asked).with("ActualObjectSize", strconv.FormatInt(size, 10)).
		header("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
}
