package conformance

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func sumHeader(alg string) string { return "X-Amz-Checksum-" + strings.ToLower(alg) }

func checksumCases() []kase {
	var out []kase
	for _, alg := range sumNames {
		out = append(out, both("checksum/PutObject/"+alg, func(e *env, c sdk) {
			b := e.bucket()
			for i, n := range []int{0, 10, 4097, 200_003} {
				if n == 0 && c == sdk(e.minio) {
					continue // it sends no trailer with nothing
				}
				body := data(uint64(i), n)
				h, err := c.Put(e.ctx, b, "k", body, putOpts{Algorithm: alg})
				e.ok(err)
				equal(e, "checksum of PUT", h.Get(sumHeader(alg)), sums[alg](body))
				g, err := c.Get(e.ctx, b, "k", getOpts{Checksum: true})
				e.ok(err)
				e.same(g.Body, body)
				equal(e, "checksum of GET", g.Header.Get(sumHeader(alg)), sums[alg](body))
				hh, err := c.Head(e.ctx, b, "k", getOpts{Checksum: true})
				e.ok(err)
				equal(e, "checksum of HEAD", hh.Get(sumHeader(alg)), sums[alg](body))
				equal(e, "type", hh.Get("X-Amz-Checksum-Type"), "FULL_OBJECT")
			}
		})...)
		out = append(out, one("checksum/PutObject/"+alg+"-wrong", func(e *env) {
			b := e.bucket()
			body := data(1, 70_000)
			for name, sum := range map[string]string{"wrong": sums[alg](body[1:]), "not-base64": "!!", "short": "AA=="} {
				a := e.do(req{Method: "PUT", Path: "/" + b + "/" + name, Body: body, Header: map[string]string{sumHeader(alg): sum}})
				want := "BadDigest"
				if name != "wrong" {
					want = "InvalidRequest"
				}
				e.denied(a, 400, want)
				_, err := e.aws.Head(e.ctx, b, name, getOpts{})
				e.fails(err, 404, "")
			}
		})...)
		out = append(out, one("checksum/PutObject/"+alg+"-trailer", func(e *env) {
			b := e.bucket()
			body := data(2, 200_003)
			for _, mode := range []string{unsignedTrailer, signedChunksTrail} {
				e.accepted(e.streamed(streamedPut{bucket: b, key: "k", body: body, mode: mode, alg: alg, sum: sums[alg](body)}), 200)
				g, err := e.aws.Get(e.ctx, b, "k", getOpts{Checksum: true})
				e.ok(err)
				e.same(g.Body, body)
				equal(e, mode+" checksum", g.Header.Get(sumHeader(alg)), sums[alg](body))
				e.denied(e.streamed(streamedPut{bucket: b, key: "bad", body: body, mode: mode, alg: alg, sum: sums[alg](body[1:])}), 400, "BadDigest")
				_, err = e.aws.Head(e.ctx, b, "bad", getOpts{})
				e.fails(err, 404, "")
			}
		})...)
		out = append(out, checksumMultipart(alg)...)
	}
	return slices.Concat(out,
		one("checksum/GetObject/not-on-ranges", func(e *env) {
			b := e.bucket()
			body := data(1, 100_000)
			_, err := e.aws.Put(e.ctx, b, "k", body, putOpts{Algorithm: "CRC32C"})
			e.ok(err)
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Header: map[string]string{"Range": "bytes=5-9", "X-Amz-Checksum-Mode": "ENABLED"}})
			equal(e, "status", a.Status, 206)
			equal(e, "checksum of a part of the object", a.Header.Get("X-Amz-Checksum-Crc32c"), "")
			g, err := e.aws.Get(e.ctx, b, "k", getOpts{Range: "bytes=5-9", Checksum: true})
			e.ok(err)
			e.same(g.Body, body[5:10])
		}),
		one("checksum/GetObject/only-when-asked", func(e *env) {
			b := e.bucket()
			_, err := e.aws.Put(e.ctx, b, "k", []byte("x"), putOpts{Algorithm: "SHA256"})
			e.ok(err)
			a := e.do(req{Method: "GET", Path: "/" + b + "/k"})
			equal(e, "checksum nobody asked for", a.Header.Get("X-Amz-Checksum-Sha256"), "")
		}),
		one("checksum/CopyObject/is-kept", func(e *env) {
			b := e.bucket()
			body := data(1, 100_000)
			_, err := e.aws.Put(e.ctx, b, "k", body, putOpts{Algorithm: "SHA1"})
			e.ok(err)
			_, err = e.aws.Copy(e.ctx, b, "copy", b, "k", copyOpts{})
			e.ok(err)
			h, err := e.aws.Head(e.ctx, b, "copy", getOpts{Checksum: true})
			e.ok(err)
			equal(e, "checksum", h.Get("X-Amz-Checksum-Sha1"), sums["SHA1"](body))
		}),
		one("checksum/PutObject/two-at-once", func(e *env) {
			b := e.bucket()
			body := []byte("hello")
			a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: body, Header: map[string]string{sumHeader("CRC32"): sums["CRC32"](body), sumHeader("SHA1"): sums["SHA1"](body)}})
			e.denied(a, 400, "InvalidRequest")
		}),
		one("checksum/PutObject/content-sha256-wrong", func(e *env) {
			b := e.bucket()
			a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("hello"), Payload: hexSHA256([]byte("other"))})
			e.denied(a, 400, "XAmzContentSHA256Mismatch")
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
	)
}

