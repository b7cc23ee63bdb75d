// Package server runs a gateway on a listener: TLS, timeouts, the admin
// endpoints and an orderly end.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/objcached/objcached/bwsched/pace"
	"github.com/objcached/objcached/gateway"
)

// Config says what to run. Gateway.Store and Gateway.Tenants are required.
type Config struct {
	Gateway gateway.Config // Registerer and Logger are filled in from below

	Listen      string // host:port of the S3 endpoint; port 0 takes a free one
	AdminListen string // host:port of the admin endpoint; empty for none
	TLS         *tls.Config
	Profile     bool // serve /debug/pprof on the admin endpoint

	// Memory is clients' memory; nil for none. It is closed with the server,
	// which ends the deliveries into it that are still under way.
	Memory io.Closer
	// Link paces the KV deliveries; nil: nothing does. It is closed with the server.
	Link *pace.Link
	// MaxConnections bounds the open connections of the S3 endpoint; default
	// DefaultMaxConnections.
	MaxConnections int

	// Scrubber verifies the store on demand; nil if it cannot be.
	Scrubber Scrubber

	// ShutdownTimeout bounds how long requests in flight may take to finish
	// once the server is told to stop; default 30 s.
	ShutdownTimeout time.Duration

	Logger   *slog.Logger         // default: discard
	Registry *prometheus.Registry // default: a new one
}

// Timeouts and limits of a connection. They bound what a client can hold
// before the gateway's own limits apply.
const (
	readHeaderTimeout = 15 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Server is a server that listens and is ready to run.
type Server struct {
	cfg      Config
	front    *http.Server
	admin    *http.Server
	listener *connLimit
	adminLis net.Listener
	verifies *verifies
}

// New listens on the configured addresses. The caller runs what it returns, or
// closes it; until then clients wait in the listen queue.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 30 * time.Second
	}
	cfg.Gateway.Logger, cfg.Gateway.Registerer = cfg.Logger, cfg.Registry
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil {
		// bucket.host works for the name that the server was told to listen on.
		cfg.Gateway.Domains = append(cfg.Gateway.Domains, host)
	}
	g, err := gateway.New(cfg.Gateway)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, verifies: &verifies{store: cfg.Scrubber, log: cfg.Logger}}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	s.listener = &connLimit{TCPListener: l.(*net.TCPListener), max: maxConnections(cfg.MaxConnections)}
	if cfg.TLS == nil {
		s.listener.answer = []byte(busyAnswer)
	}
	registerConns(cfg.Registry, s.listener)
	if cfg.AdminListen != "" {
		if s.adminLis, err = net.Listen("tcp", cfg.AdminListen); err != nil {
			return nil, errors.Join(fmt.Errorf("admin endpoint: %w", err), s.listener.Close())
		}
		s.admin = httpServer(s.adminHandler(), cfg.Logger)
	}
	s.front = httpServer(g, cfg.Logger)
	return s, nil
}

// httpServer speaks HTTP/1.1 only: one object per connection at a time is what
// S3 clients expect, and HTTP/2's windows cost throughput on large bodies.
func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return &http.Server{
		Handler: h, Protocols: p,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// URL is the S3 endpoint, with the port that was really taken.
func (s *Server) URL() string { return endpoint(s.cfg.Listen, s.listener, s.cfg.TLS != nil) }

// AdminURL is the admin endpoint, or "".
func (s *Server) AdminURL() string {
	if s.adminLis == nil {
		return ""
	}
	return endpoint(s.cfg.AdminListen, s.adminLis, false)
}

// endpoint shows the host as it was asked for, because a certificate or a
// virtual-host name may depend on it.
func endpoint(asked string, l net.Listener, secure bool) string {
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if h, _, err := net.SplitHostPort(asked); err == nil && h != "" {
		host = h
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Close stops listening without having run, and closes the store.
func (s *Server) Close() error {
	err := s.listener.Close()
	if s.adminLis != nil {
		err = errors.Join(err, s.adminLis.Close())
	}
	return errors.Join(err, s.closeData(), s.cfg.Gateway.Store.Close())
}

// closeData ends the deliveries that are still under way: those that wait for
// the link, and those into clients' memory.
func (s *Server) closeData() (err error) {
	if s.cfg.Link != nil {
		err = s.cfg.Link.Close()
	}
	if s.cfg.Memory != nil {
		err = errors.Join(err, s.cfg.Memory.Close())
	}
	return err
}

// Run serves until ctx ends, says "listening on URL" on stdout when it is
// ready, then stops accepting, lets requests in flight finish within
// ShutdownTimeout, and closes the store.
func (s *Server) Run(ctx context.Context, stdout io.Writer) error {
	ended := make(chan error, 2)
	go func() { ended <- s.serveFront() }()
	if s.admin != nil {
		go func() { ended <- s.admin.Serve(s.adminLis) }()
	}
	fmt.Fprintf(stdout, "listening on %s\n", s.URL())
	s.cfg.Logger.Info("listening", "url", s.URL(), "admin", s.AdminURL())

	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	s.cfg.Logger.Info("stopping", "cause", context.Cause(ctx))
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
	defer cancel()
	if e := s.front.Shutdown(deadline); e != nil {
		s.cfg.Logger.Warn("requests cut off", "error", e)
		err = errors.Join(err, s.front.Close())
	}
	if s.admin != nil {
		err = errors.Join(err, s.admin.Close())
	}
	return errors.Join(err, s.closeData(), s.cfg.Gateway.Store.Close())
}

func (s *Server) serveFront() error {
	var l net.Listener = s.listener
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
	}
	return s.front.Serve(l)
}

// LoadTLS reads a certificate and its key from PEM files.
func LoadTLS(certFile, keyFile string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}
