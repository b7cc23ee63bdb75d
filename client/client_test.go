package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/descriptor"
)

func TestPutChunks(t *testing.T) {
	for _, unsigned := range []bool{false, true} {
		s := newServer(t, nil)
		c := newClient(t, s, func(cfg *client.Config) { cfg.UnsignedPayload = unsigned })
		chunks := make([]client.Chunk, 20)
		for j := range chunks {
			chunks[j] = client.Chunk{Key: key(j), Data: chunkObject(j, 4, 1000, descriptor.L2TD)}
		}
		client.Chain(chunks, "", 0)
		s.Put(key(3), chunks[3].Data)
		res, err := c.PutChunks(t.Context(), chunks)
		if err != nil || res != (client.PutResult{Stored: 19, Existing: 1, Bytes: 19 * 4000}) {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err = c.PutChunks(t.Context(), chunks)
		if err != nil || res != (client.PutResult{Existing: 20}) {
			t.Fatalf("again: %+v, %v", res, err)
		}
		for j := range chunks {
			o, ok := s.Get(key(j))
			if !ok || !bytes.Equal(o.Data, chunks[j].Data) {
				t.Fatalf("chunk %d is not what was put", j)
			}
			if j == 3 {
				continue
			}
			parent := ""
			if j > 0 {
				parent = key(j - 1)
			}
			if o.Parent != parent || o.Index != fmt.Sprint(j) {
				t.Errorf("chunk %d: parent %q index %q", j, o.Parent, o.Index)
			}
		}
		lone := []client.Chunk{{Key: "lone", Data: []byte("x"), Index: -1, Parent: "not sent"}}
		if _, err := c.PutChunks(t.Context(), lone); err != nil {
			t.Fatal(err)
		}
		if o, _ := s.Get("lone"); o.Parent != "" || o.Index != "" {
			t.Errorf("no chunk of a chain, but parent %q index %q", o.Parent, o.Index)
		}
	}
}

func TestPutChunksErrors(t *testing.T) {
	s := newServer(t, func(s *clienttest.Server) {
		s.Inject = func(name string, r *http.Request) *clienttest.Fault {
			if name == http.MethodPut && (strings.HasSuffix(r.URL.Path, "1+") || strings.HasSuffix(r.URL.Path, "3+")) {
				return &clienttest.Fault{Status: 403, Code: "AccessDenied"}
			}
			return nil
		}
	})
	c := newClient(t, s, nil)
	chunks := make([]client.Chunk, 6)
	for j := range chunks {
		chunks[j] = client.Chunk{Key: key(j), Data: []byte("data"), Index: int64(j)}
	}
	chunks[5].Data = nil
	res, err := c.PutChunks(t.Context(), chunks)
	if res.Stored != 3 {
		t.Errorf("%+v", res)
	}
	for _, j := range []int{1, 3, 5} {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", key(j))) {
			t.Errorf("chunk %d is not named in %v", j, err)
		}
	}
	var e *client.Error
	if !errors.As(err, &e) || e.Code != "AccessDenied" || e.StatusCode != 403 || e.RequestID != "req-1" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := c.PutChunks(ctx, chunks[:1]); !errors.Is(err, context.Canceled) || res.Stored != 0 {
		t.Errorf("dead context: %+v, %v", res, err)
	}
}

