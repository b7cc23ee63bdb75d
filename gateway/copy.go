package gateway

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// maxCopy is the largest source of one copy, in bytes: S3's limit.
const maxCopy = 5 << 30

// source is an opened copy source.
type source struct {
	bucket, key string
	obj         storage.Object
	info        storage.ObjectInfo
}

// openSource opens and pins what x-amz-copy-source names, after checking that
// the sender may read it and that the copy-source conditions hold.
func (g *Gateway) openSource(r *request) (*source, error) {
	bucket, key, err := parseCopySource(r.Header.Get("X-Amz-Copy-Source"))
	if err != nil {
		return nil, err
	}
	b, err := g.reachable(r, bucket)
	if err != nil {
		return nil, err
	}
	if err := checkOwner(r.Header, "X-Amz-Source-Expected-Bucket-Owner", b); err != nil {
		return nil, err
	}
	obj, err := g.store.Open(r.Context(), bucket, key)
	if err != nil {
		if storage.IsNoSuchKey(err) {
			return nil, fail("NoSuchKey", "The specified key does not exist.").with("Key", key)
		}
		return nil, err
	}
	info, err := obj.Info()
	if err == nil {
		c := conditionsOf(r.Header, "X-Amz-Copy-Source-")
		if v, failed := c.check(&info); v != proceed {
			err = conditionFailed("x-amz-copy-source-" + failed)
		}
	}
	if err != nil {
		return nil, errors.Join(err, obj.Close())
	}
	return &source{bucket, key, obj, info}, nil
}

// parseCopySource splits bucket/key, with or without a slash before it,
// percent-encoded in part or as a whole.
func parseCopySource(v string) (bucket, key string, err error) {
	bad := invalidArgument("x-amz-copy-source", v, "Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
	path, version, has := strings.Cut(v, "?versionId=")
	if has && version != "null" {
		return "", "", notImplemented("versionId in x-amz-copy-source")
	}
	if path, err = url.PathUnescape(path); err != nil {
		return "", "", bad
	}
	if strings.HasPrefix(path, "arn:") {
		return "", "", notImplemented("an ARN as x-amz-copy-source")
	}
	bucket, key, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if bucket == "" || key == "" {
		return "", "", bad
	}
	return bucket, key, nil
}

type copyResult struct {
	XMLName      xml.Name
	LastModified xmlTime
	ETag         string
	ChecksumType string `xml:",omitempty"`
	xmlChecksum
}

// copyObject copies bytes from a pinned source; the source may be overwritten
// or deleted meanwhile.
func (g *Gateway) copyObject(w http.ResponseWriter, r *request) error {
	if err := checkKey(r.Key); err != nil {
		return err
	}
	o, err := describe(r.Header)
	if err != nil {
		return err
	}
	if o.Cond, err = writeCondition(r.Header); err != nil {
		return err
	}
	src, err := g.openSource(r)
	if err != nil {
		return err
	}
	defer src.obj.Close()
	if src.info.Size > maxCopy {
		return fail("InvalidRequest", "The specified copy source is larger than the maximum allowable size for a copy source: %d", int64(maxCopy))
	}
	switch d := r.Header.Get("X-Amz-Metadata-Directive"); d {
	case "", "COPY":
		if src.bucket == r.Bucket && src.key == r.Key {
			return fail("InvalidRequest", "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.")
		}
		o.Headers, o.UserMeta, o.Chain = src.info.Headers, src.info.UserMeta, src.info.Chain
	case "REPLACE":
	default:
		return invalidArgument("x-amz-metadata-directive", d, "Unknown metadata directive.")
	}
	switch d := r.Header.Get("X-Amz-Tagging-Directive"); d {
	case "", "COPY":
		o.Tags = src.info.Tags
	case "REPLACE":
	default:
		return invalidArgument("x-amz-tagging-directive", d, "Unknown tagging directive.")
	}
	alg := src.info.Checksum.Algorithm
	if alg == checksum.None {
		alg = defaultChecksum
	}
	if v := r.Header.Get(checksum.HeaderAlgorithm); v != "" {
		a, ok := checksum.Parse(v)
		if !ok {
			return fail("InvalidRequest", "Checksum algorithm provided is unsupported.")
		}
		alg = a
	}
	body := g.newCopyReader(r.Context(), src.obj, span{n: src.info.Size}, alg)
	defer body.release()
	o.Size, o.Checksum = src.info.Size, body.sum
	oi, err := g.store.Put(r.Context(), r.Bucket, r.Key, body, o)
	if err != nil {
		return err
	}
	return writeXML(w, http.StatusOK, copyResult{
		XMLName:      xml.Name{Space: xmlNamespace, Local: "CopyObjectResult"},
		LastModified: xmlTime(oi.Modified), ETag: quote(oi.ETag),
		ChecksumType: string(oi.Checksum.Type), xmlChecksum: checksumElements(oi.Checksum),
	})
}

// copyReader reads a span of an object as a stream and hashes what it gives.
type copyReader struct {
	ctx  context.Context
	obj  storage.Object
	at   int64 // next byte to read from obj
	end  int64
	left []byte // read from obj and not given yet
	buf  *[]byte
	pool *sync.Pool
	alg  checksum.Algorithm
	hash interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func (g *Gateway) newCopyReader(ctx context.Context, obj storage.Object, s span, alg checksum.Algorithm) *copyReader {
	c := &copyReader{ctx: ctx, obj: obj, at: s.off, end: s.off + s.n, pool: &g.buffers, alg: alg}
	c.buf = g.buffers.Get().(*[]byte)
	if h := checksum.New(alg); h != nil {
		c.hash = h
	}
	return c
}

func (c *copyReader) release() { c.pool.Put(c.buf) }

func (c *copyReader) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		if c.at == c.end {
			return 0, io.EOF
		}
		// Whole blocks, as in sendObject; at the start of an unaligned span
		// the bytes before it are read for their checksum and dropped.
		from := c.at - c.at%storage.BlockSize
		stop := min(from+pieceSize, roundUp(c.end, storage.BlockSize), c.obj.Size())
		piece := (*c.buf)[:stop-from]
		if err := c.obj.ReadAt(c.ctx, piece, from, storage.ReadHint{Class: storage.ClassPlain}); err != nil {
			return 0, err
		}
		to := min(stop, c.end)
		c.left = piece[c.at-from : to-from]
		c.at = to
		if c.hash != nil {
			_, _ = c.hash.Write(c.left) // a hash does not fail
		}
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

// sum is the checksum of everything read, once Read has given io.EOF.
func (c *copyReader) sum() checksum.Sum {
	if c.hash == nil {
		return checksum.Sum{}
	}
	return checksum.Sum{Algorithm: c.alg, Type: checksum.FullObject, Value: checksum.Encode(c.hash.Sum(nil))}
}
