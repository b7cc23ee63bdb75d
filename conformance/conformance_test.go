package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/internal/serverproc"
)

var (
	endpoint  = flag.String("endpoint", "", "run against this endpoint (scheme://host:port) and not against a server of our own")
	accessKey = flag.String("access-key", "", "access key for -endpoint")
	secretKey = flag.String("secret-key", "", "secret key for -endpoint")
	region    = flag.String("region", "us-east-1", "region of -endpoint")
	domain    = flag.String("domain", "", "name under which -endpoint serves buckets as host names; empty skips those cases")
	caFile    = flag.String("ca", "", "PEM file with the certificates to trust for -endpoint")
	foreign   = flag.Bool("foreign", false, "-endpoint is not objcached: skip what only objcached answers")
)

func TestConformance(t *testing.T) {
	if *endpoint != "" {
		target := Target{Endpoint: *endpoint, AccessKey: *accessKey, SecretKey: *secretKey, Region: *region, Domain: *domain, IsObjcached: !*foreign}
		if *caFile != "" {
			pool := x509.NewCertPool()
			b, err := os.ReadFile(*caFile)
			if err != nil || !pool.AppendCertsFromPEM(b) {
				t.Fatalf("-ca: no certificates in %s: %v", *caFile, err)
			}
			target.RootCAs = pool
		}
		Run(t, target)
		return
	}
	// The server carries the race detector when the suite does.
	bin, err := serverproc.Build(t.TempDir(), serverproc.Race)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		runOwn(t, bin, false)
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		runOwn(t, bin, true)
	})
}

const usersFile = `users:
  - name: alice
    tenant: blue
    access_key: AKIABLUEALICE0000000
    secret_key: blue-secret-of-alice
    buckets: ["blue-*"]
  - name: bob
    tenant: green
    access_key: AKIAGREENBOB00000000
    secret_key: green-secret-of-bob
    buckets: ["green-*"]
`

// runOwn runs the suite against a server of our own and checks that the server
// was asked for every operation it has, and ends well.
func runOwn(t *testing.T, bin string, secure bool) {
	dir := t.TempDir()
	creds := filepath.Join(dir, "users.yaml")
	if err := os.WriteFile(creds, []byte(usersFile), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := serverproc.Config{
		Bin: bin, Data: filepath.Join(dir, "data"), AccessKey: "AKIAROOT", SecretKey: "root-secret/+=",
		LogFile: filepath.Join(dir, "log"), Args: []string{"--credentials", creds, "--log-level", "debug"}, // the log names the operation of each request
	}
	target := Target{
		AccessKey: cfg.AccessKey, SecretKey: cfg.SecretKey, Domain: "localhost", IsObjcached: true,
		Tenants: []TenantKey{
			{AccessKey: "AKIABLUEALICE0000000", SecretKey: "blue-secret-of-alice", Prefix: "blue-"},
			{AccessKey: "AKIAGREENBOB00000000", SecretKey: "green-secret-of-bob", Prefix: "green-"},
		},
	}
	if secure {
		cert, key, pool := selfSigned(t, dir)
		cfg.Args = append(cfg.Args, "--tls-cert", cert, "--tls-key", key)
		target.RootCAs = pool
	}
	p, err := serverproc.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if want := map[bool]string{false: "http://", true: "https://"}[secure]; !strings.HasPrefix(p.URL, want) {
		t.Fatalf("server listens on %s, want %s", p.URL, want)
	}
	target.Endpoint = p.URL
	Run(t, target)
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	log := p.Log()
	for _, marker := range []string{"DATA RACE", "panic:", "msg=panic"} {
		if i := strings.Index(log, marker); i >= 0 {
			t.Errorf("the server printed %s:\n%.3000s", marker, log[i:])
		}
	}
	asked := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bop"?[=:]"?(\w+)`).FindAllStringSubmatch(log, -1) {
		asked[m[1]] = true
	}
	for _, op := range tableRows(t) {
		if !asked[op] {
			t.Errorf("no case asked the server for %s", op)
		}
	}
}

// selfSigned makes a certificate for the loopback address, localhost and every
// bucket under it.
func selfSigned(t *testing.T, dir string) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "objcached conformance"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost", "*.localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(must(x509.ParseCertificate(der)))
	return certFile, keyFile, pool
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// tableRows returns the names in the gateway's operation table. It reads the
// source, because the suite must not import the server.
func tableRows(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../gateway/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			table, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if of, ok := table.Type.(*ast.ArrayType); !ok || !isIdent(of.Elt, "operation") {
				return true
			}
			for _, row := range table.Elts {
				names = append(names, rowName(t, row))
			}
			return false
		})
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 20 {
		t.Fatalf("found only %d operations in the gateway's table: %q", len(names), names)
	}
	return names
}

func isIdent(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// rowName is a row's first or "name" element.
func rowName(t *testing.T, row ast.Expr) string {
	t.Helper()
	lit, ok := row.(*ast.CompositeLit)
	if !ok || len(lit.Elts) == 0 {
		t.Fatalf("a row of the operation table is no literal: %T", row)
	}
	first := lit.Elts[0]
	if kv, ok := first.(*ast.KeyValueExpr); ok {
		first = kv.Value
	}
	b, ok := first.(*ast.BasicLit)
	if !ok || b.Kind != token.STRING {
		t.Fatalf("a row of the operation table does not start with its name")
	}
	return must(strconv.Unquote(b.Value))
}

// TestEveryOperationHasACase holds the suite to the gateway's table.
func TestEveryOperationHasACase(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range cases() {
		covered[strings.Split(c.name, "/")[1]] = true
	}
	for _, op := range tableRows(t) {
		if !covered[op] {
			t.Errorf("operation %s has no conformance case", op)
		}
	}
}

// TestNames keeps case names apart and in their form.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		seen[c.name] = true
		if strings.Count(c.name, "/") < 2 || strings.Contains(c.name, " ") {
			t.Errorf("%q is not area/operation/what", c.name)
		}
	}
}

func TestTable(t *testing.T) {
	got := table(map[string]*count{"copy": {passed: 3, skipped: 1}, "bucket": {passed: 10, failed: 2}})
	want := "    area  passed  failed  skipped\n" +
		"  bucket      10       2        0\n" +
		"    copy       3       0        1\n" +
		"     all      13       2        1\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The listing cases compare servers with this model, so it is held to
// examples worked out by hand.
func TestListModel(t *testing.T) {
	keys := []string{"a", "a/1", "a/2", "b/", "b/x", "c"}
	for _, x := range []struct {
		o                 listOpts
		objects, prefixes string
	}{
		{listOpts{}, "a a/1 a/2 b/ b/x c", ""},
		{listOpts{Delimiter: "/"}, "a c", "a/ b/"},
		{listOpts{Delimiter: "/", Prefix: "b/"}, "b/ b/x", ""},
		{listOpts{Delimiter: "/", After: "a/1"}, "c", "a/ b/"},
		{listOpts{Delimiter: "/", After: "a/"}, "c", "b/"},
		{listOpts{Delimiter: "/", After: "a/2"}, "c", "b/"},
		{listOpts{After: "b/"}, "b/x c", ""},
	} {
		objects, prefixes, _ := model(keys, x.o, x.o.After)
		if strings.Join(objects, " ") != x.objects || strings.Join(prefixes, " ") != x.prefixes {
			t.Errorf("%v: %q, %q; want %s, %s", x.o, objects, prefixes, x.objects, x.prefixes)
		}
	}
}
