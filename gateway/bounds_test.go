package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/objcached/objcached/storage"
)

// TestTenantRefusalIsAtOnce: a tenant over its own limit is told so before its
// body has come, or the refused would hold the places of all others.
func TestTenantRefusalIsAtOnce(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.MaxPerTenant, c.StallTimeout = 1, time.Hour })
	h.bucket(t, "alice-b")
	begin := func(key string) *bufio.Reader {
		c := h.dial(t)
		r := h.request(t, wireRequest{method: "PUT", target: "/alice-b/" + key, user: aliceKey, body: make([]byte, 1<<20)})
		var head bytes.Buffer
		head.WriteString("PUT /alice-b/" + key + " HTTP/1.1\r\nHost: " + r.URL.Host + "\r\nContent-Length: 1048576\r\n")
		_ = r.Header.Write(&head) // a Buffer does not fail
		head.WriteString("\r\n")
		if _, err := c.Write(head.Bytes()); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second)) // only a hang runs into it
		return bufio.NewReader(c)
	}
	begin("first")
	eventually(t, "the first request is in", func() bool {
		h.g.admit.mu.Lock()
		defer h.g.admit.mu.Unlock()
		return h.g.admit.tenants["blue"] == 1
	})
	resp, err := http.ReadResponse(begin("second"), nil)
	if err != nil {
		t.Fatalf("no answer to a request over the tenant's limit: %v", err)
	}
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// deadlines counts how often the read deadline is moved.
type deadlines struct {
	httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetReadDeadline(time.Time) error { d.set++; return nil }

// TestDrainHasOneDeadline: what a refused request still sends gets one stall
// timeout in all, so that a drip does not hold a place for hours.
func TestDrainHasOneDeadline(t *testing.T) {
	d := new(deadlines)
	body := io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), bytes.NewReader(make([]byte, 1<<20))))
	s := newStallReader(body, http.NewResponseController(d), time.Hour, true)
	before := d.set
	s.drain(false)
	if s.open || s.n != 2<<20 {
		t.Fatalf("%d bytes were drained, still open: %v", s.n, s.open)
	}
	if n := d.set - before; n > 2 { // when it begins, and lifted when it ends
		t.Errorf("the deadline was moved %d times", n)
	}
}

// TestDocumentsStopAtTheirLimit: a document of millions of empty elements is
// refused when one too many is met, not when all are in memory.
func TestDocumentsStopAtTheirLimit(t *testing.T) {
	var d deleteRequest
	err := decodeXML([]byte("<Delete>"+strings.Repeat("<Object/>", 50000)+"</Delete>"), &d)
	if e := toAPIError(&request{}, err); err == nil || e.Code != "MalformedXML" || len(d.Objects) > maxDeleteKeys {
		t.Errorf("Delete: %v with %d objects", err, len(d.Objects))
	}
	var c completeRequest
	err = decodeXML([]byte("<CompleteMultipartUpload>"+strings.Repeat("<Part/>", 50000)+"</CompleteMultipartUpload>"), &c)
	if e := toAPIError(&request{}, err); err == nil || e.Code != "MalformedXML" || len(c.Parts) > maxPartNumber {
		t.Errorf("CompleteMultipartUpload: %v with %d parts", err, len(c.Parts))
	}
	if err := decodeXML([]byte("<Delete>"+strings.Repeat("<Object><Key>k</Key></Object>", maxDeleteKeys)+"</Delete>"), new(deleteRequest)); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
}

// TestDocumentsShareMemory: the bytes of documents held at one time are bounded.
func TestDocumentsShareMemory(t *testing.T) {
	h := newHarness(t)
	h.bucket(t, "bbb")
	h.put(t, "/bbb/k", []byte("x"))
	id := element(h.want(t, 200, wireRequest{method: "POST", target: "/bbb/k?uploads"}).body, "UploadId")
	del := []byte("<Delete><Object><Key>k</Key></Object></Delete>")
	requests := []wireRequest{
		{method: "POST", target: "/bbb?delete", body: del, header: map[string]string{"x-amz-checksum-crc32": crcOf(del)}},
		{method: "POST", target: "/bbb/k?uploadId=" + id, body: []byte("<CompleteMultipartUpload/>")},
	}
	if !h.g.bodies.take(maxBodies) {
		t.Fatal("memory is taken already")
	}
	for _, q := range requests {
		if a := h.wantCode(t, "SlowDown", q); a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %v", q.target, a.Header)
		}
	}
	h.g.bodies.give(maxBodies)
	h.want(t, 200, requests[0])
	h.wantCode(t, "MalformedXML", requests[1])
	if n := h.g.bodies.held.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// TestRDMAOfParts: a part whose bytes are elsewhere must not be stored as the
// empty body it comes with.
func TestRDMAOfParts(t *testing.T) {
	h := newHarness(t)
	h.bucket(t, "bbb")
	h.put(t, "/bbb/k", []byte("x"))
	id := element(h.want(t, 200, wireRequest{method: "POST", target: "/bbb/k?uploads"}).body, "UploadId")
	h.wantCode(t, "NotImplemented", wireRequest{method: "PUT", target: "/bbb/k?partNumber=1&uploadId=" + id,
		header: map[string]string{"x-kv-rdma-target": "x"}})
	for _, q := range []wireRequest{
		{method: "PUT", target: "/bbb/k?partNumber=1&uploadId=" + id},
		{method: "GET", target: "/bbb/k?partNumber=1"},
	} {
		q.header = map[string]string{"x-amz-rdma-token": "0:1:2"}
		if a := h.wantCode(t, "NotImplemented", q); a.Header.Get("X-Amz-Rdma-Reply") != "501" {
			t.Errorf("%s %s with a token: %v", q.method, q.target, a.Header)
		}
	}
	if a := h.want(t, 200, wireRequest{method: "GET", target: "/bbb/k?uploadId=" + id}); bytes.Contains(a.body, []byte("<Part>")) {
		t.Errorf("a part was stored: %s", a.body)
	}
}

// brokenDelete is a store whose deletes fail.
type brokenDelete struct{ storage.Store }

func (brokenDelete) Delete(context.Context, string, string, storage.Condition) error {
	return errors.New("the disk is gone")
}

// TestFailedDeletesAreLogged: a failure inside of a 200 is in the log too.
func TestFailedDeletesAreLogged(t *testing.T) {
	var log bytes.Buffer
	done := make(chan struct{})
	h := newHarness(t, func(c *Config) {
		c.Store = brokenDelete{c.Store}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	h.bucket(t, "bbb")
	body := []byte("<Delete><Object><Key>k</Key></Object></Delete>")
	inner := h.server.Config.Handler
	h.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r); close(done) })
	a := h.want(t, 200, wireRequest{method: "POST", target: "/bbb?delete", body: body,
		header: map[string]string{"x-amz-checksum-crc32": crcOf(body), "x-request-id": "find-me"}})
	<-done
	if element(a.body, "Code") != "InternalError" || bytes.Contains(a.body, []byte("disk")) {
		t.Errorf("the answer: %s", a.body)
	}
	if l := log.String(); !strings.Contains(l, "the disk is gone") || !strings.Contains(l, "find-me") {
		t.Errorf("the log: %s", l)
	}
}

func TestBucketNamesLikeAddresses(t *testing.T) {
	for name, ok := range map[string]bool{
		"10.0.0.1": false, "999.999.1.1": false, "1.2.3.4567": false, "1.2.3": true, "1.2.3.4.5": true, "1.2.3.4a": true, "123": true,
	} {
		if got := validBucketName(name); got != ok {
			t.Errorf("%s: %v, want %v", name, got, ok)
		}
	}
}
