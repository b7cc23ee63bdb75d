package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/objcached/objcached/storage"
)

// TestRangeMatrix compares every form of Range on small objects with the bytes
// it names, found one by one.
func TestRangeMatrix(t *testing.T) {
	check := func(v string, size int64, in func(i int64) bool, satisfiable bool) {
		t.Helper()
		oi := &storage.ObjectInfo{Size: size}
		s, err := rangeOf(http.Header{"Range": {v}}, oi)
		if !satisfiable {
			if err == nil || toAPIError(&request{}, err).status() != 416 {
				t.Fatalf("%q of %d: %+v %v, want 416", v, size, s, err)
			}
			if got, want := toAPIError(&request{}, err).Header["Content-Range"], fmt.Sprintf("bytes */%d", size); got != want {
				t.Fatalf("%q of %d: Content-Range %q, want %q", v, size, got, want)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q of %d: %v", v, size, err)
		}
		first, last := int64(-1), int64(-1)
		for i := range size {
			if in(i) {
				if first < 0 {
					first = i
				}
				last = i
			}
		}
		if !s.part || s.off != first || s.off+s.n-1 != last {
			t.Fatalf("%q of %d: %+v, want %d-%d", v, size, s, first, last)
		}
		if got, want := s.contentRange(size), "bytes "+strconv.Itoa(int(first))+"-"+strconv.Itoa(int(last))+"/"+strconv.Itoa(int(size)); got != want {
			t.Fatalf("%q of %d: Content-Range %q, want %q", v, size, got, want)
		}
	}
	for size := range int64(7) {
		for a := range int64(9) {
			check(fmt.Sprintf("bytes=%d-", a), size, func(i int64) bool { return i >= a }, a < size)
			check(fmt.Sprintf("bytes=-%d", a), size, func(i int64) bool { return i >= size-a }, a > 0 && size > 0)
			for b := a; b < 10; b++ {
				check(fmt.Sprintf("bytes=%d-%d", a, b), size, func(i int64) bool { return a <= i && i <= b }, a < size)
			}
		}
	}
	check("bytes=0-99999999999999999999999", 5, func(int64) bool { return true }, true)
	check("bytes=-99999999999999999999999", 5, func(int64) bool { return true }, true)
	check("bytes=99999999999999999999999-", 5, nil, false)
	check("Bytes=1-2", 5, func(i int64) bool { return i == 1 || i == 2 }, true)
}

// TestRangeIgnored are the forms that give the whole object, as in S3.
func TestRangeIgnored(t *testing.T) {
	mod := time.Date(2024, 5, 6, 7, 8, 9, 500, time.UTC)
	oi := &storage.ObjectInfo{Size: 10, ETag: "e", Modified: mod}
	for _, h := range []http.Header{
		{},
		{"Range": {""}},
		{"Range": {"bytes"}},
		{"Range": {"bytes="}},
		{"Range": {"bytes=-"}},
		{"Range": {"bytes=3-1"}},
		{"Range": {"bytes=a-b"}},
		{"Range": {"bytes=1-b"}},
		{"Range": {"bytes=--1"}},
		{"Range": {"bytes=+1-2"}},
		{"Range": {"bytes=1"}},
		{"Range": {"items=0-1"}},
		{"Range": {"bytes=0-1,3-4"}},
		{"Range": {"bytes=0-1"}, "If-Range": {`"other"`}},
		{"Range": {"bytes=0-1"}, "If-Range": {`W/"e"`}},
		{"Range": {"bytes=0-1"}, "If-Range": {mod.Add(time.Second).Format(http.TimeFormat)}},
	} {
		s, err := rangeOf(h, oi)
		if err != nil || s.part || s.off != 0 || s.n != 10 {
			t.Errorf("%v: %+v %v, want the whole object", h, s, err)
		}
	}
	for _, h := range []http.Header{
		{"Range": {"bytes=0-1"}, "If-Range": {`"e"`}},
		{"Range": {"bytes=0-1"}, "If-Range": {mod.Format(http.TimeFormat)}},
	} {
		if s, err := rangeOf(h, oi); err != nil || !s.part {
			t.Errorf("%v: %+v %v, want a part", h, s, err)
		}
	}
}

func FuzzRange(f *testing.F) {
	for _, v := range []string{"bytes=0-1", "bytes=-5", "bytes=7-", "bytes=0-0,2-3", "bytes=9223372036854775807-"} {
		f.Add(v, int64(10))
	}
	f.Fuzz(func(t *testing.T, v string, size int64) {
		if size < 0 {
			return
		}
		s, err := rangeOf(http.Header{"Range": {v}}, &storage.ObjectInfo{Size: size})
		if err == nil && (s.off < 0 || s.n < 0 || s.off > size-s.n || s.part && s.n == 0) {
			t.Fatalf("%q of %d: %+v lies outside", v, size, s)
		}
	})
}
