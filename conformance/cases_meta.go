package conformance

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

var expires = time.Date(2037, 1, 2, 3, 4, 5, 0, time.UTC)

func describe() putOpts {
	return putOpts{
		ContentType: "application/x-kv", CacheControl: "max-age=60", ContentDisposition: `attachment; filename="x.bin"`,
		ContentEncoding: "zstd", ContentLanguage: "en", Expires: expires,
		Meta: map[string]string{"model": "llama-3.1-8b", "layers": "32", "empty-not": "-"},
	}
}

// described checks the headers that describe() asked for.
func described(e *env, h http.Header) {
	e.Helper()
	for name, want := range map[string]string{
		"Content-Type": "application/x-kv", "Cache-Control": "max-age=60", "Content-Disposition": `attachment; filename="x.bin"`,
		"Content-Encoding": "zstd", "Content-Language": "en", "Expires": expires.Format(http.TimeFormat),
		"X-Amz-Meta-Model": "llama-3.1-8b", "X-Amz-Meta-Layers": "32", "X-Amz-Meta-Empty-Not": "-",
	} {
		equal(e, name, h.Get(name), want)
	}
}

func metadataCases() []kase {
	return slices.Concat(
		both("metadata/PutObject/system-and-user", func(e *env, c sdk) {
			b := e.bucket()
			for _, n := range []int{10, 70_000} {
				_, err := c.Put(e.ctx, b, "k", data(1, n), describe())
				e.ok(err)
				h, err := c.Head(e.ctx, b, "k", getOpts{})
				e.ok(err)
				described(e, h)
				g, err := c.Get(e.ctx, b, "k", getOpts{})
				e.ok(err)
				described(e, g.Header)
			}
		}),
		both("metadata/PutObject/overwrite-forgets", func(e *env, c sdk) {
			b := e.bucket()
			_, err := c.Put(e.ctx, b, "k", []byte("x"), describe())
			e.ok(err)
			_, err = c.Put(e.ctx, b, "k", []byte("y"), putOpts{})
			e.ok(err)
			h, err := c.Head(e.ctx, b, "k", getOpts{})
			e.ok(err)
			for _, name := range []string{"X-Amz-Meta-Model", "Cache-Control", "Content-Language", "Content-Encoding"} {
				equal(e, name, h.Get(name), "")
			}
		}),
		one("metadata/PutObject/default-content-type", func(e *env) {
			b := e.bucket()
			e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x")}), 200)
			a := e.do(req{Method: "HEAD", Path: "/" + b + "/k"})
			equal(e, "Content-Type", a.Header.Get("Content-Type"), "binary/octet-stream")
		}),
		one("metadata/PutObject/aws-chunked-is-not-kept", func(e *env) {
			b := e.bucket()
			_, err := e.aws.Put(e.ctx, b, "k", data(1, 100), putOpts{ContentEncoding: "gzip"})
			e.ok(err)
			_, err = e.minio.Put(e.ctx, b, "l", data(1, 100), putOpts{})
			e.ok(err)
			a := e.do(req{Method: "HEAD", Path: "/" + b + "/k"})
			equal(e, "Content-Encoding", a.Header.Get("Content-Encoding"), "gzip")
			a = e.do(req{Method: "HEAD", Path: "/" + b + "/l"})
			equal(e, "Content-Encoding", a.Header.Get("Content-Encoding"), "")
		}),
		one("metadata/PutObject/too-large", func(e *env) {
			b := e.bucket()
			a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x"), Header: map[string]string{"X-Amz-Meta-Big": strings.Repeat("v", 2049)}})
			e.denied(a, 400, "MetadataTooLarge")
			a = e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x"), Header: map[string]string{"X-Amz-Meta-Big": strings.Repeat("v", 2045)}})
			e.accepted(a, 200) // 2,048 bytes with the name
		}),
		one("metadata/PutObject/x-amz-headers-must-be-signed", func(e *env) {
			b := e.bucket()
			a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x"), Header: map[string]string{"X-Amz-Meta-Model": "forged"}, Skip: []string{"x-amz-meta-model"}})
			e.denied(a, 403, "AccessDenied")
		}),
	)
}

