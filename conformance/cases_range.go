package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// ranges are over an object of rangeSize bytes. want "" is the whole object
// with status 200: S3 ignores what it cannot parse.
const rangeSize = 3*65536 + 100

var ranges = []struct {
	name, header string
	first, last  int64
	status       int
}{
	{"first-byte", "bytes=0-0", 0, 0, 206},
	{"head", "bytes=0-99", 0, 99, 206},
	{"to-the-end", "bytes=65536-", 65536, rangeSize - 1, 206},
	{"suffix", "bytes=-100", rangeSize - 100, rangeSize - 1, 206},
	{"suffix-of-one", "bytes=-1", rangeSize - 1, rangeSize - 1, 206},
	{"suffix-longer-than-object", "bytes=-9999999", 0, rangeSize - 1, 206},
	{"past-the-end", "bytes=100-9999999", 100, rangeSize - 1, 206},
	{"block", "bytes=65536-131071", 65536, 131071, 206},
	{"across-blocks", "bytes=65530-131080", 65530, 131080, 206},
	{"last-byte", "bytes=196707-196707", rangeSize - 1, rangeSize - 1, 206},
	{"whole", "bytes=0-196707", 0, rangeSize - 1, 206},
	{"starts-past-the-end", "bytes=196708-", 0, 0, 416},
	{"starts-far-past-the-end", "bytes=9999999-99999999", 0, 0, 416},
	{"empty-suffix", "bytes=-0", 0, 0, 416},
	{"backwards", "bytes=10-5", 0, rangeSize - 1, 200},
	{"another-unit", "lines=0-5", 0, rangeSize - 1, 200},
	{"nonsense", "bytes=a-b", 0, rangeSize - 1, 200},
}

func rangeCases() []kase {
	var out []kase
	for _, r := range ranges {
		out = append(out, both("range/GetObject/"+r.name, func(e *env, c sdk) {
			b := e.bucket()
			body := data(3, rangeSize)
			e.put(b, "k", body)
			g, err := c.Get(e.ctx, b, "k", getOpts{Range: r.header})
			if r.status == 416 {
				e.fails(err, 416, "InvalidRange")
				return
			}
			e.ok(err)
			e.same(g.Body, body[r.first:r.last+1])
			want := ""
			if r.status == 206 {
				want = fmt.Sprintf("bytes %d-%d/%d", r.first, r.last, rangeSize)
			}
			equal(e, "Content-Range", g.Header.Get("Content-Range"), want)
		})...)
	}
	return slices.Concat(out,
		one("range/GetObject/status", func(e *env) {
			b := e.bucket()
			e.put(b, "k", data(1, 1000))
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"Range": "bytes=10-19"}})
			equal(e, "status", a.Status, 206)
			equal(e, "Content-Length", a.Header.Get("Content-Length"), "10")
			a = e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"Range": "bytes=1000-"}})
			e.denied(a, 416, "InvalidRange")
			equal(e, "ActualObjectSize", a.Fields["ActualObjectSize"], "1000")
			equal(e, "Content-Range of 416", a.Header.Get("Content-Range"), "bytes */1000")
		}),
		one("range/GetObject/empty-object", func(e *env) {
			b := e.bucket()
			e.put(b, "k", nil)
			e.denied(e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"Range": "bytes=0-"}}), 416, "InvalidRange")
		}),
		both("range/GetObject/if-match", func(e *env, c sdk) {
			b := e.bucket()
			body := data(4, rangeSize)
			tag := e.put(b, "k", body)
			g, err := c.Get(e.ctx, b, "k", getOpts{Range: "bytes=5-9", IfMatch: tag})
			e.ok(err)
			e.same(g.Body, body[5:10])
			_, err = c.Get(e.ctx, b, "k", getOpts{Range: "bytes=5-9", IfMatch: md5Hex([]byte("other"))})
			e.fails(err, 412, "PreconditionFailed")
		}),
		both("range/HeadObject/partial", func(e *env, c sdk) {
			b := e.bucket()
			e.put(b, "k", data(4, 1000))
			h, err := c.Head(e.ctx, b, "k", getOpts{Range: "bytes=100-199"})
			e.ok(err)
			equal(e, "Content-Length", h.Get("Content-Length"), "100")
			equal(e, "Content-Range", h.Get("Content-Range"), "bytes 100-199/1000")
		}),
		one("range/GetObject/if-range", func(e *env) {
			b := e.bucket()
			body := data(4, 1000)
			tag := e.put(b, "k", body)
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"Range": "bytes=5-9", "If-Range": `"` + tag + `"`}})
			equal(e, "status with the object's tag", a.Status, 206)
			a = e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"Range": "bytes=5-9", "If-Range": `"` + md5Hex(nil) + `"`}})
			equal(e, "status with another tag", a.Status, 200)
			e.same(a.Body, body)
		}),
	)
}

