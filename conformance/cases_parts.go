package conformance

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
)

// partCases look at multipart objects part by part.
func partCases() []kase {
	return slices.Concat(
		both("multipart/CompleteMultipartUpload/again", func(e *env, c sdk) {
			b := e.bucket()
			id, err := c.CreateUpload(e.ctx, b, "k", putOpts{})
			e.ok(err)
			parts := e.uploadParts(c, b, "k", id, [][]byte{data(1, minPart), data(2, 33)})
			first, err := c.Complete(e.ctx, b, "k", id, parts)
			e.ok(err)
			second, err := c.Complete(e.ctx, b, "k", id, parts)
			e.ok(err)
			equal(e, "ETag of the second answer", second, first)
			g, err := c.Get(e.ctx, b, "k", getOpts{})
			e.ok(err)
			e.same(g.Body, append(data(1, minPart), data(2, 33)...))
			e.ok(c.Delete(e.ctx, b, "k"))
			_, err = c.Complete(e.ctx, b, "k", "nonsense", parts)
			e.fails(err, 404, "NoSuchUpload")
		}),
		one("multipart/GetObject/part-checksums", func(e *env) {
			for _, alg := range sumNames {
				b := e.bucket()
				bodies := [][]byte{data(1, minPart+1), data(2, 4321)}
				e.sums(b, "k", alg, bodies)
				for i, body := range bodies {
					for _, method := range []string{"GET", "HEAD"} {
						a := e.do(req{Method: method, Path: "/" + b + "/k", Query: "partNumber=" + strconv.Itoa(i+1), Header: map[string]string{"X-Amz-Checksum-Mode": "ENABLED"}})
						e.accepted(a, 206)
						equal(e, alg+" of the part", a.Header.Get(sumHeader(alg)), sums[alg](body))
						equal(e, "parts", a.Header.Get("X-Amz-Mp-Parts-Count"), "2")
						equal(e, "length", a.Header.Get("Content-Length"), strconv.Itoa(len(body)))
						if method == "GET" {
							e.same(a.Body, body)
						}
					}
				}
			}
		}),
		both("checksum/CompleteMultipartUpload/default", func(e *env, c sdk) {
			b := e.bucket()
			bodies := [][]byte{data(1, minPart+7), data(2, 100)}
			// By hand: the SDKs ask for checksums of their own.
			e.sums(b, "k", "", bodies)
			h, err := c.Head(e.ctx, b, "k", getOpts{Checksum: true})
			e.ok(err)
			equal(e, "CRC64NVME of the whole", h.Get(sumHeader("CRC64NVME")), sums["CRC64NVME"](bytes.Join(bodies, nil)))
			equal(e, "type", h.Get("X-Amz-Checksum-Type"), "FULL_OBJECT")
			g, err := c.Get(e.ctx, b, "k", getOpts{Checksum: true, Part: 2})
			e.ok(err)
			e.same(g.Body, bodies[1])
		}),
		one("multipart/GetObjectAttributes/minio-go", func(e *env) {
			b := e.bucket()
			bodies := [][]byte{data(1, minPart+1), data(2, 4321)}
			e.sums(b, "k", "SHA256", bodies)
			a, err := e.minio.core.GetObjectAttributes(e.ctx, b, "k", minio.ObjectAttributesOptions{})
			e.ok(err)
			equal(e, "ETag", a.ETag, multipartETag(bodies))
			equal(e, "size", a.ObjectSize, minPart+1+4321)
			equal(e, "checksum", a.Checksum.ChecksumSHA256, composite("SHA256", bodies)+"-2")
			equal(e, "parts", a.ObjectParts.PartsCount, 2)
			for i, p := range a.ObjectParts.Parts {
				equal(e, "size of the part", p.Size, len(bodies[i]))
				equal(e, "checksum of the part", p.ChecksumSHA256, sums["SHA256"](bodies[i]))
			}
			a, err = e.minio.core.GetObjectAttributes(e.ctx, b, "k", minio.ObjectAttributesOptions{MaxParts: 1, PartNumberMarker: 0})
			e.ok(err)
			equal(e, "parts of the page", len(a.ObjectParts.Parts), 1)
			equal(e, "truncated", a.ObjectParts.IsTruncated, true)
			_, err = e.minio.core.GetObjectAttributes(e.ctx, b, "gone", minio.ObjectAttributesOptions{})
			e.fails(err, 404, "NoSuchKey")
		}),
		one("multipart/GetObjectAttributes/aws-sdk", func(e *env) {
			b := e.bucket()
			bodies := [][]byte{data(1, minPart+1), data(2, 4321)}
			e.sums(b, "k", "CRC64NVME", bodies)
			in := s3.GetObjectAttributesInput{Bucket: &b, Key: aws.String("k"), ObjectAttributes: types.ObjectAttributes("").Values()}
			a, err := e.aws.c.GetObjectAttributes(e.ctx, &in)
			e.ok(err)
			equal(e, "ETag", aws.ToString(a.ETag), multipartETag(bodies))
			equal(e, "size", aws.ToInt64(a.ObjectSize), minPart+1+4321)
			equal(e, "storage class", a.StorageClass, types.StorageClassStandard)
			equal(e, "checksum", aws.ToString(a.Checksum.ChecksumCRC64NVME), sums["CRC64NVME"](bytes.Join(bodies, nil)))
			equal(e, "parts", aws.ToInt32(a.ObjectParts.TotalPartsCount), 2)
			for i, p := range a.ObjectParts.Parts {
				equal(e, "size of the part", aws.ToInt64(p.Size), int64(len(bodies[i])))
				equal(e, "checksum of the part", aws.ToString(p.ChecksumCRC64NVME), sums["CRC64NVME"](bodies[i]))
			}
			in.MaxParts, in.PartNumberMarker = aws.Int32(1), aws.String("1")
			a, err = e.aws.c.GetObjectAttributes(e.ctx, &in)
			e.ok(err)
			equal(e, "parts of the page", len(a.ObjectParts.Parts), 1)
			equal(e, "number", aws.ToInt32(a.ObjectParts.Parts[0].PartNumber), 2)
			equal(e, "truncated", aws.ToBool(a.ObjectParts.IsTruncated), false)
		}),
		one("checksum/PutObject/default", func(e *env) {
			b := e.bucket()
			for _, n := range []int{0, 1, 4097, 200_003} {
				body := data(uint64(n), n)
				a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: body})
				e.accepted(a, 200)
				equal(e, "CRC64NVME of PUT", a.Header.Get(sumHeader("CRC64NVME")), sums["CRC64NVME"](body))
				h, err := e.aws.Head(e.ctx, b, "k", getOpts{Checksum: true})
				e.ok(err)
				equal(e, "CRC64NVME of HEAD", h.Get(sumHeader("CRC64NVME")), sums["CRC64NVME"](body))
			}
		}),
	)
}