// checksumMultipart completes uploads whose parts carry checksums. CRC64NVME
// has only the full-object form; for the others S3 makes a composite.
func checksumMultipart(alg string) []kase {
	return both("checksum/CompleteMultipartUpload/"+alg, func(e *env, c sdk) {
		b := e.bucket()
		bodies := [][]byte{data(1, minPart), data(2, 54321)}
		id, err := c.CreateUpload(e.ctx, b, "k", putOpts{Algorithm: alg})
		e.ok(err)
		var doc strings.Builder
		doc.WriteString("<CompleteMultipartUpload>")
		for i, body := range bodies {
			n := strconv.Itoa(i + 1)
			a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Query: "partNumber=" + n + "&uploadId=" + url.QueryEscape(id), Body: body, Header: map[string]string{sumHeader(alg): sums[alg](body)}})
			e.accepted(a, 200)
			equal(e, "checksum of the part", a.Header.Get(sumHeader(alg)), sums[alg](body))
			doc.WriteString("<Part><PartNumber>" + n + "</PartNumber><ETag>" + md5Hex(body) + "</ETag><Checksum" + alg + ">" + sums[alg](body) + "</Checksum" + alg + "></Part>")
		}
		doc.WriteString("</CompleteMultipartUpload>")
		bad := strings.Replace(doc.String(), sums[alg](bodies[1]), sums[alg](bodies[0]), 1)
		e.denied(e.do(req{Method: "POST", Path: "/" + b + "/k", Query: "uploadId=" + url.QueryEscape(id), Body: []byte(bad)}), 400, "InvalidPart")
		e.accepted(e.do(req{Method: "POST", Path: "/" + b + "/k", Query: "uploadId=" + url.QueryEscape(id), Body: []byte(doc.String())}), 200)
		h, err := c.Head(e.ctx, b, "k", getOpts{Checksum: true})
		e.ok(err)
		whole := bytes.Join(bodies, nil)
		want, typ := composite(alg, bodies)+"-2", "COMPOSITE"
		if alg == "CRC64NVME" {
			want, typ = sums[alg](whole), "FULL_OBJECT"
		}
		equal(e, "checksum", h.Get(sumHeader(alg)), want)
		equal(e, "type", h.Get("X-Amz-Checksum-Type"), typ)
		g, err := c.Get(e.ctx, b, "k", getOpts{Checksum: true})
		e.ok(err)
		e.same(g.Body, whole)
	})
}

// streamedPut is a PUT in aws-chunked framing, signed by hand.
type streamedPut struct {
	bucket, key string
	body        []byte
	mode        string
	alg, sum    string              // a trailer, if set
	size        int                 // of a chunk; default 64 KiB
	mangle      func([]byte) []byte // changes the framed body
	length      int                 // x-amz-decoded-content-length, if not the body's
}

func (e *env) streamed(p streamedPut) reply {
	e.Helper()
	if p.size == 0 {
		p.size = 64 << 10
	}
	header := map[string]string{"Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": strconv.Itoa(len(p.body) + p.length)}
	trailer := ""
	if p.alg != "" {
		name := strings.ToLower(sumHeader(p.alg))
		header["X-Amz-Trailer"] = name
		trailer = name + ":" + p.sum
	}
	r := e.build(req{Method: "PUT", Path: "/" + p.bucket + "/" + p.key, Header: header})
	s := e.signer(nil, time.Now())
	seed := s.sign(r, p.mode)
	framed := s.chunked(p.body, p.size, p.mode, seed, trailer)
	if p.mangle != nil {
		framed = p.mangle(framed)
	}
	r.Body, r.ContentLength = bodyOf(framed), int64(len(framed))
	return e.send(r)
}