func TestPutChunksRetries(t *testing.T) {
	for _, f := range []clienttest.Fault{
		{Status: 503, Code: "SlowDown", Header: map[string]string{"Retry-After": "7"}},
		{Status: 409, Code: "ConditionalRequestConflict"},
		{Status: 500, Code: "InternalError"},
		{Status: 502},
	} {
		var n atomic.Int32
		var slept atomic.Int64
		s := newServer(t, func(s *clienttest.Server) {
			s.Inject = func(string, *http.Request) *clienttest.Fault {
				if n.Add(1) <= 2 {
					return &f
				}
				return nil
			}
		})
		c := newClient(t, s, func(cfg *client.Config) {
			cfg.Sleep = func(_ context.Context, d time.Duration) error { slept.Add(int64(d)); return nil }
		})
		chunk := []client.Chunk{{Key: "a", Data: []byte("x")}}
		if res, err := c.PutChunks(t.Context(), chunk); err != nil || res.Stored != 1 {
			t.Errorf("%d: %+v, %v", f.Status, res, err)
		}
		if d := time.Duration(slept.Load()); (f.Header != nil && d != 14*time.Second) || d <= 0 || (f.Header == nil && d > time.Second) {
			t.Errorf("%d: waited %v", f.Status, d)
		}
		n.Store(-100)
		never := newClient(t, s, func(cfg *client.Config) { cfg.Retries = -1 })
		if _, err := never.PutChunks(t.Context(), []client.Chunk{{Key: "b", Data: []byte("x")}}); err == nil {
			t.Errorf("%d: no error with Retries -1", f.Status)
		}
		if got := n.Load(); got != -99 {
			t.Errorf("%d: %d requests with Retries -1", f.Status, got+100)
		}
	}
}

func TestPutWithoutConditionalPut(t *testing.T) {
	s := newServer(t, func(s *clienttest.Server) { s.NoConditionalPut = true })
	c := newClient(t, s, func(cfg *client.Config) { cfg.Concurrency = 1 })
	chunks := []client.Chunk{{Key: "a", Data: []byte("1")}, {Key: "b", Data: []byte("2")}}
	if res, err := c.PutChunks(t.Context(), chunks); err != nil || res.Stored != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := s.Count("PUT"); got != 3 {
		t.Errorf("%d PUTs, want 3: it must be found out once", got)
	}
}

func TestMatch(t *testing.T) {
	for _, plain := range []bool{false, true} {
		s := newServer(t, func(s *clienttest.Server) { s.Plain = plain })
		c := newClient(t, s, nil)
		const n = 40
		for have := range n + 1 {
			if got, err := c.Match(t.Context(), keys(n)); err != nil || got != have {
				t.Fatalf("plain=%v: %d, %v; want %d", plain, got, err, have)
			}
			s.Put(key(have), []byte("x"))
		}
		if got, err := c.Match(t.Context(), nil); got != 0 || err != nil {
			t.Errorf("no keys: %d, %v", got, err)
		}
		s.Delete(key(0))
		if got, err := c.Match(t.Context(), keys(n)); err != nil || got != 0 {
			t.Errorf("%d, %v", got, err)
		}
		// One after the other, so that no answer is late: at most the next is asked for.
		one := newClient(t, s, func(cfg *client.Config) { cfg.Concurrency = 1 })
		before := s.Count("HEAD")
		if got, err := one.Match(t.Context(), keys(n)); err != nil || got != 0 {
			t.Errorf("%d, %v", got, err)
		}
		if asked := s.Count("HEAD") - before; plain && (asked == 0 || asked > 2) {
			t.Errorf("%d HEADs for a prefix that is not there", asked)
		} else if !plain && s.Count("HEAD") != 0 {
			t.Errorf("%d HEADs against a store with kv-match", s.Count("HEAD"))
		}
	}
}

