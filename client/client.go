// Package client stores KV cache chunks in an S3 store and gets a cached
// prefix back layer by layer.
//
// Against objcached a prefix is one request and L large transfers. Against any
// other S3 store the same calls give the same results through HEADs and ranged
// GETs; the client finds out by itself which of the two it talks to.
//
// Keys come from descriptor.Root, or are anyone's: the client does not look
// into them.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/objcached/objcached/internal/lowwater"
)

// BucketStyle says where the bucket's name goes.
type BucketStyle int

// The bucket styles.
const (
	AutoStyle   BucketStyle = iota // virtual host at amazonaws.com, else path
	PathStyle                      // http://host/bucket/key
	VirtualHost                    // http://bucket.host/key
)

// Config says how to reach a store. Endpoint, AccessKey, SecretKey and Bucket
// are needed; the zero value of everything else is a sensible default.
type Config struct {
	Endpoint     string // "http://host:port" or "https://host"
	AccessKey    string
	SecretKey    string
	SessionToken string
	Region       string // default "us-east-1"
	Bucket       string
	BucketStyle  BucketStyle

	// TLS is used for https endpoints: RootCAs, client certificates and so on.
	// Default: the system's roots.
	TLS *tls.Config
	// Transport replaces the client's own HTTP transport. TLS,
	// ReadBufferBytes and HeaderTimeout then do nothing.
	Transport http.RoundTripper
	// ReadBufferBytes is the size of a connection's read buffer. Layers are
	// read past it, straight into their memory, when they are larger than it.
	// Default 64 KiB.
	ReadBufferBytes int
	// HeaderTimeout is how long an answer's first line may take. Default 60 s.
	// The body has no limit of its own: end the request's context. A delivery into
	// a Buffer, which is answered when it is over, is given up if no layer has
	// become ready for that long (up to twice as long).
	HeaderTimeout time.Duration

	// Concurrency bounds the requests that one call has under way: PUTs of
	// PutChunks, HEADs and GETs of the fallback. Default 8.
	Concurrency int
	// Retries is how often a request is sent again after a 5xx, a 429 or a
	// broken connection. Default 3; negative: never.
	Retries int
	// UnsignedPayload sends chunk bodies with a CRC32C in place of a SHA-256
	// also over plain HTTP, where it saves about 2 ns a byte and leaves nothing that
	// keeps another on the wire from changing them. Over TLS it is always done so.
	UnsignedPayload bool
	// RedetectAfter is how long the client believes that a store lacks the KV
	// requests before it asks again. Default 5 min.
	RedetectAfter time.Duration

	// ShmSocket is where the store's socket for shared memory is seen from
	// here; default: where the store says it is.
	ShmSocket string
	// FabricInterface is the network interface by whose device a store on
	// another host writes to registered memory, and FabricNode the device's
	// address in place of it; default: the provider chooses. They need a build
	// with the tag fabric (cgo, libfabric).
	FabricInterface, FabricNode string
	// MemoryProvider is the one provider that registered memory may use, as
	// the store calls it: "shm", "verbs;ofi_rxm", "efa", "tcp;ofi_rxm". Default:
	// the first of the store's that works from here.
	MemoryProvider string

	Logger *slog.Logger // default: none

	// Now and Sleep are the clock; defaults are those of package time. Sleep
	// returns early with the context's error when it ends.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// Client talks to one bucket. It may be used concurrently.
type Client struct {
	cfg  Config
	base url.URL // scheme and host; for path style without the bucket
	path string  // what stands before a key: "/bucket/" or "/"
	http *http.Client
	into *http.Client  // http without HeaderTimeout: for deliveries into a Buffer
	core minio.Core    // the fallback's
	s3   *minio.Client // the caller's
	log  *slog.Logger
	tls  bool
	kv   support
	rand func() float64

	transports []openFunc // of registered memory

	bufs    sync.Pool         // *[]byte: layer buffers of GetLayers
	ownConn []*http.Transport // none if the caller gave one
}

// New makes a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, invalid("Endpoint", "%q must be like %q, without a path", cfg.Endpoint, "http://host:port")
	}
	if err := s3utils.CheckValidBucketName(cfg.Bucket); err != nil {
		return nil, invalid("Bucket", "%v", err)
	}
	cfg = cfg.withDefaults()
	c := &Client{cfg: cfg, log: cfg.Logger, tls: u.Scheme == "https", rand: rand.Float64, transports: transports}
	c.kv.redetect = cfg.RedetectAfter
	c.kv.now = cfg.Now

	rt, into := cfg.Transport, cfg.Transport
	if rt == nil {
		own, patient := newTransport(cfg, c.tls), newTransport(cfg, c.tls)
		patient.ResponseHeaderTimeout = 0
		c.ownConn = []*http.Transport{own, patient}
		rt, into = own, patient
	}
	// A redirect would need a new signature, and none is part of the protocol.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: rt, CheckRedirect: stay}
	c.into = &http.Client{Transport: into, CheckRedirect: stay}

	style := cfg.BucketStyle
	if style == AutoStyle {
		style = PathStyle
		if strings.HasSuffix(u.Hostname(), ".amazonaws.com") && !strings.Contains(cfg.Bucket, ".") {
			style = VirtualHost
		}
	}
	lookup := minio.BucketLookupPath
	c.base = url.URL{Scheme: u.Scheme, Host: u.Host}
	c.path = "/" + cfg.Bucket + "/"
	if style == VirtualHost {
		lookup = minio.BucketLookupDNS
		c.base.Host = cfg.Bucket + "." + u.Host
		c.path = "/"
	}
	opts := minio.Options{
		Creds:        credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, cfg.SessionToken),
		Secure:       c.tls,
		Transport:    rt,
		Region:       cfg.Region,
		BucketLookup: lookup,
		MaxRetries:   1 + max(0, cfg.Retries),
	}
	if c.s3, err = minio.New(u.Host, &opts); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	opts.MaxRetries = 1 // the fallback's own retries know which errors to repeat
	core, err := minio.NewCore(u.Host, &opts)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c.core = *core
	return c, nil
}

