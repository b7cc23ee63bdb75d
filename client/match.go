package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
)

// support is what the client has learnt about the store. Every field may be
// read and set concurrently; calls that race ask the store twice.
type support struct {
	state            atomic.Int32 // unknown, native, plain
	since            atomic.Int64 // when state became plain, Unix nanoseconds
	noConditionalPut atomic.Bool

	redetect time.Duration
	now      func() time.Time
}

const (
	unknown int32 = iota
	native        // answers the KV requests
	plain         // some other S3 store
)

func (s *support) get() int32 {
	st := s.state.Load()
	if st == plain && s.now().Sub(time.Unix(0, s.since.Load())) >= s.redetect {
		return unknown
	}
	return st
}

func (s *support) set(state int32) {
	s.since.Store(s.now().UnixNano())
	s.state.Store(state)
}

// isNative reports whether the store answers KV requests, asking it with a
// kv-match of one key if that is not known or again is set.
func (c *Client) isNative(ctx context.Context, key string, again bool) (bool, error) {
	if st := c.kv.get(); !again && st != unknown {
		return st == native, nil
	}
	_, err := c.kvMatch(ctx, []string{key})
	switch {
	case err == nil:
		c.kv.set(native)
	case errors.Is(err, errNotKV):
		c.kv.set(plain)
		c.log.InfoContext(ctx, "the store does not know the KV requests; using HEADs and ranged GETs", "answer", err)
	default:
		return false, err
	}
	return err == nil, nil
}

// Match returns the length of the longest prefix of keys that exists: one
// request, or concurrent HEADs against a store without kv-match.
func (c *Client) Match(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	is, err := c.isNative(ctx, keys[0], false)
	if err != nil {
		return 0, err
	}
	if is {
		n, err := c.kvMatch(ctx, keys)
		if !errors.Is(err, errNotKV) {
			return n, err
		}
		// It did know them once. Whether it still does is a question of its own:
		// this answer may be about these keys.
		if is, probeErr := c.isNative(ctx, keys[0], true); is || probeErr != nil {
			return 0, err
		}
	}
	heads, err := c.heads(ctx, keys)
	return len(heads), err
}

// maxMatchAnswer is far above {"matched": n} and far below an object.
const maxMatchAnswer = 4 << 10

// kvMatch asks the store. An answer that a store without kv-match might give
// is an *Error that wraps errNotKV.
func (c *Client) kvMatch(ctx context.Context, keys []string) (int, error) {
	body, err := json.Marshal(struct {
		Keys []string `json:"chunk_keys"`
	}{keys})
	if err != nil {
		return 0, err
	}
	resp, err := c.send(ctx, call{
		method: http.MethodPost, query: "kv-match", body: body,
		header: map[string]string{"Content-Type": "application/json"},
	})
	if err != nil {
		return 0, foreign(err)
	}
	defer drain(resp.Body)
	var answer struct {
		Matched *int `json:"matched"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMatchAnswer))
	if err != nil {
		return 0, networkError(err)
	}
	if json.Unmarshal(data, &answer) != nil || answer.Matched == nil {
		return 0, &Error{Code: "NotImplemented", StatusCode: resp.StatusCode, Message: "the answer is not one of kv-match", Matched: -1, Err: errNotKV}
	}
	if n := *answer.Matched; n < 0 || n > len(keys) {
		return 0, &Error{Code: "InvalidResponse", StatusCode: resp.StatusCode, Message: fmt.Sprintf("%d of %d keys matched", n, len(keys)), Matched: -1}
	}
	return *answer.Matched, nil
}

// foreign marks answers to a POST ?kv-... that stores without the KV requests
// give: 501, 405, the 400 and 412 of a misunderstood form upload, a 404 that is
// about no bucket or key. It leaves alone what is true of any store.
func foreign(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Matched >= 0 {
		return err
	}
	switch e.StatusCode {
	case http.StatusBadRequest:
		switch e.Code {
		case "AuthorizationHeaderMalformed", "InvalidBucketName", "RequestTimeout", "XAmzContentSHA256Mismatch", "ExpiredToken":
			return err
		}
	case http.StatusNotFound:
		if e.Code == "NoSuchBucket" {
			return err
		}
	case http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusPreconditionFailed,
		http.StatusUnsupportedMediaType, http.StatusNotImplemented:
	default:
		return err
	}
	marked := *e
	marked.Err = errNotKV
	return &marked
}

// head is what the fallback knows of a chunk.
type head struct {
	size int64
	etag string
}

// heads asks for keys one by one, Config.Concurrency at a time, and returns
// what it found of the longest prefix that exists. It asks for few keys above
// the first missing one.
func (c *Client) heads(ctx context.Context, keys []string) ([]head, error) {
	found := make([]head, len(keys))
	var missing atomic.Int64 // lowest index known to be missing
	missing.Store(int64(len(keys)))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.cfg.Concurrency)
	for i := range keys {
		if int64(i) > missing.Load() || gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			h, e := c.head(gctx, keys[i])
			if e == nil {
				found[i] = h
				return nil
			}
			if e.Code != "NoSuchKey" {
				return e
			}
			for {
				low := missing.Load()
				if int64(i) >= low || missing.CompareAndSwap(low, int64(i)) {
					return nil
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // the loop may have stopped early for it
		return nil, networkError(err)
	}
	return found[:missing.Load()], nil
}

func (c *Client) head(ctx context.Context, key string) (head, *Error) {
	for attempt := 0; ; attempt++ {
		info, err := c.core.StatObject(ctx, c.cfg.Bucket, key, minio.StatObjectOptions{})
		if err == nil {
			return head{size: info.Size, etag: info.ETag}, nil
		}
		if e := fromMinio(err, key); !c.again(ctx, attempt, e, 0) {
			return head{}, e
		}
	}
}