// What other stores answer to a POST they do not know is no error, and asked once.
func TestDetection(t *testing.T) {
	for _, a := range []struct {
		status int
		code   string
	}{
		{501, "NotImplemented"}, {405, "MethodNotAllowed"}, {400, "InvalidArgument"}, {400, "MalformedPOSTRequest"},
		{412, "PreconditionFailed"}, {404, "NoSuchKey"}, {404, ""}, {200, "NotAnError"}, {411, "MissingContentLength"}, {415, ""},
	} {
		s := newServer(t, func(s *clienttest.Server) { s.Plain, s.PlainStatus, s.PlainCode = true, a.status, a.code })
		fill(s, 3, 2, 50, descriptor.L2TD)
		now := time.Unix(1000, 0)
		c := newClient(t, s, func(cfg *client.Config) {
			cfg.Now = func() time.Time { return now }
			cfg.RedetectAfter = time.Minute
		})
		for range 3 {
			if got, err := c.Match(t.Context(), keys(4)); err != nil || got != 3 {
				t.Fatalf("%d %s: %d, %v", a.status, a.code, got, err)
			}
		}
		if got := s.Count("kv-match"); got != 1 {
			t.Errorf("%d %s: asked %d times", a.status, a.code, got)
		}
		// The server is replaced by one that knows the requests: found after a while.
		s.Plain = false
		now = now.Add(59 * time.Second)
		if _, err := c.Match(t.Context(), keys(3)); err != nil || s.Count("kv-match") != 1 {
			t.Fatalf("%v, asked %d times before its time", err, s.Count("kv-match"))
		}
		now = now.Add(time.Second)
		heads := s.Count("HEAD")
		if got, err := c.Match(t.Context(), keys(4)); err != nil || got != 3 || s.Count("HEAD") != heads {
			t.Fatalf("%d, %v, %d HEADs", got, err, s.Count("HEAD")-heads)
		}
		// And back: at once, without an error.
		s.Plain = true
		if got, err := c.Match(t.Context(), keys(4)); err != nil || got != 3 {
			t.Fatalf("back: %d, %v", got, err)
		}
		s.Plain = false
		now = now.Add(time.Hour)
		req := client.GetRequest{Keys: keys(3), NumLayers: 2, PerLayerChunkBytes: 50}
		for _, plain := range []bool{false, true} {
			s.Plain = plain
			ls, err := c.GetLayers(t.Context(), req)
			if err != nil || ls.Native() == plain {
				t.Fatalf("plain=%v: %v", plain, err)
			}
			check(t, ls, req, 3)
		}
	}
}

// What is true of any store is an error, not a reason to fall back.
func TestDetectionErrors(t *testing.T) {
	for _, f := range []clienttest.Fault{{Status: 403, Code: "AccessDenied"}, {Status: 503, Code: "SlowDown"}, {Status: 404, Code: "NoSuchBucket"}, {Status: 500, Code: "InternalError"}} {
		broken := true
		s := newServer(t, func(s *clienttest.Server) {
			s.Inject = func(string, *http.Request) *clienttest.Fault {
				if broken {
					return &f
				}
				return nil
			}
		})
		fill(s, 1, 1, 1, descriptor.L2TD)
		c := newClient(t, s, nil)
		_, err := c.Match(t.Context(), keys(1))
		var e *client.Error
		if !errors.As(err, &e) || e.StatusCode != f.Status || e.Code != f.Code {
			t.Errorf("%+v: %v", f, err)
		}
		if _, err := c.GetLayers(t.Context(), client.GetRequest{Keys: keys(1), NumLayers: 1, PerLayerChunkBytes: 1}); !errors.As(err, &e) || e.Code != f.Code {
			t.Errorf("%+v: %v", f, err)
		}
		if s.Count("HEAD") != 0 {
			t.Errorf("%+v: fell back", f)
		}
		broken = false
		if n, err := c.Match(t.Context(), keys(1)); n != 1 || err != nil || s.Count("HEAD") != 0 {
			t.Errorf("%+v: afterwards %d, %v", f, n, err)
		}
	}
}

// A 400 of a store that knows the requests is about the request: reported, not
// retried as plain GETs.
func TestNativeErrorIsNotFallback(t *testing.T) {
	s := newServer(t, nil)
	s.Put("a", []byte("abc"))
	c := newClient(t, s, nil)
	_, err := c.GetLayers(t.Context(), client.GetRequest{Keys: []string{"a"}, NumLayers: 2, PerLayerChunkBytes: 2})
	var e *client.Error
	if !errors.As(err, &e) || e.StatusCode != 400 || e.Field != "chunk_keys" || e.Key != "a" {
		t.Errorf("%v", err)
	}
	if s.Count("GET")+s.Count("HEAD") != 0 {
		t.Error("fell back")
	}
}