// sums makes a multipart object with checksums alg of its parts; empty: none.
func (e *env) sums(bucket, key, alg string, bodies [][]byte) {
	e.Helper()
	header := map[string]string{}
	if alg != "" {
		header["X-Amz-Checksum-Algorithm"] = alg
	}
	a := e.do(req{Method: "POST", Path: "/" + bucket + "/" + key, Query: "uploads=", Header: header})
	e.accepted(a, 200)
	id := url.QueryEscape(elements(a.Body)["UploadId"])
	var doc strings.Builder
	doc.WriteString("<CompleteMultipartUpload>")
	for i, body := range bodies {
		n := strconv.Itoa(i + 1)
		header, sum := map[string]string{}, ""
		if alg != "" {
			header[sumHeader(alg)] = sums[alg](body)
			sum = "<Checksum" + alg + ">" + sums[alg](body) + "</Checksum" + alg + ">"
		}
		a := e.do(req{Method: "PUT", Path: "/" + bucket + "/" + key, Query: "partNumber=" + n + "&uploadId=" + id, Body: body, Header: header})
		e.accepted(a, 200)
		doc.WriteString("<Part><PartNumber>" + n + "</PartNumber><ETag>" + md5Hex(body) + "</ETag>" + sum + "</Part>")
	}
	doc.WriteString("</CompleteMultipartUpload>")
	e.accepted(e.do(req{Method: "POST", Path: "/" + bucket + "/" + key, Query: "uploadId=" + id, Body: []byte(doc.String())}), 200)
}
