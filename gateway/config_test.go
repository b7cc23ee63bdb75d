package gateway

import (
	"encoding/xml"
	"net/http"
	"strings"
	"testing"
)

// TestConfiguration asks what tools ask of a fresh bucket.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.want(t, 200, wireRequest{method: "PUT", target: "/alice-1", user: aliceKey})
	for sub, code := range map[string]string{
		"policy": "NoSuchBucketPolicy", "policyStatus": "NoSuchBucketPolicy", "cors": "NoSuchCORSConfiguration",
		"lifecycle": "NoSuchLifecycleConfiguration", "website": "NoSuchWebsiteConfiguration", "tagging": "NoSuchTagSet",
		"replication": "ReplicationConfigurationNotFoundError", "object-lock": "ObjectLockConfigurationNotFoundError",
		"encryption": "ServerSideEncryptionConfigurationNotFoundError",
	} {
		q := wireRequest{method: "GET", target: "/alice-1?" + sub}
		if a := h.want(t, 404, q); a.code() != code || element(a.body, "BucketName") != "alice-1" {
			t.Errorf("%s: %s, want %s", sub, a.body, code)
		}
		if sub != "object-lock" && sub != "policyStatus" {
			h.want(t, 204, wireRequest{method: "DELETE", target: "/alice-1?" + sub})
		}
		if sub != "tagging" {
			h.wantCode(t, "NotImplemented", wireRequest{method: "PUT", target: "/alice-1?" + sub, body: []byte("<x/>")})
		}
	}
	for sub, name := range map[string]string{
		"versioning": "VersioningConfiguration", "logging": "BucketLoggingStatus", "notification": "NotificationConfiguration",
		"accelerate": "AccelerateConfiguration", "requestPayment": "RequestPaymentConfiguration",
		"ownershipControls": "OwnershipControls", "publicAccessBlock": "PublicAccessBlockConfiguration", "acl": "AccessControlPolicy",
	} {
		a := h.want(t, 200, wireRequest{method: "GET", target: "/alice-1?" + sub})
		var root struct{ XMLName xml.Name }
		if err := xml.Unmarshal(a.body, &root); err != nil || root.XMLName != (xml.Name{Space: xmlNamespace, Local: name}) {
			t.Errorf("%s: %v, %s", sub, err, a.body)
		}
		golden(t, "config-"+sub, a.body)
		h.want(t, 403, wireRequest{method: "GET", target: "/alice-1?" + sub, user: malloryID})
		h.wantCode(t, "NoSuchBucket", wireRequest{method: "GET", target: "/nobox?" + sub})
	}
}

// TestConfigurationSet: what is so anyway may be set; anything else is 501.
func TestConfigurationSet(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("x"))
	acl := string(h.want(t, 200, wireRequest{method: "GET", target: "/box/k?acl"}).body)
	canned := func(v string) map[string]string { return map[string]string{"x-amz-acl": v} }
	other := strings.Replace(acl, "<Grantee", `<Grantee xmlns:x="x"`, 1)
	block := func(last string) string {
		return "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>" + last + "</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
	}
	owner := func(v string) string {
		return "<OwnershipControls><Rule><ObjectOwnership>" + v + "</ObjectOwnership></Rule></OwnershipControls>"
	}
	for _, c := range []struct {
		target, code string
		body         string
		header       map[string]string
	}{
		{"?acl", "", "", canned("private")},
		{"?acl", "", "", canned("bucket-owner-full-control")},
		{"?acl", "", acl, nil},
		{"?acl", "", other, nil},
		{"?acl", "NotImplemented", "", canned("public-read")},
		{"?acl", "NotImplemented", "", map[string]string{"x-amz-grant-read": "id=x"}},
		{"?acl", "NotImplemented", strings.ReplaceAll(acl, "FULL_CONTROL", "READ"), nil},
		{"?acl", "NotImplemented", strings.ReplaceAll(acl, "<ID>", "<ID>0"), nil},
		{"?acl", "NotImplemented", strings.Replace(acl, "</Grant>", "</Grant><Grant><Grantee><ID>x</ID></Grantee><Permission>READ</Permission></Grant>", 1), nil},
		{"?acl", "UnexpectedContent", acl, canned("private")},
		{"?acl", "MissingSecurityHeader", "", nil},
		{"?acl", "MalformedXML", "<Acl/>", nil},
		{"?acl", "MalformedXML", "acl", nil},
		{"?publicAccessBlock", "", block("true"), nil},
		{"?publicAccessBlock", "NotImplemented", block("false"), nil},
		{"?publicAccessBlock", "MalformedXML", block("maybe"), nil},
		{"?ownershipControls", "", owner("BucketOwnerEnforced"), nil},
		{"?ownershipControls", "NotImplemented", owner("ObjectWriter"), nil},
		{"?ownershipControls", "MalformedXML", "<OwnershipControls/>", nil},
	} {
		targets := []string{"/box" + c.target}
		if c.target == "?acl" {
			targets = append(targets, "/box/k?acl")
		}
		for _, target := range targets {
			q := wireRequest{method: "PUT", target: target, body: []byte(c.body), header: c.header}
			if c.code == "" {
				h.want(t, 200, q)
			} else {
				h.wantCode(t, c.code, q)
			}
		}
	}
	for _, m := range []string{"GET", "PUT"} {
		h.wantCode(t, "NoSuchKey", wireRequest{method: m, target: "/box/none?acl", header: canned("private")})
	}
	if again := string(h.want(t, 200, wireRequest{method: "GET", target: "/box/k?acl"}).body); again != acl {
		t.Errorf("the access control list is now %s", again)
	}
}

