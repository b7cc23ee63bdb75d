package conformance

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"slices"
)

// memoryTarget is the value of x-kv-rdma-target.
func memoryTarget(f fields) string { return base64.RawURLEncoding.EncodeToString(f.json()) }

// memoryCases are plain S3 over memory, as far as a client without memory can
// see it: what is refused, by which name, and that nothing is stored or told.
func memoryCases() []kase {
	d := fields{{"handle", "never given"}, {"offset", 0}, {"length", 100}, {"tag", 1}}
	bad := map[string]string{
		memoryTarget(d):                          "rdma_target.handle",
		memoryTarget(fields{}):                   "rdma_target.handle",
		memoryTarget(d.without("tag")):           "rdma_target.tag",
		memoryTarget(d.with("length", 0)):        "rdma_target.length",
		memoryTarget(d.with("length", "x")):      "rdma_target.length",
		memoryTarget(d.with("offset", -1)):       "rdma_target.offset",
		memoryTarget(d.with("path", "x")):        "rdma_target.path",
		memoryTarget(d.with("layer_stride", 10)): "rdma_target.layer_stride",
		"!":                                      "x-kv-rdma-target",
		"bm90IGpzb24":                            "x-kv-rdma-target",
	}
	refused := func(e *env, q req) {
		e.Helper()
		for value, name := range bad {
			q.Header = map[string]string{"X-Kv-Rdma-Target": value}
			a := e.do(q)
			e.denied(a, 400, "InvalidArgument")
			named(e, a, name)
		}
		q.Header = map[string]string{"X-Kv-Rdma-Target": memoryTarget(d)}
		q.Skip = []string{"x-kv-rdma-target"}
		e.denied(e.do(q), 403, "AccessDenied")
		q.Skip = nil
		// cuObject clients take exactly this as "send it again without".
		q.Header = map[string]string{"X-Amz-Rdma-Token": "0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10"}
		a := e.do(q)
		e.denied(a, 501, "NotImplemented")
		equal(e, "x-amz-rdma-reply", a.Header.Get("X-Amz-Rdma-Reply"), "501")
	}
	return slices.Concat(
		oursOne("kv/GetObjectRDMA/refused-by-name", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			refused(e, req{Method: "GET", Path: "/" + b + "/k"})
			a := e.do(req{Method: "HEAD", Path: "/" + b + "/k", Header: map[string]string{"X-Kv-Rdma-Target": memoryTarget(d), "X-Amz-Rdma-Token": "0"}})
			e.accepted(a, 200)
			equal(e, "Content-Length", a.Header.Get("Content-Length"), "1")
		}),
		oursOne("kv/PutObjectRDMA/refused-by-name-and-nothing-stored", func(e *env) {
			b := e.bucket()
			refused(e, req{Method: "PUT", Path: "/" + b + "/k"})
			a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x"), Header: map[string]string{"X-Kv-Rdma-Target": memoryTarget(d)}})
			e.denied(a, 400, "InvalidArgument")
			named(e, a, "x-kv-rdma-target")
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
		oursOne("kv/UploadPartRDMA/is-501", func(e *env) {
			b := e.bucket()
			id, err := e.aws.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			target := req{Method: "PUT", Path: "/" + b + "/k", Query: "partNumber=1&uploadId=" + url.QueryEscape(id)}
			target.Header = map[string]string{"X-Kv-Rdma-Target": memoryTarget(d)}
			e.denied(e.do(target), 501, "NotImplemented")
			target.Header = map[string]string{"X-Amz-Rdma-Token": "token"}
			equal(e, "x-amz-rdma-reply", e.do(target).Header.Get("X-Amz-Rdma-Reply"), "501")
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Query: "uploadId=" + url.QueryEscape(id)})
			if a.Status != 200 || bytes.Contains(a.Body, []byte("<Part>")) {
				e.Errorf("a part without its bytes was stored: %d %s", a.Status, a.Body)
			}
			e.ok(e.aws.Abort(e.ctx, b, "k", id))
		}),
	)
}
