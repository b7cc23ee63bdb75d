package gateway

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
)

const (
	rootKey   = "ROOTKEY"
	aliceKey  = "ALICEKEY" // tenant blue, buckets alice-* and shared
	bobKey    = "BOBKEY"   // tenant blue, buckets bob-* and shared
	malloryID = "MALLORYKEY"
)

func secretOf(accessKey string) string { return "secret of " + accessKey }

type registry map[string]*tenant.Identity

func (r registry) Lookup(accessKey string) (*tenant.Identity, bool) {
	id, ok := r[accessKey]
	return id, ok
}

func testRegistry() registry {
	r := registry{}
	for _, id := range []*tenant.Identity{
		{Name: "root", AccessKey: rootKey, Root: true},
		{Name: "alice", Tenant: "blue", AccessKey: aliceKey, Buckets: []string{"alice-*", "shared"}},
		{Name: "bob", Tenant: "blue", AccessKey: bobKey, Buckets: []string{"bob-*", "shared"}},
		{Name: "mallory", Tenant: "red", AccessKey: malloryID, Buckets: []string{"mallory-*"}},
	} {
		id.SecretKey = secretOf(id.AccessKey)
		r[id.AccessKey] = id
	}
	return r
}

// harness is a gateway over a fresh store, behind a real HTTP server.
type harness struct {
	store  storage.Store
	g      *Gateway
	server *httptest.Server
	url    string
	client *http.Client
}

func newHarness(t testing.TB, change ...func(*Config)) *harness {
	return startHarness(t, false, change...)
}

func startHarness(t testing.TB, secure bool, change ...func(*Config)) *harness {
	t.Helper()
	cfg := Config{Store: newStore(t), Tenants: testRegistry(), Domains: []string{"s3.test", "kv.s3.test"}}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(g)
	s.EnableHTTP2 = false
	if secure {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	client := s.Client()
	// Requests go out as they are written: no added encodings, no redirects.
	tr := client.Transport.(*http.Transport)
	tr.DisableCompression = true
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &harness{cfg.Store, g, s, s.URL, client}
}

// bucket makes a bucket as root.
func (h *harness) bucket(t testing.TB, name string) {
	t.Helper()
	h.want(t, 200, wireRequest{method: "PUT", target: "/" + name})
}

// put stores an object as root and returns its ETag with quotes.
func (h *harness) put(t testing.TB, target string, body []byte, header ...string) string {
	t.Helper()
	q := wireRequest{method: "PUT", target: target, body: body, header: map[string]string{}}
	for i := 0; i < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	return h.want(t, 200, q).Header.Get("ETag")
}
