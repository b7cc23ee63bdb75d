package sigv4

import (
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

const (
	queryAlgorithm     = "X-Amz-Algorithm"
	queryCredential    = "X-Amz-Credential"
	queryDate          = "X-Amz-Date"
	queryExpires       = "X-Amz-Expires"
	querySignedHeaders = "X-Amz-SignedHeaders"
	querySignature     = "X-Amz-Signature"
	queryContentSHA256 = "X-Amz-Content-Sha256"
	queryToken         = "X-Amz-Security-Token"
)

// maxSignedHeaders bounds the list of signed headers.
const maxSignedHeaders = 256

type authorization struct{ credential, signedHeaders, signature string }

// parseAuthorization takes a V4 Authorization header apart. Its fields may come
// in any order, separated by commas with or without spaces.
func parseAuthorization(h string) (authorization, error) {
	var a authorization
	scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
	switch {
	case scheme == algorithm:
	case scheme == "AWS":
		return a, errV2()
	case strings.HasPrefix(scheme, "AWS4-"):
		return a, fail("InvalidRequest", "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.")
	default:
		return a, fail("InvalidArgument", "Unsupported Authorization Type")
	}
	for rest != "" {
		var field string
		field, rest, _ = strings.Cut(rest, ",")
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		var dst *string
		switch name {
		case "Credential":
			dst = &a.credential
		case "SignedHeaders":
			dst = &a.signedHeaders
		case "Signature":
			dst = &a.signature
		default:
			return a, malformed("The authorization header is malformed; it takes Credential, SignedHeaders and Signature.")
		}
		if *dst != "" {
			return a, malformed("The authorization header is malformed; " + name + " is given more than once.")
		}
		*dst = value
	}
	for _, f := range [...]struct{ name, value string }{
		{"Credential", a.credential}, {"SignedHeaders", a.signedHeaders}, {"Signature", a.signature},
	} {
		if f.value == "" {
			return a, malformed("The authorization header is malformed; " + f.name + " is missing.")
		}
	}
	return a, nil
}

// credential is a parsed credential scope.
type credential struct {
	accessKey, date, region, service string
	scope                            string // everything after the access key
}

// checkScope parses a credential and checks its scope. A non-empty reason is
// what is wrong with it.
func (v *Verifier) checkScope(s string) (c credential, reason string) {
	// From the end, because an access key may hold slashes.
	rest := s
	var field [4]string
	for i := len(field) - 1; i >= 0; i-- {
		at := strings.LastIndexByte(rest, '/')
		if at < 0 {
			return c, "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
		}
		rest, field[i] = rest[:at], rest[at+1:]
	}
	c = credential{accessKey: rest, date: field[0], region: field[1], service: field[2], scope: s[min(len(rest)+1, len(s)):]}
	service := v.Service
	if service == "" {
		service = "s3"
	}
	switch {
	case c.accessKey == "":
		return c, "the access key of the Credential is empty."
	case len(c.date) != 8 || strings.Trim(c.date, "0123456789") != "":
		return c, "incorrect date format \"" + c.date + "\". This date in the credential must be in the format \"yyyyMMdd\"."
	case c.region == "":
		return c, "the region of the Credential is empty."
	case v.Region != "" && c.region != v.Region:
		return c, "the region '" + c.region + "' is wrong; expecting '" + v.Region + "'"
	case c.service != service:
		return c, "incorrect service \"" + c.service + "\". This endpoint belongs to \"" + service + "\"."
	case field[3] != terminator:
		return c, "incorrect terminal \"" + field[3] + "\". This endpoint uses \"" + terminator + "\"."
	}
	return c, ""
}

// splitSigned splits a list of signed headers, which must be of lower-case
// names, sorted, without repeats, and with the host.
func splitSigned(list string) (names []string, reason string) {
	n := strings.Count(list, ";") + 1
	if n > maxSignedHeaders {
		return nil, "too many SignedHeaders."
	}
	names = make([]string, 0, n)
	host := false
	for rest, more := list, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, ";")
		if !isHeaderName(name) {
			return nil, "SignedHeaders holds \"" + name + "\", which is no lower-case header name."
		}
		if len(names) > 0 && names[len(names)-1] >= name {
			return nil, "SignedHeaders is not sorted or repeats \"" + name + "\"."
		}
		host = host || name == "host"
		names = append(names, name)
	}
	if !host {
		return nil, "SignedHeaders must include host."
	}
	return names, ""
}

