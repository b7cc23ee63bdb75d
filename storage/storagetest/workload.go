package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

// History keeps what was tried on the keys of a bucket and what was
// acknowledged, for tests that crash a store or let it fail. Its methods may
// be called concurrently, but the calls for one key must follow each other.
type History struct {
	bucket string
	mu     sync.Mutex
	keys   map[string]*keyHistory
}

// state is what a key holds: the pattern of a seed, with a tag or none, or nothing.
type state struct {
	seed  uint64
	n     int
	there bool
	tag   string
}

type keyHistory struct {
	tried []state // the first: absent
	acked int     // index of the last acknowledged
}

// NewHistory starts with an empty bucket.
func NewHistory(bucket string) *History {
	return &History{bucket: bucket, keys: make(map[string]*keyHistory)}
}

// do runs op, which should bring key into st.
func (h *History) do(key string, st state, op func() error) error {
	h.mu.Lock()
	k := h.keys[key]
	if k == nil {
		k = &keyHistory{tried: []state{{}}}
		h.keys[key] = k
	}
	i := len(k.tried)
	k.tried = append(k.tried, st)
	h.mu.Unlock()
	err := op()
	if err == nil {
		h.mu.Lock()
		k.acked = i
		h.mu.Unlock()
	}
	return err
}

// Clone copies the history.
func (h *History) Clone() *History {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := NewHistory(h.bucket)
	for key, k := range h.keys {
		c.keys[key] = &keyHistory{tried: slices.Clone(k.tried), acked: k.acked}
	}
	return c
}

// Extend adds to h, a clone of later's past, what later knows to have been
// tried since, without its acknowledgements.
func (h *History) Extend(later *History) {
	for key, k := range later.Clone().keys {
		if h.keys[key] == nil {
			h.keys[key] = &keyHistory{}
		}
		h.keys[key].tried = k.tried
	}
}

// Check finds every key in one of the states it may be in: the last
// acknowledged, or one tried after it. That becomes its history.
func (h *History) Check(t testing.TB, s storage.Store) {
	t.Helper()
	for key, k := range h.keys {
		got := state{}
		var content []byte
		o, err := s.Open(context.Background(), h.bucket, key)
		if err == nil {
			content = make([]byte, o.Size())
			err = o.ReadAt(context.Background(), content, 0, storage.ReadHint{})
			info, ierr := o.Info()
			err = errors.Join(err, ierr)
			for _, tag := range info.Tags {
				got.tag += tag.Value
			}
			o.Close()
			got.there = true
		}
		if err != nil && !storage.IsNoSuchKey(err) {
			t.Fatalf("key %q: %v", key, err)
		}
		i := slices.IndexFunc(k.tried[k.acked:], func(want state) bool {
			return want.there == got.there && want.tag == got.tag && (!want.there || bytes.Equal(content, Pattern(want.seed, want.n)))
		})
		if i < 0 {
			t.Fatalf("key %q: there=%v, tag %q, %d bytes; want one of %+v", key, got.there, got.tag, len(content), k.tried[k.acked:])
		}
		k.tried, k.acked = []state{k.tried[k.acked+i]}, 0
	}
}

// known returns what key holds, if it is known and an object.
func (h *History) known(key string) (state, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	if k == nil || k.acked != len(k.tried)-1 {
		return state{}, false // an attempt failed, and may have done something
	}
	return k.tried[k.acked], k.tried[k.acked].there
}

// Call puts, replaces, tags or deletes one of client g's four keys, by a put or
// an upload, or leaves or aborts an upload. Clients may call concurrently.
func (h *History) Call(ctx context.Context, s storage.Store, r *rand.Rand, g int) error {
	key := fmt.Sprintf("%d/%d", g, r.IntN(4))
	st := state{seed: r.Uint64(), n: []int{0, 100, 5000, 70_000, 200_000}[r.IntN(5)], there: true}
	switch r.IntN(8) {
	case 0, 1:
		return h.do(key, state{}, func() error { return s.Delete(ctx, h.bucket, key, storage.Condition{}) })
	case 2, 3:
		return h.upload(ctx, s, r, key, st)
	case 4:
		if tagged, ok := h.known(key); ok {
			tagged.tag = fmt.Sprint(st.seed)
			return h.do(key, tagged, func() error {
				return s.SetTags(ctx, h.bucket, key, []storage.Tag{{Key: "seed", Value: tagged.tag}})
			})
		}
	}
	return h.do(key, st, func() error {
		_, err := s.Put(ctx, h.bucket, key, bytes.NewReader(Pattern(st.seed, st.n)), storage.PutOptions{Size: int64(st.n)})
		return err
	})
}

func (h *History) upload(ctx context.Context, s storage.Store, r *rand.Rand, key string, st state) error {
	u, err := s.CreateUpload(ctx, h.bucket, key, storage.PutOptions{}, checksum.None, "")
	if err != nil {
		return err
	}
	part := func(number int, p []byte) storage.CompletedPart {
		got, perr := s.PutPart(ctx, h.bucket, key, u.ID, number, bytes.NewReader(p), storage.PartOptions{Size: int64(len(p))})
		err = errors.Join(err, perr)
		return storage.CompletedPart{Number: number, ETag: got.ETag}
	}
	part(1, Pattern(1, 9000))
	part(2, Pattern(2, 9000))
	c := part(1, Pattern(st.seed, st.n)) // in place of the first
	if err != nil {
		return err
	}
	switch r.IntN(8) {
	case 0, 1, 2:
		return s.AbortUpload(ctx, h.bucket, key, u.ID)
	case 3:
		return nil // left unfinished
	}
	return h.do(key, st, func() error {
		_, err := s.CompleteUpload(ctx, h.bucket, key, u.ID, []storage.CompletedPart{c}, storage.CompleteOptions{})
		return err
	})
}
