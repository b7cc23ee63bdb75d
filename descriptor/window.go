package descriptor

import (
	"fmt"
	"math"
)

// window is what every target has: a part of registered memory, and the tag
// under which it may be used once.
type window struct {
	handle              *string
	offset, length, tag *int64
}

// windowFields are the rows of a window; all of them are required.
func windowFields[D any](of func(*D) window) []field[D] {
	number := func(name string, read func(reader) (int64, error), to func(window) *int64) field[D] {
		return field[D]{name, true,
			func(r reader, d *D, _ *Limits) (err error) { *to(of(d)), err = read(r); return err },
			func(w writer, d *D) { w.integer(*to(of(d))) }, func(*D) bool { return true }}
	}
	return []field[D]{
		{"handle", true,
			func(r reader, d *D, _ *Limits) (err error) { *of(d).handle, err = shortText(r, maxHandle); return err },
			func(w writer, d *D) { w.text(*of(d).handle) }, func(*D) bool { return true }},
		number("offset", notNegative, func(w window) *int64 { return w.offset }),
		number("length", positive, func(w window) *int64 { return w.length }),
		number("tag", notNegative, func(w window) *int64 { return w.tag }),
	}
}

// check checks the fields by themselves; what lies behind the handle is the
// transport's to know.
func (w window) check() error {
	bad := func(name, format string, args ...any) error {
		return &FieldError{targetPrefix + name, fmt.Sprintf(format, args...)}
	}
	switch {
	case *w.handle == "" || len(*w.handle) > maxHandle:
		return bad("handle", "must have 1 to %d bytes", maxHandle)
	case *w.offset < 0:
		return bad("offset", "must not be negative: %d", *w.offset)
	case *w.length <= 0:
		return bad("length", "must be positive, not %d", *w.length)
	case *w.offset > math.MaxInt64-*w.length:
		return bad("length", "offset + length overflows")
	case *w.tag < 0:
		return bad("tag", "must not be negative: %d", *w.tag)
	}
	return nil
}