func streamingCases() []kase {
	modes := map[string]string{"signed": signedChunks, "signed-trailer": signedChunksTrail, "unsigned-trailer": unsignedTrailer}
	var out []kase
	for _, name := range []string{"signed", "signed-trailer", "unsigned-trailer"} {
		mode := modes[name]
		alg := ""
		if mode != signedChunks {
			alg = "CRC32"
		}
		put := func(b, key string, body []byte) streamedPut {
			p := streamedPut{bucket: b, key: key, body: body, mode: mode, alg: alg}
			if alg != "" {
				p.sum = sums[alg](body)
			}
			return p
		}
		// refused checks that a PUT fails with one of the codes and stores nothing.
		refused := func(e *env, p streamedPut, codes ...string) {
			e.Helper()
			a := e.streamed(p)
			if a.Status < 400 || a.Status >= 500 || !slices.Contains(codes, a.Code) {
				e.Errorf("answered %d %s, want one of %v", a.Status, a.Code, codes)
			}
			_, err := e.aws.Head(e.ctx, p.bucket, p.key, getOpts{})
			e.fails(err, 404, "")
		}
		out = append(out, one("streaming/PutObject/"+name, func(e *env) {
			b := e.bucket()
			for _, n := range []int{0, 1, 65535, 65536, 65537, 300_001} {
				for _, size := range []int{8192, 65536, 1 << 20} {
					p := put(b, "k", data(uint64(n), n))
					p.size = size
					e.accepted(e.streamed(p), 200)
					g, err := e.aws.Get(e.ctx, b, "k", getOpts{})
					e.ok(err)
					e.same(g.Body, p.body)
					equal(e, "ETag", unquote(g.Header.Get("ETag")), md5Hex(p.body))
				}
			}
		})...)
		out = append(out, one("streaming/PutObject/"+name+"-damaged", func(e *env) {
			b := e.bucket()
			p := put(b, "flipped", data(1, 200_000))
			p.mangle = func(x []byte) []byte { x[150_000] ^= 1; return x }
			refused(e, p, "SignatureDoesNotMatch", "BadDigest")
			p = put(b, "cut", data(1, 200_000))
			p.mangle = func(x []byte) []byte { return x[:140_000] }
			refused(e, p, "IncompleteBody", "InvalidRequest", "MalformedTrailerError")
			p = put(b, "no-end", data(1, 131072))
			p.mangle = func(x []byte) []byte { return x[:bytes.LastIndex(x, []byte("\r\n0"))+2] }
			refused(e, p, "IncompleteBody", "InvalidRequest", "MalformedTrailerError")
			p = put(b, "length-too-small", data(1, 1000))
			p.length = -1
			refused(e, p, "IncompleteBody", "InvalidRequest", "EntityTooLarge")
			p = put(b, "length-too-large", data(1, 1000))
			p.length = 1
			refused(e, p, "IncompleteBody", "InvalidRequest")
			p = put(b, "frame-nonsense", data(1, 1000))
			p.mangle = func(x []byte) []byte { return append([]byte("zz"), x...) }
			refused(e, p, "IncompleteBody", "InvalidRequest", "InvalidArgument", "SignatureDoesNotMatch")
		})...)
	}
	return slices.Concat(out,
		one("streaming/PutObject/chunks-swapped", func(e *env) {
			b := e.bucket()
			p := streamedPut{bucket: b, key: "k", body: data(1, 4*8192), mode: signedChunks, size: 8192}
			p.mangle = func(x []byte) []byte {
				const head = len("2000;chunk-signature=") + 64 + 2
				const frame = head + 8192 + 2
				y := slices.Clone(x)
				copy(y[:frame], x[frame:2*frame])
				copy(y[frame:2*frame], x[:frame])
				return y
			}
			e.denied(e.streamed(p), 403, "SignatureDoesNotMatch")
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
		one("streaming/PutObject/trailer-forged", func(e *env) {
			b := e.bucket()
			body := data(1, 1000)
			p := streamedPut{bucket: b, key: "k", body: body, mode: signedChunksTrail, alg: "CRC32", sum: sums["CRC32"](body)}
			p.mangle = func(x []byte) []byte {
				i := bytes.Index(x, []byte("x-amz-trailer-signature:")) + len("x-amz-trailer-signature:")
				x[i] = "01"[(x[i]&1)^1]
				return x
			}
			e.denied(e.streamed(p), 403, "SignatureDoesNotMatch")
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
		one("streaming/PutObject/trailer-missing", func(e *env) {
			b := e.bucket()
			body := data(1, 1000)
			p := streamedPut{bucket: b, key: "k", body: body, mode: unsignedTrailer, alg: "CRC32", sum: sums["CRC32"](body)}
			p.mangle = func(x []byte) []byte { return append(x[:bytes.Index(x, []byte("x-amz-checksum"))], "\r\n"...) }
			a := e.streamed(p)
			if a.Status != 400 {
				e.Errorf("answered %d %s, want 400", a.Status, a.Code)
			}
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
		one("streaming/PutObject/unsigned-payload", func(e *env) {
			b := e.bucket()
			e.accepted(e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: data(1, 5000), Payload: unsignedPayload}), 200)
			g, err := e.aws.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, data(1, 5000))
		}),
		one("streaming/UploadPart/signed-chunks", func(e *env) {
			b := e.bucket()
			id, err := e.minio.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			// minio-go sends parts as signed chunks over HTTP.
			p, err := e.minio.PutPart(e.ctx, b, "k", id, 1, data(5, 200_000))
			e.ok(err)
			_, err = e.minio.Complete(e.ctx, b, "k", id, []part{p})
			e.ok(err)
			g, err := e.aws.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, data(5, 200_000))
		}),
		one("streaming/PutObject/connection-lost", func(e *env) {
			b := e.bucket()
			r := e.build(req{Method: "PUT", Path: "/" + b + "/k"})
			r.Body, r.ContentLength = &brokenReader{left: 100_000}, 200_000
			e.signer(nil, time.Now()).sign(r, unsignedPayload)
			if resp, err := e.client.Do(r); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					e.Error("half a body was acknowledged")
				}
			}
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
	)
}
