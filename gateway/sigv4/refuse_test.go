package sigv4

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// presigned is the published presigned example with one parameter replaced;
// an empty value removes it.
func presigned(name, value string) string {
	q := url.Values{
		queryAlgorithm: {algorithm}, queryCredential: {exampleKey + "/20130524/us-east-1/s3/aws4_request"}, queryDate: {"20130524T000000Z"},
		queryExpires: {"86400"}, querySignedHeaders: {"host"}, querySignature: {"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"},
	}
	if value == "" {
		q.Del(name)
	} else {
		q.Set(name, value)
	}
	return "GET /test.txt?" + q.Encode() + " HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\n\r\n"
}

// header is the published GET with its Authorization replaced, and more lines.
func header(auth string, more ...string) string {
	return lines(append([]string{"GET /test.txt HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "Range: bytes=0-9", auth}, more...)...)
}

func TestRefusals(t *testing.T) {
	const sig = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
	const list = "host;range;x-amz-content-sha256;x-amz-date"
	good := authHeader(list, sig)
	date, sha := "x-amz-date: 20130524T000000Z", "x-amz-content-sha256: "+EmptySHA256
	sub := strings.ReplaceAll
	for _, c := range []struct {
		name, text string
		now        time.Duration // after the example's time
		region     string
		code       string
		says       string
	}{
		{name: "the example itself", text: header(good, date, sha)},
		{name: "late by 15 minutes", text: header(good, date, sha), now: 15 * time.Minute},
		{name: "its own region", text: header(good, date, sha), region: "us-east-1"},
		{name: "skewed late", text: header(good, date, sha), now: 15*time.Minute + time.Second, code: "RequestTimeTooSkewed"},
		{name: "skewed early", text: header(good, date, sha), now: -15*time.Minute - time.Second, code: "RequestTimeTooSkewed"},
		{name: "another region", text: header(good, date, sha), region: "eu-west-1", code: "AuthorizationHeaderMalformed", says: "expecting 'eu-west-1'"},
		{name: "unknown key", text: header(sub(good, exampleKey, "AKNOBODY"), date, sha), code: "InvalidAccessKeyId"},
		{name: "bad signature", text: header(sub(good, "f0e8", "f0e9"), date, sha), code: "SignatureDoesNotMatch"},
		{name: "upper-case signature", text: header(sub(good, sig, strings.ToUpper(sig)), date, sha), code: "SignatureDoesNotMatch"},
		{name: "short signature", text: header(sub(good, sig, sig[:63]), date, sha), code: "SignatureDoesNotMatch"},
		{name: "signed header is absent", text: header(sub(good, "range", "pragma;range"), date, sha), code: "SignatureDoesNotMatch", says: "pragma"},
		{name: "no date", text: header(good, sha), code: "AccessDenied", says: "valid Date"},
		{name: "broken date", text: header(good, sha, "x-amz-date: 2013-05-24"), code: "AccessDenied", says: "valid Date"},
		{name: "fractions in the date", text: header(good, sha, "x-amz-date: 20130524T000000.5Z"), code: "AccessDenied", says: "valid Date"},
		{name: "two dates", text: header(good, sha, date, date), code: "AccessDenied", says: "valid Date"},
		{name: "date is not the credential's", text: header(good, sha, "x-amz-date: 20130525T000000Z"), code: "AuthorizationHeaderMalformed", says: "20130524"},
		{name: "no payload hash", text: header(good, date), code: "InvalidRequest", says: "x-amz-content-sha256"},
		{name: "two payload hashes", text: header(good, date, sha, sha), code: "InvalidRequest", says: "x-amz-content-sha256"},
		{name: "odd payload hash", text: header(good, date, "x-amz-content-sha256: e3b0"), code: "InvalidArgument", says: "x-amz-content-sha256"},
		{name: "no hex payload hash", text: header(good, date, "x-amz-content-sha256: "+strings.Repeat("g", 64)), code: "InvalidArgument"},
		{name: "ECDSA payload", text: header(good, date, "x-amz-content-sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), code: "InvalidArgument"},
		{name: "unsigned amz header", text: header(good, date, sha, "X-Amz-Acl: private"), code: "AccessDenied", says: "x-amz-acl"},
		{name: "unsigned kv header", text: header(good, date, sha, "X-KV-Parent: a"), code: "AccessDenied", says: "x-kv-parent"},
		{name: "session token", text: header(good, date, sha, "X-Amz-Security-Token: t"), code: "InvalidToken"},
		{name: "V2", text: header("Authorization: AWS " + exampleKey + ":frJIUN8DYpKDtOLCwo//yllqDzg="), code: "InvalidRequest", says: "Version 4"},
		{name: "V4A", text: header("Authorization: AWS4-ECDSA-P256-SHA256 Credential=x"), code: "InvalidRequest", says: "AWS4-HMAC-SHA256"},
		{name: "basic", text: header("Authorization: Basic dXNlcjpwYXNz"), code: "InvalidArgument", says: "Unsupported Authorization Type"},
		{name: "empty", text: header("Authorization:"), code: "InvalidArgument"},
		{name: "two", text: header(good, date, sha, good), code: "AuthorizationHeaderMalformed"},
		{name: "no fields", text: header("Authorization: AWS4-HMAC-SHA256"), code: "AuthorizationHeaderMalformed", says: "Credential"},
		{name: "no signature", text: header(sub(good, ",Signature="+sig, ""), date, sha), code: "AuthorizationHeaderMalformed", says: "Signature is missing"},
		{name: "field twice", text: header(good+",Signature="+sig, date, sha), code: "AuthorizationHeaderMalformed", says: "more than once"},
		{name: "odd field", text: header(good+",Extra=1", date, sha), code: "AuthorizationHeaderMalformed"},
		{name: "short credential", text: header(sub(good, "/us-east-1", ""), date, sha), code: "AuthorizationHeaderMalformed", says: "Credential"},
		{name: "no access key", text: header(sub(good, exampleKey, ""), date, sha), code: "AuthorizationHeaderMalformed"},
		{name: "odd credential date", text: header(sub(good, "/20130524/", "/2013524x/"), date, sha), code: "AuthorizationHeaderMalformed", says: "yyyyMMdd"},
		{name: "no region", text: header(sub(good, "/us-east-1/", "//"), date, sha), code: "AuthorizationHeaderMalformed"},
		{name: "another service", text: header(sub(good, "/s3/", "/ec2/"), date, sha), code: "AuthorizationHeaderMalformed", says: "s3"},
		{name: "another terminator", text: header(sub(good, "aws4_request", "aws5_request"), date, sha), code: "AuthorizationHeaderMalformed"},
		{name: "host is not signed", text: header(sub(good, "host;", ""), date, sha), code: "AuthorizationHeaderMalformed", says: "host"},
		{name: "unsorted headers", text: header(sub(good, "host;range", "range;host"), date, sha), code: "AuthorizationHeaderMalformed", says: "sorted"},
		{name: "repeated header", text: header(sub(good, "host;", "host;host;"), date, sha), code: "AuthorizationHeaderMalformed", says: "repeats"},
		{name: "upper-case header", text: header(sub(good, "range", "Range"), date, sha), code: "AuthorizationHeaderMalformed", says: "lower-case"},
		{name: "empty header", text: header(sub(good, "range;", ";"), date, sha), code: "AuthorizationHeaderMalformed", says: "lower-case"},
		{name: "many headers", text: header(sub(good, "host", strings.Repeat("a;", 300)+"host"), date, sha), code: "AuthorizationHeaderMalformed", says: "too many"},
		{name: "both ways", text: strings.Replace(presigned("", ""), "\r\n\r\n", "\r\n"+good+"\r\n\r\n", 1), code: "InvalidArgument", says: "Only one"},

		{name: "presigned example", text: presigned("", "")},
		{name: "presigned at its end", text: presigned("", ""), now: 24 * time.Hour},
		{name: "presigned expired", text: presigned("", ""), now: 24*time.Hour + time.Second, code: "AccessDenied", says: "expired"},
		{name: "presigned for later", text: presigned("", ""), now: -15*time.Minute - time.Second, code: "AccessDenied", says: "not valid yet"},
		{name: "presigned longer", text: presigned(queryExpires, "86401"), code: "SignatureDoesNotMatch"},
		{name: "presigned, more", text: presigned("acl", "x"), code: "SignatureDoesNotMatch"},
		{name: "presigned by nobody", text: presigned(queryCredential, "AKNOBODY/20130524/us-east-1/s3/aws4_request"), code: "InvalidAccessKeyId"},
		{name: "presigned, other algorithm", text: presigned(queryAlgorithm, "AWS4-HMAC-SHA1"), code: "AuthorizationQueryParametersError"},
		{name: "presigned without algorithm", text: presigned(queryAlgorithm, ""), code: "AuthorizationQueryParametersError", says: queryAlgorithm},
		{name: "presigned without credential", text: presigned(queryCredential, ""), code: "AuthorizationQueryParametersError", says: queryCredential},
		{name: "presigned without date", text: presigned(queryDate, ""), code: "AuthorizationQueryParametersError", says: queryDate},
		{name: "presigned without expires", text: presigned(queryExpires, ""), code: "AuthorizationQueryParametersError", says: queryExpires},
		{name: "presigned without list", text: presigned(querySignedHeaders, ""), code: "AuthorizationQueryParametersError", says: querySignedHeaders},
		{name: "presigned without signature", text: presigned(querySignature, ""), code: "AuthorizationQueryParametersError", says: querySignature},
		{name: "presigned, odd credential", text: presigned(queryCredential, "x"), code: "AuthorizationQueryParametersError", says: "X-Amz-Credential"},
		{name: "presigned, odd date", text: presigned(queryDate, "yesterday"), code: "AuthorizationQueryParametersError", says: "X-Amz-Date"},
		{name: "presigned, other date", text: presigned(queryDate, "20130523T000000Z"), code: "AuthorizationQueryParametersError", says: "20130523"},
		{name: "presigned, no host", text: presigned(querySignedHeaders, "range"), code: "AuthorizationQueryParametersError", says: "host"},
		{name: "presigned, expires 0", text: presigned(queryExpires, "0"), code: "AuthorizationQueryParametersError", says: "X-Amz-Expires"},
		{name: "presigned, expires -1", text: presigned(queryExpires, "-1"), code: "AuthorizationQueryParametersError", says: "X-Amz-Expires"},
		{name: "presigned, a week", text: presigned(queryExpires, "604800"), code: "SignatureDoesNotMatch"},
		{name: "presigned, over a week", text: presigned(queryExpires, "604801"), code: "AuthorizationQueryParametersError", says: "week"},
		{name: "presigned, expires a day", text: presigned(queryExpires, "1d"), code: "AuthorizationQueryParametersError", says: "number"},
		{name: "presigned, huge expires", text: presigned(queryExpires, "99999999999999999999"), code: "AuthorizationQueryParametersError"},
		{name: "presigned, token", text: presigned(queryToken, "t"), code: "InvalidToken"},
		{name: "presigned, twice", text: strings.Replace(presigned("", ""), "?", "?X-Amz-Expires=1&", 1), code: "AuthorizationQueryParametersError", says: "more than once"},
		{name: "presigned, unsigned header", text: strings.Replace(presigned("", ""), "\r\n\r\n", "\r\nx-amz-acl: private\r\n\r\n", 1), code: "AccessDenied", says: "x-amz-acl"},
		{name: "presigned, hidden name", text: sub(presigned("", ""), "X-Amz-Expires", "X-Amz-%45xpires")},
		{name: "presigned V2", text: lines("GET /k?AWSAccessKeyId="+exampleKey+"&Expires=1141889120&Signature=vjbyPxybdZaNmGa%2ByT272YEAiv4%3D HTTP/1.1", "Host: h"),
			code: "InvalidRequest", says: "Version 4"},
		{name: "bad escape", text: lines("GET /k?a=%zz HTTP/1.1", "Host: h"), code: "InvalidURI"},
		{name: "cut escape", text: lines("GET /k?a=%a HTTP/1.1", "Host: h"), code: "InvalidURI"},
	} {
		v := verifierAt(exampleTime.Add(c.now))
		v.Region = c.region
		res, err := v.Verify(received(t, c.text))
		if c.code == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.says) || res != nil {
			t.Errorf("%s: %v, want %s saying %q", c.name, err, c.code, c.says)
			continue
		}
		if (e.Status != 400 && e.Status != 403) || strings.Contains(fmt.Sprintf("%+v", *e), exampleSecret) {
			t.Errorf("%s: status %d, error %+v", c.name, e.Status, *e)
		}
	}
}

func TestMismatchIsExplained(t *testing.T) {
	r := received(t, published[0].text)
	r.Header.Set("Range", "bytes=0-8")
	_, err := verifierAt(exampleTime).Verify(r)
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.CanonicalRequest, "range:bytes=0-8\n") ||
		!strings.HasPrefix(e.StringToSign, "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n") ||
		e.AccessKey != exampleKey || len(e.SignatureProvided) != hexSize {
		t.Errorf("%+v", e)
	}
}

func TestAnonymous(t *testing.T) {
	v := verifierAt(exampleTime)
	for _, c := range []struct {
		lines []string
		want  Payload
		code  string
	}{
		{nil, PayloadUnsigned, ""},
		{[]string{"x-amz-content-sha256: " + EmptySHA256}, PayloadSigned, ""},
		{[]string{"x-amz-content-sha256: UNSIGNED-PAYLOAD", "x-amz-acl: private"}, PayloadUnsigned, ""},
		{[]string{"x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER"}, PayloadUnsignedTrailer, ""},
		{[]string{"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, 0, "AccessDenied"},
		{[]string{"x-amz-content-sha256: nonsense"}, 0, "InvalidArgument"},
	} {
		res, err := v.Verify(received(t, lines(append([]string{"GET /b?list-type=2 HTTP/1.1", "Host: h"}, c.lines...)...)))
		var e *Error
		if c.code != "" {
			if !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("%v: %v, want %s", c.lines, err, c.code)
			}
			continue
		}
		if err != nil || !res.Anonymous || res.Payload != c.want || res.IsSigned("host") {
			t.Errorf("%v: %v, %v", c.lines, res, err)
		}
	}
}

// Date in place of x-amz-date, in either notation.
func TestDateHeader(t *testing.T) {
	for _, date := range []string{"Fri, 24 May 2013 00:00:00 GMT", "20130524T000000Z"} {
		r := received(t, lines("GET /k HTTP/1.1", "Host: h", "Date: "+date, "x-amz-content-sha256: UNSIGNED-PAYLOAD"))
		c := credential{exampleKey, "20130524", "r", "s3", "20130524/r/s3/aws4_request"}
		s := new(scratch)
		const list = "date;host;x-amz-content-sha256"
		if err := s.canonical(r, strings.Split(list, ";"), list, unsignedPayload, false); err != nil {
			t.Fatal(err)
		}
		s.stringToSign("20130524T000000Z", c.scope)
		key := deriveKey(exampleSecret, c)
		r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
			exampleKey, c.scope, list, hmacSum(&key, s.sts)))
		if _, err := verifierAt(exampleTime).Verify(r); err != nil {
			t.Errorf("%s: %v", date, err)
		}
	}
}

// A changed secret must not be served by the key made from the old one, and a
// burst of names must not grow the cache without end.
func TestKeyCache(t *testing.T) {
	secret := exampleSecret
	v := verifierAt(exampleTime)
	v.Lookup = func(string) (string, bool) { return secret, true }
	ok := func() bool { _, err := v.Verify(received(t, published[0].text)); return err == nil }
	for range 2 { // without and with the key in the cache
		if !ok() {
			t.Fatal("the example does not verify")
		}
	}
	secret = "another secret, of another length"
	if ok() {
		t.Error("verified with a key of the old secret")
	}
	secret = exampleSecret
	if !ok() {
		t.Error("the first secret is back and does not verify")
	}
	var k keyCache
	for i := range 3 * maxKeys {
		c := credential{accessKey: fmt.Sprint(i)}
		k.put(c, "s", [32]byte{byte(i)})
		if key, ok := k.get(c, "s"); !ok || key[0] != byte(i) {
			t.Fatalf("entry %d is lost", i)
		}
		if n := len(*k.m.Load()); n > maxKeys {
			t.Fatalf("%d entries", n)
		}
	}
	if _, ok := k.get(credential{accessKey: "none"}, "s"); ok {
		t.Error("found what was never put")
	}
}

// Refused requests must leave nothing in the cache: only those who hold a key
// can fill it.
func TestRefusedKeysAreNotCached(t *testing.T) {
	v := verifierAt(exampleTime)
	for _, text := range []string{
		strings.ReplaceAll(published[0].text, "f0e8", "0000"),
		strings.ReplaceAll(published[0].text, exampleKey, "AKNOBODY"),
	} {
		if _, err := v.Verify(received(t, text)); err == nil {
			t.Fatal("verified")
		}
	}
	if v.keys.m.Load() != nil {
		t.Error("a refused request filled the cache")
	}
}

// Whoever signs with the stand-in for missing secrets must still be unknown.
func TestDummySecretOpensNothing(t *testing.T) {
	now := time.Now()
	r := request(t, "GET", "k", nil, true, nil)
	r.Header.Set("X-Amz-Content-Sha256", EmptySHA256)
	signed := signer.SignV4(*r, "AKNOBODY", dummySecret, "", "us-east-1")
	_, err := verifierAt(now).Verify(wire(t, signed))
	var e *Error
	if !errors.As(err, &e) || e.Code != "InvalidAccessKeyId" || e.Status != http.StatusForbidden {
		t.Errorf("%v, want InvalidAccessKeyId", err)
	}
}

func TestResultHidesKey(t *testing.T) {
	res, err := verifierAt(exampleTime).Verify(received(t, published[0].text))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(f, res); got != exampleKey+"/20130524/us-east-1/s3/aws4_request" {
			t.Errorf("%s prints %q", f, got)
		}
	}
}
