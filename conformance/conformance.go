// Package conformance is a black-box suite for an S3 endpoint, run through
// minio-go, aws-sdk-go-v2 and requests signed by hand. It knows only the wire,
// so it can be pointed at any store; what only objcached answers (the KV
// requests) is skipped elsewhere.
//
//	go test ./conformance -v -endpoint http://127.0.0.1:9000 -access-key … -secret-key …
//
// Without -endpoint the test builds the server and runs it over HTTP and TLS.
package conformance

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// Target is the endpoint under test and what it can do.
type Target struct {
	Endpoint  string // scheme://host:port
	AccessKey string
	SecretKey string
	Region    string // default us-east-1
	// Domain, if not empty, is a name under which bucket.Domain is a bucket;
	// it and everything below it is dialled at Endpoint.
	Domain      string
	RootCAs     *x509.CertPool // for https; nil: the system's
	IsObjcached bool           // it answers the KV requests
	// Tenants are two users of different tenants, whose buckets are those that
	// start with their Prefix. Empty: the tenant cases are skipped.
	Tenants []TenantKey
}

// TenantKey is one user of a tenant.
type TenantKey struct {
	AccessKey, SecretKey string
	Prefix               string
}

// kase is one case. Its name is area/operation/what.
type kase struct {
	name string
	run  func(*env)
	ours bool // only objcached answers this
}

// both makes a case of each SDK out of one body.
func both(name string, run func(*env, sdk)) []kase {
	return []kase{
		{name: name + "/minio-go", run: func(e *env) { run(e, e.minio) }},
		{name: name + "/aws-sdk", run: func(e *env) { run(e, e.aws) }},
	}
}

func one(name string, run func(*env)) []kase     { return []kase{{name: name, run: run}} }
func oursOne(name string, run func(*env)) []kase { return []kase{{name: name, run: run, ours: true}} }

// cases returns every case, in the order in which they run.
func cases() []kase {
	return slices.Concat(
		bucketCases(), objectCases(), keyCases(), rangeCases(), conditionCases(), metadataCases(),
		copyCases(), listCases(), multiDeleteCases(), multipartCases(), partCases(), taggingCases(), configCases(), checksumCases(), streamingCases(),
		presignCases(), authCases(), hostCases(), errorCases(), kvCases(), memoryCases(), kvErrorCases(), tenantCases(),
	)
}

// count is one area's outcome.
type count struct{ passed, failed, skipped int }

// Run runs the suite against a target as subtests of t and logs a table of the
// outcome by area. It leaves nothing behind on the target but what a failed
// case could not delete.
func Run(t *testing.T, target Target) {
	shared := newShared(t, target)
	areas := map[string]*count{}
	for _, c := range cases() {
		area, _, _ := strings.Cut(c.name, "/")
		if areas[area] == nil {
			areas[area] = &count{}
		}
		n := areas[area]
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				switch {
				case t.Failed():
					n.failed++
				case t.Skipped():
					n.skipped++
				default:
					n.passed++
				}
			})
			if c.ours && !target.IsObjcached {
				t.Skip("the endpoint is not objcached")
			}
			c.run(newEnv(t, shared))
		})
	}
	t.Log("\n" + table(areas))
}

// table renders the outcome by area.
func table(areas map[string]*count) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	total := count{}
	fmt.Fprintln(w, "area\tpassed\tfailed\tskipped\t")
	for _, name := range slices.Sorted(maps.Keys(areas)) {
		n := areas[name]
		total.passed += n.passed
		total.failed += n.failed
		total.skipped += n.skipped
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", name, n.passed, n.failed, n.skipped)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", total.passed, total.failed, total.skipped)
	_ = w.Flush() // a Builder does not fail
	return b.String()
}
