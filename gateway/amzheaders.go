package gateway

import (
	"net/http"
	"slices"
	"strings"
)

// headerRule is one row of amzHeaders.
type headerRule struct {
	name   string   // canonical; one that ends in "-" stands for all that begin with it
	values []string // what of it is honoured, in any case; nil: every value, or the handler says
}

// amzHeaders are the x-amz- headers of requests that are honoured by every
// operation that they mean something to. Any other is 501: what a header of
// tomorrow asks for is not known, and to do without it would be a wrong success.
var amzHeaders = []headerRule{
	// Of the request itself.
	{name: "X-Amz-Date"}, {name: "X-Amz-Content-Sha256"}, {name: "X-Amz-Decoded-Content-Length"}, {name: "X-Amz-Trailer"},
	{name: "X-Amz-Expected-Bucket-Owner"}, {name: "X-Amz-Source-Expected-Bucket-Owner"},
	{name: "X-Amz-Request-Id"}, {name: "X-Amz-Rdma-Token"},
	// Said in passing: they ask for nothing.
	{name: "X-Amz-User-Agent"}, {name: "X-Amz-Id-2"}, {name: "X-Amz-Cf-Id"},
	{name: "X-Amz-Api-Version", values: []string{"2006-03-01"}}, // of every request of the C++ SDK
	{name: "X-Amz-Te", values: []string{"append-md5"}},          // an offer, like TE
	// Of objects.
	{name: metaPrefix}, {name: "X-Amz-Metadata-Directive"}, {name: "X-Amz-Tagging"}, {name: "X-Amz-Tagging-Directive"},
	{name: "X-Amz-Copy-Source"}, {name: "X-Amz-Copy-Source-Range"},
	{name: "X-Amz-Copy-Source-If-Match"}, {name: "X-Amz-Copy-Source-If-None-Match"},
	{name: "X-Amz-Copy-Source-If-Modified-Since"}, {name: "X-Amz-Copy-Source-If-Unmodified-Since"},
	{name: "X-Amz-Mp-Object-Size"},
	{name: "X-Amz-Object-Attributes"}, {name: "X-Amz-Max-Parts"}, {name: "X-Amz-Part-Number-Marker"},
	{name: "X-Amz-Optional-Object-Attributes", values: []string{"RestoreStatus"}}, // no object is archived
	// Checksums.
	{name: "X-Amz-Sdk-Checksum-Algorithm"}, {name: "X-Amz-Checksum-Algorithm"}, {name: "X-Amz-Checksum-Type"},
	{name: "X-Amz-Checksum-Mode", values: []string{"ENABLED"}},
	{name: "X-Amz-Checksum-Crc32"}, {name: "X-Amz-Checksum-Crc32c"}, {name: "X-Amz-Checksum-Crc64nvme"},
	{name: "X-Amz-Checksum-Sha1"}, {name: "X-Amz-Checksum-Sha256"},
	// Where one value says how things are here anyway.
	{name: "X-Amz-Acl", values: []string{"private", "bucket-owner-full-control"}},
	{name: "X-Amz-Storage-Class", values: []string{"STANDARD"}},
	{name: "X-Amz-Object-Ownership", values: []string{ownerEnforced}},
	{name: "X-Amz-Bucket-Object-Lock-Enabled", values: []string{"false"}},
	{name: "X-Amz-Request-Payer", values: []string{"requester"}}, // the bucket's owner pays, as ?requestPayment says
}

// amzHeader finds the row of a header.
func amzHeader(name string) *headerRule {
	for i := range amzHeaders {
		r := &amzHeaders[i]
		if r.name == name || strings.HasSuffix(r.name, "-") && strings.HasPrefix(name, r.name) {
			return r
		}
	}
	return nil
}

// checkHeaders refuses headers that change the meaning of a request in a way
// that is not implemented, by name.
func checkHeaders(h http.Header) error {
	for name, values := range h {
		if !strings.HasPrefix(name, "X-Amz-") {
			continue
		}
		r := amzHeader(name)
		if r == nil {
			return notImplemented("the header %s", strings.ToLower(name))
		}
		for _, v := range values {
			if r.values != nil && !slices.ContainsFunc(r.values, func(ok string) bool { return strings.EqualFold(ok, v) }) {
				return notImplemented("%s: %s", strings.ToLower(name), v)
			}
		}
	}
	return nil
}

// signatureParams are the x-amz- parameters of a presigned URL that are not
// headers in another place.
var signatureParams = map[string]bool{
	"X-Amz-Algorithm": true, "X-Amz-Credential": true, "X-Amz-Date": true, "X-Amz-Expires": true,
	"X-Amz-Signedheaders": true, "X-Amz-Signature": true, "X-Amz-Security-Token": true, "X-Amz-Content-Sha256": true,
	// What an SDK would do with a body it has not seen.
	"X-Amz-Sdk-Checksum-Algorithm": true,
}

// queryHeaders makes headers of the x-amz- parameters of a query. SDKs put
// headers there when they presign a URL, and S3 takes them for headers.
func queryHeaders(r *request) error {
	for param, values := range r.Query {
		if len(param) < len("x-amz-") || !strings.EqualFold(param[:len("x-amz-")], "x-amz-") {
			continue
		}
		name := http.CanonicalHeaderKey(param)
		if signatureParams[name] {
			continue
		}
		if old, ok := r.Header[name]; ok && !slices.Equal(old, values) {
			return fail("InvalidRequest", "%s is given as a header and, with another value, in the query.", strings.ToLower(name))
		}
		if slices.ContainsFunc(values, hasControl) {
			return invalidArgument(param, "", "The value of %s holds a control character", param)
		}
		r.Header[name] = values
	}
	return nil
}