func TestKeepsOneConnection(t *testing.T) {
	s := newServer(t, nil)
	fill(s, 2, 4, 100_000, descriptor.L2TD)
	var mu sync.Mutex
	peers := map[string]bool{}
	s.Inject = func(_ string, r *http.Request) *clienttest.Fault {
		mu.Lock()
		defer mu.Unlock()
		peers[r.RemoteAddr] = true
		return nil
	}
	c := newClient(t, s, nil)
	req := client.GetRequest{Keys: keys(2), NumLayers: 4, PerLayerChunkBytes: 100_000}
	for range 5 {
		if _, err := c.Match(t.Context(), keys(3)); err != nil {
			t.Fatal(err)
		}
		ls, err := c.GetLayers(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		check(t, ls, req, 2)
		if _, err := c.PutChunks(t.Context(), []client.Chunk{{Key: key(0), Data: []byte("there already")}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(peers) != 1 {
		t.Errorf("%d connections for calls one after the other", len(peers))
	}
}

func TestTLS(t *testing.T) {
	s := clienttest.NewTLS()
	defer s.Close()
	roots := s.HTTP().Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c := newClient(t, s, func(cfg *client.Config) { cfg.TLS = &tls.Config{RootCAs: roots} })
	data := chunkObject(0, 2, 1000, descriptor.L2TD)
	if _, err := c.PutChunks(t.Context(), []client.Chunk{{Key: key(0), Data: data}}); err != nil {
		t.Fatal(err)
	}
	req := client.GetRequest{Keys: keys(1), NumLayers: 2, PerLayerChunkBytes: 1000}
	ls, err := c.GetLayers(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	check(t, ls, req, 1)
	stranger := newClient(t, s, func(cfg *client.Config) { cfg.Retries = -1 })
	if _, err := stranger.Match(t.Context(), keys(1)); err == nil {
		t.Error("an unknown certificate was taken")
	}
}

func TestS3(t *testing.T) {
	s := newServer(t, nil)
	c := newClient(t, s, nil)
	s.Put("x", []byte("abc"))
	info, err := c.S3().StatObject(t.Context(), c.Bucket(), "x", minio.StatObjectOptions{})
	if err != nil || info.Size != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []client.Config{
		{Endpoint: "127.0.0.1:9000", Bucket: "b"}, {Endpoint: "ftp://h", Bucket: "b"}, {Endpoint: "http://h/path", Bucket: "b"},
		{Endpoint: "http://h", Bucket: ""}, {Endpoint: "http://h", Bucket: "a/b"}, {Endpoint: "http://h?x=1", Bucket: "b"}, {Bucket: "b"},
	} {
		if _, err := client.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// Virtual-host style: the bucket moves from the path to the host, and is signed there.
func TestVirtualHost(t *testing.T) {
	var host, path string
	rt := roundTripper(func(r *http.Request) (*http.Response, error) {
		host, path = r.URL.Host, r.URL.EscapedPath()
		return nil, errors.New("far enough")
	})
	for _, tc := range []struct {
		endpoint   string
		style      client.BucketStyle
		host, path string
	}{
		{"https://s3.eu-west-1.amazonaws.com", client.AutoStyle, "bkt.s3.eu-west-1.amazonaws.com", "/a%20b/%C3%BC"},
		{"http://10.0.0.1:9000", client.AutoStyle, "10.0.0.1:9000", "/bkt/a%20b/%C3%BC"},
		{"http://store:9000", client.VirtualHost, "bkt.store:9000", "/a%20b/%C3%BC"},
		{"https://s3.eu-west-1.amazonaws.com", client.PathStyle, "s3.eu-west-1.amazonaws.com", "/bkt/a%20b/%C3%BC"},
	} {
		c, err := client.New(client.Config{Endpoint: tc.endpoint, AccessKey: "a", SecretKey: "b", Bucket: "bkt", BucketStyle: tc.style, Transport: rt, Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutChunks(t.Context(), []client.Chunk{{Key: "a b/ü", Data: []byte("x")}}); err == nil {
			t.Fatal("no error")
		}
		if host != tc.host || path != tc.path {
			t.Errorf("%s %d: http://%s%s", tc.endpoint, tc.style, host, path)
		}
		if _, err := c.Match(t.Context(), []string{"k"}); err == nil || (path != "/bkt" && path != "/") {
			t.Errorf("bucket request at %s", path)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
