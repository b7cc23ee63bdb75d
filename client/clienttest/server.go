// Package clienttest is a small store for tests of the client and of what is
// built on it. It knows only the wire: it keeps objects in a map, checks
// signatures by itself and builds every delivery byte by byte from the
// descriptor's definition, sharing no code with the server or the client.
package clienttest

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The credentials of a Server.
const (
	AccessKey = "test-access"
	SecretKey = "test-secret"
	Bucket    = "chunks"
)

// Object is a stored object.
type Object struct {
	Data   []byte
	Parent string
	Index  string
}

// Fault is what a test wants to go wrong with one request.
type Fault struct {
	Status int    // answer with this status and Code
	Code   string // "": no document
	Header map[string]string
	Cut    int64 // with Status 0: break the connection after this many bytes of the body
}

// Server is the store. Set the fields before the first request.
type Server struct {
	URL string
	// Plain makes it a store without the KV requests and PlainStatus (default
	// 501) and PlainCode are what it answers to them.
	Plain       bool
	PlainStatus int
	PlainCode   string
	// Auto is the mode of delivery "auto"; default "layer".
	Auto string
	// NoConditionalPut answers 501 to a PUT with If-None-Match.
	NoConditionalPut bool
	// Inject is asked about every request, with its name (see Count).
	Inject func(name string, r *http.Request) *Fault

	mu      sync.Mutex
	objects map[string]Object
	count   map[string]int

	http *httptest.Server
}

// New starts a server on loopback with an empty bucket.
func New() *Server { return start((*httptest.Server).Start) }

// NewTLS is New over TLS; the client of HTTP trusts its certificate.
func NewTLS() *Server { return start((*httptest.Server).StartTLS) }

func start(how func(*httptest.Server)) *Server {
	s := &Server{objects: map[string]Object{}, count: map[string]int{}}
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are part of the tests
	how(s.http)
	s.URL = s.http.URL
	return s
}

// HTTP is the test server beneath.
func (s *Server) HTTP() *httptest.Server { return s.http }

// Close stops it and waits for requests under way.
func (s *Server) Close() { s.http.Close() }

// Put stores an object directly.
func (s *Server) Put(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = Object{Data: data}
}

// Delete drops an object directly.
func (s *Server) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
}

// Get returns an object.
func (s *Server) Get(key string) (Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	return o, ok
}

// Keys is how many objects there are.
func (s *Server) Keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// Count is how often a request came: kv-get, kv-match, GET, HEAD, PUT.
func (s *Server) Count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[name]
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Amz-Request-Id", "req-1")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client broke off
	}
	if msg := checkSignature(r, body); msg != "" {
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch", msg)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	name := r.Method
	if r.Method == http.MethodPost {
		for _, q := range []string{"kv-get", "kv-match"} {
			if r.URL.Query().Has(q) {
				name = q
			}
		}
	}
	s.mu.Lock()
	s.count[name]++
	s.mu.Unlock()
	if s.Inject != nil {
		if f := s.Inject(name, r); f != nil {
			if f.Status != 0 {
				for k, v := range f.Header {
					w.Header().Set(k, v)
				}
				if f.Code == "" {
					w.WriteHeader(f.Status)
				} else {
					refuse(w, f.Status, f.Code, "injected")
				}
				return
			}
			w = &cutWriter{ResponseWriter: w, left: f.Cut}
		}
	}
	switch {
	case bucket != Bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket", "no such bucket")
	case name == "kv-get" && !s.Plain:
		s.kvGet(w, body)
	case name == "kv-match" && !s.Plain:
		s.kvMatch(w, body)
	case r.Method == http.MethodPost:
		status, code := s.PlainStatus, s.PlainCode
		if status == 0 {
			status, code = http.StatusNotImplemented, "NotImplemented"
		}
		refuse(w, status, code, "not known here")
	case key == "":
		w.WriteHeader(http.StatusOK) // HEAD and PUT of the bucket
	case r.Method == http.MethodPut:
		s.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		s.Delete(key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(w, r, key)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method)
	}
}

func refuse(w http.ResponseWriter, status int, code, msg string, extra ...string) {
	var b strings.Builder
	b.WriteString(xml.Header + "<Error>")
	fields := append([]string{"Code", code, "Message", msg}, extra...)
	for i := 0; i < len(fields); i += 2 {
		b.WriteString("<" + fields[i] + ">")
		_ = xml.EscapeText(&b, []byte(fields[i+1])) // a Builder does not fail
		b.WriteString("</" + fields[i] + ">")
	}
	b.WriteString("</Error>")
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, b.String()) // the client may be gone
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	if c := r.Header.Get("X-Amz-Checksum-Crc32c"); c != "" {
		sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		if base64.StdEncoding.EncodeToString(sum) != c {
			refuse(w, http.StatusBadRequest, "BadDigest", "crc32c")
			return
		}
	} else if r.Header.Get("X-Amz-Content-Sha256") == "UNSIGNED-PAYLOAD" {
		refuse(w, http.StatusBadRequest, "InvalidRequest", "neither hash nor checksum")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("If-None-Match") == "*" {
		if s.NoConditionalPut {
			refuse(w, http.StatusNotImplemented, "NotImplemented", "If-None-Match")
			return
		}
		if _, ok := s.objects[key]; ok {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "it exists")
			return
		}
	}
	s.objects[key] = Object{Data: body, Parent: r.Header.Get("X-Kv-Parent"), Index: r.Header.Get("X-Kv-Index")}
	w.Header().Set("ETag", etag(body))
	w.WriteHeader(http.StatusOK)
}

