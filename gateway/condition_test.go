package gateway

import (
	"net/http"
	"testing"
	"time"

	"github.com/objcached/objcached/storage"
)

// TestConditionMatrix runs every combination of the four headers, each absent,
// holding or failing, against the precedence of RFC 9110, 13.2.2, written down
// as its steps.
func TestConditionMatrix(t *testing.T) {
	mod := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
	oi := &storage.ObjectInfo{ETag: "abc", Modified: mod}
	date := func(d time.Duration) string { return mod.Add(d).Format(http.TimeFormat) }
	type value struct {
		text    string // "" absent
		holds   bool
		invalid bool
	}
	match := []value{{}, {`"abc"`, true, false}, {`abc`, true, false}, {`*`, true, false}, {`"x", "abc"`, true, false},
		{`"x"`, false, false}, {`W/"abc"`, false, false}, {`""`, false, false}}
	noneMatch := []value{{}, {`"abc"`, false, false}, {`W/"abc"`, false, false}, {`*`, false, false}, {`"x","abc"`, false, false},
		{`"x"`, true, false}}
	unmodified := []value{{}, {date(0), true, false}, {date(time.Hour), true, false}, {date(-time.Second), false, false}, {"yesterday", true, true}}
	modified := []value{{}, {date(0), false, false}, {date(time.Hour), false, false}, {date(-time.Second), true, false}, {"yesterday", true, true}}
	for _, prefix := range []string{"", "X-Amz-Copy-Source-"} {
		for _, m := range match {
			for _, n := range noneMatch {
				for _, u := range unmodified {
					for _, s := range modified {
						want := proceed
						switch {
						case m.text != "" && !m.holds:
							want = preconditionFailed
						case m.text == "" && u.text != "" && !u.invalid && !u.holds:
							want = preconditionFailed
						case n.text != "" && !n.holds:
							want = notModified
						case n.text == "" && s.text != "" && !s.invalid && !s.holds:
							want = notModified
						}
						h := http.Header{}
						for name, v := range map[string]value{"If-Match": m, "If-None-Match": n, "If-Unmodified-Since": u, "If-Modified-Since": s} {
							if v.text != "" {
								h.Set(prefix+name, v.text)
							}
						}
						c := conditionsOf(h, prefix)
						if got, _ := c.check(oi); got != want {
							t.Fatalf("%v: %d, want %d", h, got, want)
						}
					}
				}
			}
		}
	}
}

func TestWriteCondition(t *testing.T) {
	for _, c := range []struct {
		h    http.Header
		want storage.Condition
		code string
	}{
		{http.Header{}, storage.Condition{}, ""},
		{http.Header{"If-None-Match": {"*"}}, storage.Condition{IfNoneMatch: "*"}, ""},
		{http.Header{"If-Match": {`"abc"`}}, storage.Condition{IfMatch: "abc"}, ""},
		{http.Header{"If-Match": {`abc`}}, storage.Condition{IfMatch: "abc"}, ""},
		{http.Header{"If-Match": {`*`}}, storage.Condition{IfMatch: "*"}, ""},
		{http.Header{"If-None-Match": {`"abc"`}}, storage.Condition{}, "NotImplemented"},
		{http.Header{"If-Match": {`"a","b"`}}, storage.Condition{}, "NotImplemented"},
		{http.Header{"If-Match": {``}}, storage.Condition{}, "InvalidArgument"},
		{http.Header{"If-Match": {`"a"`}, "If-None-Match": {"*"}}, storage.Condition{}, "InvalidRequest"},
		{http.Header{"If-Modified-Since": {"x"}}, storage.Condition{}, "NotImplemented"},
	} {
		got, err := writeCondition(c.h)
		code := ""
		if err != nil {
			code = toAPIError(&request{}, err).Code
		}
		if code != c.code || err == nil && got != c.want {
			t.Errorf("%v: %+v %q, want %+v %q", c.h, got, code, c.want, c.code)
		}
	}
}