func (cfg Config) withDefaults() Config {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&cfg.ReadBufferBytes, 64<<10)
	def(&cfg.Concurrency, 8)
	if cfg.Retries == 0 {
		cfg.Retries = 3
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.HeaderTimeout <= 0 {
		cfg.HeaderTimeout = time.Minute
	}
	if cfg.RedetectAfter <= 0 {
		cfg.RedetectAfter = 5 * time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	return cfg
}

// newTransport is net/http's with what large bodies want: no compression, a
// read buffer that is no larger than a slice (so that reads go around it) and
// as many idle connections as one call uses. Large reads are not woken for every
// packet.
func newTransport(cfg Config, tls bool) *http.Transport {
	dial := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	if !tls { // which reads ahead
		dial = lowwater.Dialer(dial)
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		TLSClientConfig:       cfg.TLS,
		TLSHandshakeTimeout:   10 * time.Second,
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   max(64, 2*cfg.Concurrency),
		IdleConnTimeout:       time.Minute,
		ResponseHeaderTimeout: cfg.HeaderTimeout,
		ReadBufferSize:        cfg.ReadBufferBytes,
		WriteBufferSize:       64 << 10,
		DisableCompression:    true,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// S3 is the plain S3 client beneath, on the same connections: for making the
// bucket, listing, and whatever else is no KV request.
func (c *Client) S3() *minio.Client { return c.s3 }

// Bucket is the bucket the client works on.
func (c *Client) Bucket() string { return c.cfg.Bucket }

// Close closes idle connections. Calls under way go on.
func (c *Client) Close() {
	for _, t := range c.ownConn {
		t.CloseIdleConnections()
	}
}

// buffer returns a pooled buffer of n bytes with any content.
func (c *Client) buffer(n int64) []byte {
	if p, ok := c.bufs.Get().(*[]byte); ok && int64(cap(*p)) >= n {
		return (*p)[:n]
	}
	return make([]byte, n)
}

func (c *Client) release(b []byte) {
	if b != nil {
		c.bufs.Put(&b)
	}
}

// errNotKV says that the answer is not one of a store with the KV requests.
var errNotKV = errors.New("the store does not know the KV requests")
