package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/objcached/objcached/storage"
)

// verdict is what the conditional headers of a read come to.
type verdict uint8

const (
	proceed verdict = iota
	notModified
	preconditionFailed
)

// conditions are the four conditional headers, from a request's own headers
// or those that a copy puts on its source.
type conditions struct {
	match, noneMatch            string // entity tag lists, as sent
	hasMatch, hasNoneMatch      bool
	modifiedSince, unmodifSince time.Time // zero: not given, or no valid date
}

// conditionsOf reads the headers with the given prefix ("" or "X-Amz-Copy-Source-").
func conditionsOf(h http.Header, prefix string) conditions {
	var c conditions
	c.match, c.hasMatch = headerList(h, prefix+"If-Match")
	c.noneMatch, c.hasNoneMatch = headerList(h, prefix+"If-None-Match")
	c.modifiedSince = headerDate(h, prefix+"If-Modified-Since")
	c.unmodifSince = headerDate(h, prefix+"If-Unmodified-Since")
	return c
}

func headerList(h http.Header, name string) (string, bool) {
	v := h[name]
	return strings.Join(v, ","), len(v) > 0
}

// headerDate is the date in a header; a date that cannot be read is as good as
// none (RFC 9110, 13.1.3).
func headerDate(h http.Header, name string) time.Time {
	v := h.Get(name)
	if v == "" {
		return time.Time{}
	}
	t, err := http.ParseTime(v)
	if err != nil {
		return time.Time{}
	}
	return t
}

// check evaluates the conditions in the order of RFC 9110, 13.2.2: an entity
// tag decides where both a tag and a date are given. The second result names
// the header that failed.
func (c *conditions) check(oi *storage.ObjectInfo) (verdict, string) {
	// HTTP dates have whole seconds.
	modified := oi.Modified.Truncate(time.Second)
	switch {
	case c.hasMatch:
		if !matchesAny(c.match, oi.ETag, false) {
			return preconditionFailed, "If-Match"
		}
	case !c.unmodifSince.IsZero():
		if modified.After(c.unmodifSince) {
			return preconditionFailed, "If-Unmodified-Since"
		}
	}
	switch {
	case c.hasNoneMatch:
		if matchesAny(c.noneMatch, oi.ETag, true) {
			return notModified, "If-None-Match"
		}
	case !c.modifiedSince.IsZero():
		if !modified.After(c.modifiedSince) {
			return notModified, "If-Modified-Since"
		}
	}
	return proceed, ""
}

// matchesAny reports whether a list of entity tags names etag. Tags without
// quotes are taken, as S3 does. A weak tag matches only where weak is allowed.
func matchesAny(list, etag string, weak bool) bool {
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.TrimSpace(tag)
		if strings.HasPrefix(tag, "W/") {
			if !weak {
				continue
			}
			tag = tag[2:]
		}
		if tag == "*" || tag != "" && unquote(tag) == etag {
			return true
		}
	}
	return false
}

func conditionFailed(header string) error {
	return fail("PreconditionFailed", "At least one of the preconditions you specified did not hold.").with("Condition", header)
}

// writeCondition reads If-Match and If-None-Match of a write.
func writeCondition(h http.Header) (storage.Condition, error) {
	var c storage.Condition
	if v, ok := headerList(h, "If-None-Match"); ok {
		if strings.TrimSpace(v) != "*" {
			return c, notImplemented("If-None-Match on a write with anything but *")
		}
		c.IfNoneMatch = "*"
	}
	if v, ok := headerList(h, "If-Match"); ok {
		if strings.Contains(v, ",") {
			return c, notImplemented("If-Match on a write with more than one entity tag")
		}
		if c.IfMatch = unquote(v); c.IfMatch == "" {
			return c, invalidArgument("If-Match", v, "If-Match is empty")
		}
	}
	if c.IfMatch != "" && c.IfNoneMatch != "" {
		return c, fail("InvalidRequest", "If-Match and If-None-Match cannot both be given.")
	}
	for _, name := range [...]string{"If-Modified-Since", "If-Unmodified-Since"} {
		if len(h[name]) > 0 {
			return c, notImplemented("%s on a write", name)
		}
	}
	return c, nil
}