func copyCases() []kase {
	return slices.Concat(
		both("copy/CopyObject/bytes-and-metadata", func(e *env, c sdk) {
			src, dst := e.bucket(), e.bucket()
			for i, n := range []int{0, 100, 70_000, 1<<20 + 7} {
				body := data(uint64(i), n)
				_, err := c.Put(e.ctx, src, "a/source +%", body, describe())
				e.ok(err)
				tag, err := c.Copy(e.ctx, dst, "target", src, "a/source +%", copyOpts{})
				e.ok(err)
				equal(e, "ETag", tag, md5Hex(body))
				g, err := c.Get(e.ctx, dst, "target", getOpts{})
				e.ok(err)
				e.same(g.Body, body)
				described(e, g.Header)
			}
			e.ok(c.Delete(e.ctx, src, "a/source +%"))
			g, err := c.Get(e.ctx, dst, "target", getOpts{})
			e.ok(err)
			e.same(g.Body, data(3, 1<<20+7)) // the copy does not need its source
		}),
		both("copy/CopyObject/replace-metadata", func(e *env, c sdk) {
			b := e.bucket()
			_, err := c.Put(e.ctx, b, "k", []byte("x"), describe())
			e.ok(err)
			_, err = c.Copy(e.ctx, b, "k2", b, "k", copyOpts{Replace: true, Meta: map[string]string{"new": "1"}, ContentType: "text/plain"})
			e.ok(err)
			h, err := c.Head(e.ctx, b, "k2", getOpts{})
			e.ok(err)
			equal(e, "new", h.Get("X-Amz-Meta-New"), "1")
			equal(e, "model", h.Get("X-Amz-Meta-Model"), "")
			equal(e, "Content-Type", h.Get("Content-Type"), "text/plain")
			equal(e, "Cache-Control", h.Get("Cache-Control"), "")
		}),
		both("copy/CopyObject/onto-itself", func(e *env, c sdk) {
			b := e.bucket()
			body := data(5, 100_000)
			_, err := c.Put(e.ctx, b, "k", body, describe())
			e.ok(err)
			_, err = c.Copy(e.ctx, b, "k", b, "k", copyOpts{})
			e.fails(err, 400, "InvalidRequest")
			_, err = c.Copy(e.ctx, b, "k", b, "k", copyOpts{Replace: true, Meta: map[string]string{"v": "2"}})
			e.ok(err)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, body)
			equal(e, "v", g.Header.Get("X-Amz-Meta-V"), "2")
		}),
		both("copy/CopyObject/source-conditions", func(e *env, c sdk) {
			b := e.bucket()
			tag := e.put(b, "k", []byte("x"))
			_, err := c.Copy(e.ctx, b, "t", b, "k", copyOpts{IfMatch: md5Hex(nil)})
			e.fails(err, 412, "PreconditionFailed")
			_, err = c.Copy(e.ctx, b, "t", b, "k", copyOpts{IfNoneMatch: tag})
			e.fails(err, 412, "PreconditionFailed")
			_, err = c.Head(e.ctx, b, "t", getOpts{})
			e.fails(err, 404, "")
			_, err = c.Copy(e.ctx, b, "t", b, "k", copyOpts{IfMatch: tag})
			e.ok(err)
		}),
		both("copy/CopyObject/missing", func(e *env, c sdk) {
			b := e.bucket()
			_, err := c.Copy(e.ctx, b, "t", b, "nothing", copyOpts{})
			e.fails(err, 404, "NoSuchKey")
			_, err = c.Copy(e.ctx, b, "t", e.newName(), "k", copyOpts{})
			e.fails(err, 404, "NoSuchBucket")
		}),
		one("copy/CopyObject/odd-sources", func(e *env) {
			b := e.bucket()
			for i, k := range oddKeys {
				if strings.ContainsAny(k, "\x07\n\t\r") {
					continue // HTTP header values cannot be relied on to carry even their escapes through every SDK
				}
				body := data(uint64(i), 30)
				e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/" + encodePath(k), Body: body}), 200)
				for _, source := range []string{"/" + b + "/" + encodePath(k), b + "/" + uriEncode(k)} {
					a := e.do(req{Method: "PUT", Path: "/" + b + "/copied", Header: map[string]string{"X-Amz-Copy-Source": source}})
					if a.Status != 200 {
						e.Errorf("copy from %q: %d %s", source, a.Status, a.Code)
						continue
					}
					a = e.do(req{Method: "GET", Path: "/" + b + "/copied"})
					e.same(a.Body, body)
				}
			}
		}),
		one("copy/CopyObject/bad-source", func(e *env) {
			b := e.bucket()
			for _, source := range []string{"", "nobucket", "/", "%zz/k"} {
				a := e.do(req{Method: "PUT", Path: "/" + b + "/t", Header: map[string]string{"X-Amz-Copy-Source": source}})
				if a.Status != 400 || a.Code != "InvalidArgument" {
					e.Errorf("source %q: %d %s, want 400 InvalidArgument", source, a.Status, a.Code)
				}
			}
		}),
		one("copy/CopyObject/bad-directive", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			e.denied(e.do(req{Method: "PUT", Path: "/" + b + "/t", Header: map[string]string{"X-Amz-Copy-Source": b + "/k", "X-Amz-Metadata-Directive": "MERGE"}}), 400, "InvalidArgument")
		}),
	)
}