func isHeaderName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || 'A' <= c && c <= 'Z' || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// allSigned checks that nothing that steers the server is outside the
// signature: whoever carries a request must not be able to add to it.
func allSigned(r *http.Request, signed []string) error {
	for k := range r.Header {
		if !hasPrefixFold(k, "x-amz-") && !hasPrefixFold(k, "x-kv-") {
			continue
		}
		i := sort.Search(len(signed), func(i int) bool { return compareLower(signed[i], k) >= 0 })
		if i < len(signed) && compareLower(signed[i], k) == 0 {
			continue
		}
		e := fail("AccessDenied", "There were headers present in the request which were not signed: "+strings.ToLower(k))
		e.Header = strings.ToLower(k)
		return e
	}
	return nil
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// compareLower compares a with b in lower case.
func compareLower(a, b string) int {
	for i := range min(len(a), len(b)) {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if a[i] != c {
			return int(a[i]) - int(c)
		}
	}
	return len(a) - len(b)
}

// IsSigned reports whether the signature covers the header. An anonymous
// result covers none.
func (r *Result) IsSigned(header string) bool {
	i := sort.Search(len(r.SignedHeaders), func(i int) bool { return compareLower(r.SignedHeaders[i], header) >= 0 })
	return i < len(r.SignedHeaders) && compareLower(r.SignedHeaders[i], header) == 0
}

// verifyQuery checks a presigned URL.
func (v *Verifier) verifyQuery(r *http.Request, s *scratch) (*Result, error) {
	var alg, cred, date, expires, list, sig, hash string
	for _, p := range [...]struct {
		name     string
		dst      *string
		optional bool
	}{
		{queryAlgorithm, &alg, false}, {queryCredential, &cred, false}, {queryDate, &date, false}, {queryExpires, &expires, false},
		{querySignedHeaders, &list, false}, {querySignature, &sig, false}, {queryContentSHA256, &hash, true},
	} {
		value, n := s.value(p.name)
		switch {
		case n > 1:
			return nil, badQuery(p.name + " is given more than once.")
		case n == 0 && !p.optional:
			return nil, badQuery("Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, " +
				"X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters; " + p.name + " is missing.")
		}
		*p.dst = value
	}
	if alg != algorithm {
		return nil, badQuery("X-Amz-Algorithm only supports \"" + algorithm + "\"")
	}
	if s.has(queryToken) || len(r.Header["X-Amz-Security-Token"]) > 0 {
		return nil, errToken()
	}
	c, reason := v.checkScope(cred)
	if reason != "" {
		e := badQuery("Error parsing the X-Amz-Credential parameter; " + reason)
		e.Region = v.Region
		return nil, e
	}
	signed, reason := splitSigned(list)
	if reason != "" {
		return nil, badQuery("Error parsing the X-Amz-SignedHeaders parameter; " + reason)
	}
	t, err := time.Parse(timeFormat, date)
	if err != nil || len(date) != len(timeFormat) {
		return nil, badQuery("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
	}
	if date[:8] != c.date {
		return nil, badQuery("Invalid credential date \"" + c.date + "\". This date is not the same as X-Amz-Date: \"" + date[:8] + "\".")
	}
	secs, err := strconv.ParseInt(expires, 10, 64)
	switch {
	case err != nil:
		return nil, badQuery("X-Amz-Expires should be a number")
	case secs < 1:
		return nil, badQuery("X-Amz-Expires must be at least 1 second")
	case secs > int64(MaxExpires/time.Second):
		return nil, badQuery("X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds")
	}
	now := v.now()
	if t.Sub(now) > v.skew() {
		return nil, fail("AccessDenied", "Request is not valid yet: it was signed for "+date+".")
	}
	if now.Sub(t) > time.Duration(secs)*time.Second {
		return nil, fail("AccessDenied", "Request has expired: X-Amz-Date "+date+", X-Amz-Expires "+expires+".")
	}
	if hash == "" {
		// A signed header says so too; without either nothing is said of the body.
		if hash, err = contentSHA256(r); err != nil {
			return nil, err
		}
	}
	if hash == "" {
		hash = unsignedPayload
	}
	res := &Result{Presigned: true, date: date, signature: sig}
	return v.check(r, s, c, res, signed, list, hash)
}

// value returns the decoded value of a query parameter and how often it is given.
func (s *scratch) value(name string) (value string, n int) {
	for _, p := range s.pairs {
		if string(s.query[p.key:p.value]) == name {
			n++
			// It was encoded here, so it decodes.
			value, _ = url.PathUnescape(string(s.query[p.value:p.end]))
		}
	}
	return value, n
}

func (s *scratch) has(name string) bool {
	for _, p := range s.pairs {
		if string(s.query[p.key:p.value]) == name {
			return true
		}
	}
	return false
}
