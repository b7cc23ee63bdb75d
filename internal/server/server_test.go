package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const rootKey, rootSecret = "ROOTKEY", "the secret of root"

// lines collects what a server prints and says when a line is there.
type lines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	line chan string
}

func newLines() *lines { return &lines{line: make(chan string, 16)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for {
		s, err := l.buf.ReadString('\n')
		if err != nil {
			l.buf.Reset()
			l.buf.WriteString(s)
			return len(p), nil
		}
		l.line <- strings.TrimSuffix(s, "\n")
	}
}

// running is a whole server in this process.
type running struct {
	s       *Server
	url     string
	stop    context.CancelFunc
	done    chan error
	notices bytes.Buffer
	log     *logBuffer // of startShm
}

func start(t *testing.T, o Options) *running {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.RootAccessKey == "" && o.RootSecretKey == "" {
		o.RootAccessKey, o.RootSecretKey = rootKey, rootSecret
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	o.AdminListen, o.Capacity, o.VolumeSize = "127.0.0.1:0", 256<<20, 64<<20
	r := &running{done: make(chan error, 1)}
	var err error
	if r.s, err = Open(t.Context(), o, &r.notices); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	out := newLines()
	go func() { r.done <- r.s.Run(ctx, out) }()
	line := <-out.line
	url, ok := strings.CutPrefix(line, "listening on ")
	if !ok || url != r.s.URL() {
		t.Fatalf("the server says %q", line)
	}
	r.url = url
	t.Cleanup(func() { r.end(t) })
	return r
}

// end stops the server and insists that it ends well. It may be called twice.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err, ok := <-r.done; ok {
		close(r.done)
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
}

// get reads a page of the admin endpoint.
func (r *running) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(r.s.AdminURL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s %s %v", path, resp.Status, b, err)
	}
	return string(b)
}