// conditionCases are those of RFC 9110 as S3 reads them: when an ETag and a
// date are both given, the ETag decides.
func conditionCases() []kase {
	type cond struct {
		name   string
		opts   func(tag string, mod time.Time) getOpts
		status int
	}
	other := md5Hex([]byte("some other body"))
	conds := []cond{
		{"if-match-same", func(tag string, _ time.Time) getOpts { return getOpts{IfMatch: tag} }, 200},
		{"if-match-other", func(string, time.Time) getOpts { return getOpts{IfMatch: other} }, 412},
		{"if-none-match-same", func(tag string, _ time.Time) getOpts { return getOpts{IfNoneMatch: tag} }, 304},
		{"if-none-match-other", func(string, time.Time) getOpts { return getOpts{IfNoneMatch: other} }, 200},
		{"modified-since-before", func(_ string, m time.Time) getOpts { return getOpts{IfModifiedSince: m.Add(-time.Hour)} }, 200},
		{"modified-since-same", func(_ string, m time.Time) getOpts { return getOpts{IfModifiedSince: m} }, 304},
		{"unmodified-since-before", func(_ string, m time.Time) getOpts { return getOpts{IfUnmodifiedSince: m.Add(-time.Hour)} }, 412},
		{"unmodified-since-same", func(_ string, m time.Time) getOpts { return getOpts{IfUnmodifiedSince: m} }, 200},
		{"match-outranks-unmodified", func(tag string, m time.Time) getOpts {
			return getOpts{IfMatch: tag, IfUnmodifiedSince: m.Add(-time.Hour)}
		}, 200},
		{"none-match-outranks-modified", func(tag string, m time.Time) getOpts {
			return getOpts{IfNoneMatch: tag, IfModifiedSince: m.Add(-time.Hour)}
		}, 304},
	}
	var out []kase
	for _, c := range conds {
		for _, method := range []string{"GetObject", "HeadObject"} {
			out = append(out, both("condition/"+method+"/"+c.name, func(e *env, s sdk) {
				b := e.bucket()
				tag := e.put(b, "k", []byte("body"))
				h, err := e.aws.Head(e.ctx, b, "k", getOpts{})
				e.ok(err)
				mod, err := http.ParseTime(h.Get("Last-Modified"))
				e.ok(err)
				o := c.opts(tag, mod)
				if method == "GetObject" {
					_, err = s.Get(e.ctx, b, "k", o)
				} else {
					_, err = s.Head(e.ctx, b, "k", o)
				}
				if c.status == 200 {
					e.ok(err)
					return
				}
				e.fails(err, c.status, "")
			})...)
		}
	}
	return slices.Concat(out, writeConditionCases(),
		one("condition/GetObject/not-modified-has-etag-and-no-body", func(e *env) {
			b := e.bucket()
			tag := e.put(b, "k", []byte("body"))
			for _, v := range []string{`"` + tag + `"`, tag, "*", `"x", "` + tag + `"`, `W/"` + tag + `"`} {
				a := e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"If-None-Match": v}})
				equal(e, "status for "+v, a.Status, 304)
				equal(e, "ETag for "+v, a.Header.Get("ETag"), `"`+tag+`"`)
				equal(e, "body length", len(a.Body), 0)
			}
		}),
	)
}

func writeConditionCases() []kase {
	return slices.Concat(
		both("condition/PutObject/if-none-match-star", func(e *env, c sdk) {
			b := e.bucket()
			_, err := c.Put(e.ctx, b, "k", []byte("first"), putOpts{IfNoneMatch: "*"})
			e.ok(err)
			_, err = c.Put(e.ctx, b, "k", []byte("second"), putOpts{IfNoneMatch: "*"})
			e.fails(err, 412, "PreconditionFailed")
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("first"))
			e.ok(c.Delete(e.ctx, b, "k"))
			_, err = c.Put(e.ctx, b, "k", data(1, 100_000), putOpts{IfNoneMatch: "*"})
			e.ok(err)
		}),
		both("condition/PutObject/if-match", func(e *env, c sdk) {
			b := e.bucket()
			_, err := c.Put(e.ctx, b, "k", []byte("x"), putOpts{IfMatch: md5Hex([]byte("x"))})
			e.fails(err, 404, "NoSuchKey")
			tag := e.put(b, "k", []byte("one"))
			_, err = c.Put(e.ctx, b, "k", []byte("two"), putOpts{IfMatch: md5Hex([]byte("zero"))})
			e.fails(err, 412, "PreconditionFailed")
			_, err = c.Put(e.ctx, b, "k", []byte("two"), putOpts{IfMatch: tag})
			e.ok(err)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("two"))
		}),
		one("condition/PutObject/one-of-many-wins", func(e *env) {
			b := e.bucket()
			const n = 16
			wins := make(chan int, n)
			for i := range n {
				go func() {
					_, err := e.minio.Put(e.ctx, b, "lock", []byte(strconv.Itoa(i)), putOpts{IfNoneMatch: "*"})
					switch f := failureOf(err); {
					case err == nil:
						wins <- i
					case f.Status == 412 || f.Status == 409: // S3 answers 409 while another is under way
						wins <- -1
					default:
						e.Errorf("put %d: %v", i, err)
						wins <- -1
					}
				}()
			}
			winner, count := -1, 0
			for range n {
				if i := <-wins; i >= 0 {
					winner, count = i, count+1
				}
			}
			equal(e, "winners", count, 1)
			g, err := e.aws.Get(e.ctx, b, "lock", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte(strconv.Itoa(winner)))
		}),
	)
}
