package client

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/objcached/objcached/descriptor"
)

// ObjectRequest asks for one object, or a range of it, in a Buffer.
type ObjectRequest struct {
	Key   string
	First int64 // first byte of the object
	Count int64 // bytes of it; 0: to its end
	// At is where in the Buffer the bytes go, and Room how many of its bytes
	// they may take; 0: all that follow. More than fit is an error.
	At, Room int64
	IfMatch  string          // an ETag that the object must have; "": any
	Path     descriptor.Path // default descriptor.Direct
}

// PutRequest stores bytes of a Buffer as one object.
type PutRequest struct {
	Key       string
	At, Count int64 // the bytes of the Buffer; at least one
	// Absent stores the object only if the key does not exist; else the error
	// has the code PreconditionFailed.
	Absent      bool
	ContentType string
	Meta        map[string]string
	// Chained says that the object is a chunk, with the Parent and Index that
	// Chunk has.
	Chained bool
	Parent  string
	Index   int64
	Path    descriptor.Path // default descriptor.Direct
}

// ObjectResult says what was moved.
type ObjectResult struct {
	Bytes  int64 // moved
	Size   int64 // of the object
	ETag   string
	Header http.Header // of the answer
}

// GetObjectInto puts an object, or a range of it, into b and returns when all
// of it is there (S3RDMA Direct, ObjectCache §4.1). After an error nothing more
// is written to that part of b, and what is there means nothing.
func (c *Client) GetObjectInto(ctx context.Context, req ObjectRequest, b *Buffer) (*ObjectResult, error) {
	t := descriptor.ObjectTarget{Offset: req.At, Length: req.Room, Path: req.Path}
	if t.Length == 0 {
		t.Length = max(0, b.n-max(0, req.At))
	}
	k := call{method: http.MethodGet, key: req.Key, header: map[string]string{}}
	switch {
	case req.First < 0 || req.Count < 0 || req.First+req.Count < 0:
		return nil, invalid("Count", "the range %d+%d", req.First, req.Count)
	case req.Count > 0:
		k.header["Range"] = fmt.Sprintf("bytes=%d-%d", req.First, req.First+req.Count-1)
	case req.First > 0:
		k.header["Range"] = fmt.Sprintf("bytes=%d-", req.First)
	}
	if req.IfMatch != "" {
		k.header["If-Match"] = `"` + strings.Trim(req.IfMatch, `"`) + `"`
	}
	return c.move(ctx, k, t, b)
}

// PutObjectFrom stores bytes of b and returns when they are durable. They are
// sent with their CRC32C: a store that found others, because they were changed
// meanwhile, stores nothing. After an error without an answer the object may be
// stored or not; the store is no longer reading from b.
func (c *Client) PutObjectFrom(ctx context.Context, req PutRequest, b *Buffer) (*ObjectResult, error) {
	t := descriptor.ObjectTarget{Offset: req.At, Length: req.Count, Path: req.Path}
	if req.Count <= 0 || req.At < 0 || req.At > b.n-req.Count {
		return nil, invalid("Count", "the bytes %d+%d of a buffer of %d", req.At, req.Count, b.n)
	}
	k := call{method: http.MethodPut, key: req.Key, header: map[string]string{}}
	set := func(name, v string) {
		if v != "" {
			k.header[name] = v
		}
	}
	set("Content-Type", req.ContentType)
	for name, v := range req.Meta {
		k.header["X-Amz-Meta-"+name] = v
	}
	if req.Chained {
		set("X-Kv-Index", strconv.FormatInt(req.Index, 10))
		set("X-Kv-Parent", req.Parent)
	}
	if req.Absent {
		set("If-None-Match", "*")
	}
	return c.move(ctx, k, t, b)
}

// move sends a request whose object's bytes go by b, until it has an answer.
func (c *Client) move(ctx context.Context, k call, t descriptor.ObjectTarget, b *Buffer) (*ObjectResult, error) {
	t.Handle = b.handle
	switch {
	case k.key == "":
		return nil, invalid("Key", "is empty")
	case b.c.base != c.base || b.c.cfg.AccessKey != c.cfg.AccessKey:
		return nil, invalid("rdma_target", "the buffer was registered with another store or another key")
	case t.Offset < 0 || t.Length <= 0 || t.Offset > b.n-t.Length:
		return nil, invalid("rdma_target.length", "the bytes %d+%d of a buffer of %d", t.Offset, t.Length, b.n)
	}
	ctx, slot, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	reusable := true
	defer func() { done(reusable) }()
	if k.method == http.MethodPut {
		crc := crc32.Checksum(b.mem.Bytes()[t.Offset:t.Offset+t.Length], castagnoli) // mapped until done
		k.header["X-Amz-Checksum-Crc32c"] = base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
	}
	for attempt := 0; ; attempt++ {
		if t.Tag = b.nextTag(slot); t.Tag > b.mem.lastTag() {
			return nil, errNoTags()
		}
		v, err := t.Encode()
		if err != nil {
			var f *descriptor.FieldError
			errors.As(err, &f) // Encode returns nothing else
			return nil, invalid(f.Field, "%s", f.Reason)
		}
		k.header[descriptor.ObjectTargetHeader] = v
		if err := ctx.Err(); err != nil {
			return nil, networkError(err) // nothing was asked
		}
		resp, err := c.sendOnce(ctx, k, sha256Hex(nil), "")
		var e *Error
		var wait time.Duration
		switch {
		case err != nil:
			e = networkError(err)
		case resp.StatusCode/100 == 2:
			r, err := moved(resp, k.key)
			if err == nil && k.method == http.MethodGet {
				if e := b.arrived(t.Tag); e != nil {
					reusable = false
					return nil, e
				}
			}
			return r, err
		default:
			e, wait = answerError(resp), retryAfter(resp)
		}
		if e.Key == "" {
			e.Key = k.key
		}
		b.refused(e)
		if err != nil || !e.ends() {
			if reusable = b.overSoon(t.Tag); !reusable {
				return nil, e
			}
		}
		if b.lost() {
			e.letGo()
			return nil, e
		}
		if !c.again(ctx, attempt, e, wait) {
			return nil, e
		}
	}
}

// moved reads the answer to a request that went well.
func moved(resp *http.Response, key string) (*ObjectResult, error) {
	_ = resp.Body.Close() // it is empty, or this is the wrong store
	h := resp.Header
	r := &ObjectResult{ETag: strings.Trim(h.Get("ETag"), `"`), Header: h}
	var err error
	if r.Bytes, err = strconv.ParseInt(h.Get("X-Kv-Bytes"), 10, 64); err != nil || r.Bytes < 0 {
		return nil, &Error{Code: "InvalidResponse", Key: key, StatusCode: resp.StatusCode, RequestID: h.Get("X-Amz-Request-Id"), Matched: -1,
			Message: "the store does not say that the bytes went by memory"}
	}
	r.Size = r.Bytes
	if _, size, ok := strings.Cut(h.Get("Content-Range"), "/"); ok {
		if n, err := strconv.ParseInt(size, 10, 64); err == nil {
			r.Size = n
		}
	}
	return r, nil
}
