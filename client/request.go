package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// call is one signed request. minio-go cannot send it: it has no KV requests,
// and turns a header it does not know into x-amz-meta-*.
type call struct {
	method, key, query string // key empty: the bucket itself
	header             map[string]string
	body               []byte
	bulk               bool // a chunk's bytes: see Config.UnsignedPayload
	into               bool // a delivery into a Buffer: answered when it is over
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// send sends a call, again where that may help, and returns the answer if its
// status is 2xx, else an *Error. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	hash := sha256Hex
	extra := ""
	if k.bulk && (c.tls || c.cfg.UnsignedPayload) {
		hash = func([]byte) string { return "UNSIGNED-PAYLOAD" }
		extra = base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(k.body, castagnoli)))
	}
	sum := hash(k.body)
	for attempt := 0; ; attempt++ {
		resp, err := c.sendOnce(ctx, k, sum, extra)
		var e *Error
		switch {
		case err != nil:
			e = networkError(err)
		case resp.StatusCode/100 == 2:
			return resp, nil
		default:
			e = answerError(resp)
		}
		if e.Key == "" {
			e.Key = k.key
		}
		wait := time.Duration(0)
		if resp != nil {
			wait = retryAfter(resp)
		}
		if !c.again(ctx, attempt, e, wait) {
			return nil, e
		}
	}
}

// again reports whether to send a request again after e, having waited.
func (c *Client) again(ctx context.Context, attempt int, e *Error, atLeast time.Duration) bool {
	if attempt >= c.cfg.Retries || !retryable(e) || ctx.Err() != nil {
		return false
	}
	c.log.DebugContext(ctx, "sending again", "error", e)
	return c.cfg.Sleep(ctx, max(atLeast, backoff(attempt, c.rand()))) == nil
}

func (c *Client) sendOnce(ctx context.Context, k call, sum, crc string) (*http.Response, error) {
	u := c.base
	u.Path = c.path + k.key
	if k.key == "" && u.Path != "/" {
		u.Path = u.Path[:len(u.Path)-1] // the bucket itself: /bucket
	}
	u.RawPath = s3utils.EncodePath(u.Path)
	if k.query != "" {
		u.RawQuery = url.QueryEscape(k.query) + "="
	}
	req, err := http.NewRequestWithContext(ctx, k.method, u.String(), bytes.NewReader(k.body))
	if err != nil {
		return nil, err
	}
	// What was escaped above must go out as it is: it is what gets signed.
	req.URL.Path, req.URL.RawPath = u.Path, u.RawPath
	h := req.Header
	h.Set("User-Agent", "objcached-client")
	h.Set("X-Amz-Content-Sha256", sum)
	if crc != "" {
		h.Set("X-Amz-Checksum-Crc32c", crc)
	}
	for name, v := range k.header {
		h.Set(name, v)
	}
	req = signer.SignV4(*req, c.cfg.AccessKey, c.cfg.SecretKey, c.cfg.SessionToken, c.cfg.Region)
	// Every call here may be sent twice. This tells net/http so, which then
	// replaces a connection that the server closed while idle; an empty value
	// is not sent.
	req.Header["X-Idempotency-Key"] = nil
	if k.into {
		return c.into.Do(req)
	}
	return c.http.Do(req)
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// retryable reports whether sending again may help.
func retryable(e *Error) bool {
	switch e.StatusCode {
	case 0:
		return !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded)
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict: // another writer is at the same key just now
		return e.Code == "ConditionalRequestConflict"
	}
	return false
}

// backoff doubles from 50 ms and is spread by half either way (r in [0,1)), so
// that clients refused together do not come back together.
func backoff(attempt int, r float64) time.Duration {
	d := 50 * time.Millisecond << min(attempt, 6)
	return d/2 + time.Duration(r*float64(d))
}

// retryAfter is the answer's wish, at most 30 s.
func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return min(time.Duration(s)*time.Second, 30*time.Second)
}

// drain reads the little that is left of a body, so that its connection can be
// used again, and closes it.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxErrorBody)
	_ = body.Close()
}