func client(t *testing.T, endpoint, access, secret string, tr http.RoundTripper) *minio.Client {
	t.Helper()
	host, secure := strings.CutPrefix(endpoint, "https://")
	c, err := minio.New(strings.TrimPrefix(host, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(access, secret, ""), Secure: secure, Transport: tr, Region: "us-east-1", MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServeKeepsWhatItAcknowledged(t *testing.T) {
	dir := t.TempDir()
	body := bytes.Repeat([]byte("chunk"), 100000)
	r := start(t, Options{Dir: dir})
	c := client(t, r.url, rootKey, rootSecret, nil)
	if err := c.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutObject(t.Context(), "box", "k", bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	r.end(t)
	if _, err := http.Get(r.url); err == nil {
		t.Error("it still answers after its end")
	}
	r = start(t, Options{Dir: dir})
	o, err := client(t, r.url, rootKey, rootSecret, nil).GetObject(t.Context(), "box", "k", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(o)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("after a restart: %d bytes, %v", len(got), err)
	}
}

// TestRequestsInFlightFinish: a request under way when the server is told to
// stop gets its answer; new ones are not taken.
func TestRequestsInFlightFinish(t *testing.T) {
	r := start(t, Options{})
	c := client(t, r.url, rootKey, rootSecret, nil)
	if err := c.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	pr, pw := io.Pipe()
	put := make(chan error, 1)
	go func() {
		_, err := c.PutObject(context.Background(), "box", "k", pr, 1<<20, minio.PutObjectOptions{DisableMultipart: true})
		_ = pr.CloseWithError(err) // nobody reads any more
		put <- err
	}()
	half := make([]byte, 512<<10)
	if _, err := pw.Write(half); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(r.get(t, "/metrics"), "\nobjcached_requests_in_flight 1\n") {
		time.Sleep(time.Millisecond)
	}
	r.stop()
	if _, err := pw.Write(half); err != nil {
		t.Fatal(err)
	}
	if err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Errorf("the put under way: %v", err)
	}
	r.end(t)
}

func TestAdmin(t *testing.T) {
	r := start(t, Options{Profile: true})
	c := client(t, r.url, rootKey, rootSecret, nil)
	if err := c.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), 200000)
	if _, err := c.PutObject(t.Context(), "box", "k", bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := r.get(t, "/healthz"); s != "ok\n" {
		t.Errorf("healthz: %q", s)
	}
	metrics := r.get(t, "/metrics")
	for _, want := range []string{`objcached_requests_total{code="200",op="PutObject"} 1`, "objcached_store_capacity_bytes 2.68435456e+08",
		"objcached_store_reserved_bytes 200704", "go_goroutines"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	r.get(t, "/debug/pprof/cmdline")
	resp, err := http.Post(r.s.AdminURL()+"/verify", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var report *VerifyReport
	for d := json.NewDecoder(resp.Body); report == nil; {
		var l VerifyLine
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		report = l.Report
	}
	if !report.Sound || report.Objects != 1 || report.Bytes != 200000 {
		t.Errorf("verify: %+v", report)
	}
	for path, status := range map[string]int{"/verify?rate=x": 400, "/none": 404} {
		resp, err := http.Post(r.s.AdminURL()+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // nothing in it matters
		if resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", path, resp.Status, status)
		}
	}
}

func TestHealthWithoutStore(t *testing.T) {
	r := start(t, Options{})
	if err := r.s.cfg.Gateway.Store.Close(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(r.s.AdminURL() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // the status says it
	if resp.StatusCode != 503 {
		t.Errorf("healthz over a closed store: %s, want 503", resp.Status)
	}
}

// certificate writes a self-signed pair for 127.0.0.1 and localhost.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "*.localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	return certFile, keyFile, pool
}

func TestTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	r := start(t, Options{TLSCert: cert, TLSKey: key})
	if !strings.HasPrefix(r.url, "https://127.0.0.1:") {
		t.Fatalf("URL %s", r.url)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	c := client(t, r.url, rootKey, rootSecret, tr)
	if err := c.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("chunk"), 100000)
	if _, err := c.PutObject(t.Context(), "box", "k", bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	o, err := c.GetObject(t.Context(), "box", "k", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, o := range []Options{{TLSCert: cert}, {TLSCert: key, TLSKey: cert}, {TLSCert: "none", TLSKey: "none"}} {
		o.Dir, o.Listen = t.TempDir(), "127.0.0.1:0"
		if s, err := Open(t.Context(), o, io.Discard); err == nil {
			t.Errorf("%+v: opened %s", o, s.URL())
		}
	}
}

// TestRootPair: without a pair given one is made, shown once, and kept.
func TestRootPair(t *testing.T) {
	dir := t.TempDir()
	open := func() (notices string) {
		t.Helper()
		var b bytes.Buffer
		s, err := Open(t.Context(), Options{Dir: dir, Listen: "127.0.0.1:0", Capacity: 64 << 20}, &b)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := open()
	pair := regexp.MustCompile(`(?m)^\s*(OBJCACHED_ACCESS_KEY|OBJCACHED_SECRET_KEY)=(\S+)$`).FindAllStringSubmatch(first, -1)
	if len(pair) != 2 {
		t.Fatalf("the pair is not shown: %q", first)
	}
	if again := open(); again != "" {
		t.Errorf("shown again: %q", again)
	}
	var b bytes.Buffer
	s, err := Open(t.Context(), Options{Dir: dir, Listen: "127.0.0.1:0", Capacity: 64 << 20}, &b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, io.Discard) }()
	if _, err := client(t, s.URL(), pair[0][2], pair[1][2], nil).ListBuckets(t.Context()); err != nil {
		t.Errorf("the pair shown does not work after a restart: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCredentialsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.yaml")
	const users = `users:
  - name: alice
    tenant: blue
    access_key: ALICEKEY
    secret_key: alices long secret
    buckets: ["alice-*"]
`
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Credentials: file})
	c := client(t, r.url, "ALICEKEY", "alices long secret", nil)
	if err := c.MakeBucket(t.Context(), "alice-1", minio.MakeBucketOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.MakeBucket(t.Context(), "bob-1", minio.MakeBucketOptions{}); minio.ToErrorResponse(err).Code != "AccessDenied" {
		t.Errorf("another's name: %v", err)
	}
	if err := os.WriteFile(file, []byte("users: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Credentials: file}, io.Discard); err == nil {
		t.Error("a broken credentials file is taken")
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, o := range []Options{{Listen: l.Addr().String()}, {Listen: "127.0.0.1:0", AdminListen: l.Addr().String()}} {
		o.Dir = t.TempDir()
		if _, err := Open(t.Context(), o, io.Discard); err == nil {
			t.Error("it listens on an address in use")
		}
		// The store was let go of.
		o.Listen, o.AdminListen = "127.0.0.1:0", ""
		s, err := Open(t.Context(), o, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