func etag(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := s.Get(key)
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey", "no such key", "Key", key)
		return
	}
	tag := etag(o.Data)
	if m := r.Header.Get("If-Match"); m != "" && m != tag {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "etag")
		return
	}
	w.Header().Set("ETag", tag)
	w.Header().Set("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
	w.Header().Set("Content-Type", "application/octet-stream")
	data, status := o.Data, http.StatusOK
	if rg := r.Header.Get("Range"); rg != "" {
		var lo, hi int
		if _, err := fmt.Sscanf(rg, "bytes=%d-%d", &lo, &hi); err != nil || lo > hi || hi >= len(data) {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange", rg)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", lo, hi, len(data)))
		data, status = data[lo:hi+1], http.StatusPartialContent
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(data) // the client may be gone
	}
}

func (s *Server) kvMatch(w http.ResponseWriter, body []byte) {
	var in struct {
		Keys []string `json:"chunk_keys"`
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Keys) == 0 {
		refuse(w, http.StatusBadRequest, "InvalidArgument", "bad body", "ArgumentName", "chunk_keys")
		return
	}
	n := slices.IndexFunc(in.Keys, func(k string) bool { _, ok := s.Get(k); return !ok })
	if n < 0 {
		n = len(in.Keys)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"matched": %d}`, n)
}

// kvGet builds the body by the definition: for each (layer, chunk) of the
// delivery order, the slice's bytes, one append at a time.
func (s *Server) kvGet(w http.ResponseWriter, body []byte) {
	d := struct {
		Keys      []string `json:"chunk_keys"`
		L         int      `json:"num_layers"`
		S         int      `json:"per_layer_chunk_bytes"`
		G         int      `json:"chunk_tokens"`
		Layout    string   `json:"layout"`
		Delivery  string   `json:"delivery"`
		First     int      `json:"first_layer"`
		Count     int      `json:"layer_count"`
		OnMissing string   `json:"on_missing"`
		ComputeUS float64  `json:"layer_compute_us"`
	}{}
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		refuse(w, http.StatusBadRequest, "InvalidArgument", err.Error(), "ArgumentName", "body")
		return
	}
	if len(d.Keys) == 0 || d.L <= 0 || d.S <= 0 || d.First+d.Count > d.L {
		refuse(w, http.StatusBadRequest, "InvalidArgument", "bad field", "ArgumentName", "num_layers")
		return
	}
	if d.Count == 0 {
		d.Count = d.L - d.First
	}
	var chunks [][]byte
	for i, k := range d.Keys {
		o, ok := s.Get(k)
		if !ok && d.OnMissing == "truncate" {
			break
		}
		if !ok {
			w.Header().Set("X-Kv-Matched", strconv.Itoa(i))
			refuse(w, http.StatusNotFound, "NoSuchKey", "no such key", "Key", k)
			return
		}
		if len(o.Data) != d.L*d.S {
			refuse(w, http.StatusBadRequest, "InvalidArgument", "size", "ArgumentName", "chunk_keys", "Key", k)
			return
		}
		chunks = append(chunks, o.Data)
	}
	slice := func(l, j int) []byte {
		c := chunks[j]
		if d.Layout != "2ltd" {
			return c[l*d.S : (l+1)*d.S]
		}
		h := d.S / 2
		return slices.Concat(c[l*h:(l+1)*h], c[(d.L+l)*h:(d.L+l+1)*h])
	}
	mode := d.Delivery
	if mode == "" || mode == "auto" {
		if mode = s.Auto; mode == "" {
			mode = "layer"
		}
	}
	var out []byte
	if mode == "layer" {
		for l := d.First; l < d.First+d.Count; l++ {
			for j := range chunks {
				out = append(out, slice(l, j)...)
			}
		}
	} else {
		for j := range chunks {
			for l := d.First; l < d.First+d.Count; l++ {
				out = append(out, slice(l, j)...)
			}
		}
	}
	w.Header().Set("X-Kv-Mode", mode)
	w.Header().Set("X-Kv-Matched", strconv.Itoa(len(chunks)))
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(out) // the client may be gone
}

// cutWriter breaks the connection after some bytes of the body.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) <= c.left {
		c.left -= int64(len(p))
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
