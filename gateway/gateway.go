// Package gateway is the HTTP front: it authenticates S3 requests, finds the
// operation each asks for in one table, runs it and renders what it returns.
//
// Handlers return errors; errors.go alone turns them into S3's XML.
package gateway

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
)

// Config says what a Gateway serves. Store and Tenants are required; every
// other field has a working zero value.
type Config struct {
	Store     storage.Store
	Deliverer Deliverer // nil: the KV requests answer 501
	Memory    Memory    // nil: no memory can be registered
	Tenants   tenant.Registry
	// Domains are the host names under which bucket.domain is virtual-host
	// style. "localhost" is always one of them; IP addresses never are.
	Domains []string
	Region  string // default "us-east-1"

	Logger     *slog.Logger          // default: discard
	Registerer prometheus.Registerer // default: metrics are kept but not exposed

	MaxRequests  int           // requests in flight; default 256
	MaxQueue     int           // requests waiting for one of those; default MaxRequests, negative: none
	QueueTimeout time.Duration // longest wait in the queue; default 2 s
	MaxPerTenant int           // requests in flight per tenant; 0 or less: no limit
	// StallTimeout is how long one read of a request body or one write of an
	// answer may make no progress before the connection is dropped; default 30 s.
	StallTimeout time.Duration
	MaxObject    int64 // largest PUT or part in bytes; default 5 GiB

	KVLimits descriptor.Limits // bounds of one KV request

	Now  func() time.Time // default time.Now; used for signatures and logs
	Rand io.Reader        // default crypto/rand; used for request ids
}

// Gateway serves S3 over HTTP. It is an http.Handler, safe for concurrent use.
type Gateway struct {
	cfg     Config
	store   storage.Store
	deliver Deliverer
	log     *slog.Logger
	now     func() time.Time
	domains []string
	handler http.Handler
	metrics *metrics
	admit   *admission
	auth    authenticator
	buffers sync.Pool // *[]byte of pieceSize, for object bodies

	bodies bodyBudget
}

// authenticator finds out who sent a request and checks that they did. It
// fills in r.Identity and r.Auth, or returns an error to be rendered.
type authenticator interface {
	authenticate(r *request) error
}

// New returns a Gateway, or an error that names the missing field.
func New(cfg Config) (*Gateway, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("gateway: Config.Store is nil")
	case cfg.Tenants == nil:
		return nil, errors.New("gateway: Config.Tenants is nil")
	}
	cfg.setDefaults()
	g := &Gateway{
		cfg:     cfg,
		store:   cfg.Store,
		deliver: cfg.Deliverer,
		log:     cfg.Logger,
		now:     cfg.Now,
		domains: hostSuffixes(cfg.Domains),
		metrics: newMetrics(cfg.Registerer),
	}
	g.admit = newAdmission(cfg.MaxRequests, cfg.MaxQueue, cfg.MaxPerTenant, cfg.QueueTimeout)
	g.auth = newAuthenticator(cfg)
	g.buffers.New = func() any { b := make([]byte, pieceSize); return &b }

	r := chi.NewRouter()
	r.Use(g.identify, g.observe, g.recover, g.admitted, g.authenticated)
	// One catch-all: S3 decides by method, host, query and headers, and keys
	// may hold anything a path pattern would trip over.
	r.Handle("/*", http.HandlerFunc(g.route))
	r.NotFound(g.route)
	r.MethodNotAllowed(g.route)
	g.handler = r
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

func (c *Config) setDefaults() {
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxRequests <= 0 {
		c.MaxRequests = 256
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = c.MaxRequests
	}
	if c.QueueTimeout <= 0 {
		c.QueueTimeout = 2 * time.Second
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = 30 * time.Second
	}
	if c.MaxObject <= 0 {
		c.MaxObject = 5 << 30
	}
	c.KVLimits = c.KVLimits.WithDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
}

// hostSuffixes returns ".domain" for every domain that can carry bucket names.
func hostSuffixes(domains []string) []string {
	out := []string{".localhost"}
	for _, d := range domains {
		d = "." + strings.ToLower(strings.Trim(d, "."))
		if d != "." && d != ".localhost" && !isIP(d[1:]) {
			out = append(out, d)
		}
	}
	return out
}

// route runs the operation that a request asks for.
func (g *Gateway) route(w http.ResponseWriter, hr *http.Request) {
	r := requestOf(hr)
	if err := g.run(w, r); err != nil {
		g.renderError(w, r, err)
	}
}

func (g *Gateway) run(w http.ResponseWriter, r *request) error {
	if err := queryHeaders(r); err != nil {
		return err
	}
	op, err := findOperation(r)
	if err != nil {
		return err
	}
	r.op = op
	if err := checkHeaders(r.Header); err != nil {
		return err
	}
	if err := g.authorize(r); err != nil {
		return err
	}
	return op.handle(g, w, r)
}