// otherHeaders are x-amz- headers that S3's operations take and this server
// does not honour, as S3's documentation lists them; and one it does not list.
var otherHeaders = []string{
	"x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id", "x-amz-server-side-encryption-bucket-key-enabled",
	"x-amz-server-side-encryption-context", "x-amz-server-side-encryption-customer-algorithm",
	"x-amz-server-side-encryption-customer-key", "x-amz-server-side-encryption-customer-key-md5",
	"x-amz-copy-source-server-side-encryption-customer-algorithm", "x-amz-copy-source-server-side-encryption-customer-key",
	"x-amz-copy-source-server-side-encryption-customer-key-md5",
	"x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date", "x-amz-object-lock-legal-hold", "x-amz-bypass-governance-retention",
	"x-amz-bucket-object-lock-token", "x-amz-grant-full-control", "x-amz-grant-read", "x-amz-grant-read-acp", "x-amz-grant-write", "x-amz-grant-write-acp",
	"x-amz-website-redirect-location", "x-amz-write-offset-bytes", "x-amz-rename-source", "x-amz-rename-source-if-match",
	"x-amz-mfa", "x-amz-if-match-last-modified-time", "x-amz-if-match-size", "x-amz-if-match-initiated-time", "x-amz-create-session-mode",
	"x-amz-confirm-remove-self-bucket-access", "x-amz-transition-default-minimum-object-size", "x-amz-skip-destination-validation",
	"x-amz-bucket-namespace", "x-amz-checksum-md5", "x-amz-checksum-sha512", "x-amz-checksum-xxhash3",
	"x-amz-object-lock-event-hold", "x-amz-object-annotation-directive", "x-amz-object-if-match", "x-amz-client-token", "x-amz-of-tomorrow",
}

// badValues are values of headers in amzHeaders that are not honoured.
var badValues = map[string]string{
	"x-amz-acl": "public-read", "x-amz-storage-class": "GLACIER", "x-amz-object-ownership": "ObjectWriter",
	"x-amz-bucket-object-lock-enabled": "true", "x-amz-request-payer": "owner", "x-amz-te": "gzip", "x-amz-api-version": "2038-01-19",
	"x-amz-optional-object-attributes": "Colour", "x-amz-checksum-mode": "SOMETIMES",
}

// TestForeignHeaders walks the operation table: no operation takes a request
// with a header that it does not honour, be it a header or, as in a presigned
// URL, in the query.
func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("hello"))
	for _, r := range amzHeaders {
		if _, ok := badValues[strings.ToLower(r.name)]; ok != (r.values != nil) {
			t.Errorf("%s: values %v, and a bad one here: %v", r.name, r.values, ok)
		}
	}
	bad := map[string]string{}
	for _, name := range otherHeaders {
		bad[name] = "x"
		if amzHeader(http.CanonicalHeaderKey(name)) != nil {
			t.Errorf("%s is in the table", name)
		}
	}
	for name, v := range badValues {
		bad[name] = v
	}
	seen := map[string]bool{}
	for _, op := range operations {
		target := map[level]string{onService: "/", onBucket: "/box", onObject: "/box/k"}[op.level]
		sep := "?"
		for _, q := range op.query {
			value := map[string]string{"partNumber": "1", "uploadId": "none", "list-type": "2"}[q]
			target += sep + q + "=" + value
			sep = "&"
		}
		seen[op.name] = true
		for name, v := range bad {
			q := wireRequest{method: op.method, target: target, header: map[string]string{name: v}}
			if op.header != "" {
				q.header[op.header] = "x"
			}
			asQuery := q
			asQuery.header = map[string]string{}
			if op.header != "" {
				asQuery.header[op.header] = "x"
			}
			asQuery.target += sep + name + "=" + v
			for _, q := range []wireRequest{q, asQuery} {
				a := h.do(t, q)
				if a.StatusCode != 501 || op.method != "HEAD" && a.code() != "NotImplemented" {
					t.Errorf("%s with %s: %s: %d %s", op.name, name, v, a.StatusCode, a.body)
				}
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d operations were walked", len(seen))
	}
	if got := h.want(t, 200, wireRequest{method: "GET", target: "/box/k"}); string(got.body) != "hello" {
		t.Errorf("refused requests changed the object to %q", got.body)
	}
}

// TestQueryHeaders: what SDKs put into a presigned URL counts as a header.
func TestQueryHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.bucket(t, "box")
	h.want(t, 200, wireRequest{method: "PUT", target: "/box/k?x-amz-tagging=a%3D1&x-amz-meta-color=blue&X-Amz-Acl=private&x-amz-sdk-checksum-algorithm=CRC32", body: []byte("x")})
	if got := h.tags(t, "/box/k"); got != "a=1" {
		t.Errorf("tags %q", got)
	}
	a := h.want(t, 200, wireRequest{method: "HEAD", target: "/box/k?x-amz-checksum-mode=ENABLED"})
	if a.Header.Get("x-amz-meta-color") != "blue" || a.Header.Get("x-amz-checksum-crc64nvme") == "" {
		t.Errorf("%v", a.Header)
	}
	h.want(t, 200, wireRequest{method: "PUT", target: "/box/copy?x-amz-copy-source=box%2Fk"})
	h.wantCode(t, "BadDigest", wireRequest{method: "PUT", target: "/box/k?x-amz-checksum-crc32=AAAAAA==", body: []byte("x")})
	h.wantCode(t, "AccessDenied", wireRequest{method: "GET", target: "/box/k?x-amz-expected-bucket-owner=x"})
	h.wantCode(t, "InvalidRequest", wireRequest{method: "PUT", target: "/box/k?x-amz-meta-a=1", header: map[string]string{"x-amz-meta-a": "2"}})
	h.wantCode(t, "InvalidArgument", wireRequest{method: "PUT", target: "/box/k?x-amz-meta-a=1%0d%0ax"})
}
