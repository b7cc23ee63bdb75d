package object

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/meta"
)

// skipByNext is how many keys below a common prefix are passed over one by
// one before the listing seeks past the prefix.
const skipByNext = 8

// walker walks the entries of a listing: keys and common prefixes in order.
type walker struct {
	prefix, delimiter string
	max               int
	prefixes          []string
	n                 int // entries so far
	last              string
	more              bool // there is one beyond max
}

// common returns the common prefix that key is below, or "".
func (w *walker) common(key string) string {
	if w.delimiter == "" {
		return ""
	}
	i := strings.Index(key[len(w.prefix):], w.delimiter)
	if i < 0 {
		return ""
	}
	return key[:len(w.prefix)+i+len(w.delimiter)]
}

// full reports that there is no room for one entry more, which exists.
func (w *walker) full() bool {
	w.more = w.n == w.max
	return w.more
}

// List implements storage.Lister.
func (s *Store) List(ctx context.Context, bucket string, o storage.ListOptions) (storage.ListPage, error) {
	if !s.usage.enter() {
		return storage.ListPage{}, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return storage.ListPage{}, err
	}
	if o.Max <= 0 {
		return storage.ListPage{}, nil
	}
	w := walker{prefix: o.Prefix, delimiter: o.Delimiter, max: o.Max}
	objects, err := s.listObjects(ctx, b, &w, o.After)
	if err != nil {
		return storage.ListPage{}, toStorage(err)
	}
	if w.n == 0 {
		if err := s.missing(ctx, b); !storage.IsNoSuchKey(err) {
			return storage.ListPage{}, err
		}
	}
	page := storage.ListPage{Objects: objects, Prefixes: w.prefixes, Truncated: w.more}
	if w.more {
		page.Next = w.last
	}
	return page, nil
}

func (s *Store) listObjects(ctx context.Context, b *bucket, w *walker, after string) (objects []storage.ObjectInfo, err error) {
	start := appendObjectKey(nil, w.prefix)
	end := successor(start)
	if after != "" && after >= w.prefix {
		if !strings.HasPrefix(after, w.prefix) {
			return nil, nil // above everything with the prefix
		}
		start = append(appendObjectKey(nil, after), 0)
		if w.common(after) == after {
			start = successor(appendObjectKey(nil, after))
		}
	}
	for start != nil && bytes.Compare(start, end) < 0 {
		var seek []byte
		skipped := 0
		below := "" // the common prefix found last, if any
		err := s.meta.Scan(ctx, b.part, start, end, func(k, v []byte) (bool, error) {
			if below != "" && len(k) > len(below) && string(k[1:1+len(below)]) == below {
				if skipped++; skipped > skipByNext {
					seek = successor(appendObjectKey(nil, below))
					return false, nil
				}
				return true, nil
			}
			key := string(k[1:])
			if w.full() {
				return false, nil
			}
			if below = w.common(key); below != "" {
				w.prefixes = append(w.prefixes, below)
				w.n, w.last, skipped = w.n+1, below, 0
				return true, nil
			}
			var rec record
			if err := rec.decode(v); err != nil {
				return false, err
			}
			info, err := rec.describe(key, false)
			if err != nil {
				return false, err
			}
			objects = append(objects, info)
			w.n, w.last = w.n+1, key
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		start = seek
	}
	return objects, nil
}

// MatchPrefix implements storage.Lister.
func (s *Store) MatchPrefix(ctx context.Context, bucket string, keys []string) (int, error) {
	if !s.usage.enter() {
		return 0, storage.ErrClosed
	}
	defer s.usage.leave()
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return 0, err
	}
	kb := keyBuffers.Get().(*[]byte)
	vb := keyBuffers.Get().(*[]byte)
	defer keyBuffers.Put(kb)
	defer keyBuffers.Put(vb)
	for i, key := range keys {
		err := ctx.Err()
		if err == nil && len(key) <= MaxKeyLen {
			*kb = appendObjectKey((*kb)[:0], key)
			var v []byte
			if v, err = s.meta.Get(ctx, b.part, *kb, (*vb)[:0]); err == nil {
				*vb = v
			}
		} else if err == nil {
			err = meta.ErrNotFound
		}
		if errors.Is(err, meta.ErrNotFound) {
			if err := s.missing(ctx, b); !storage.IsNoSuchKey(err) {
				return 0, err
			}
			return i, nil
		}
		if err != nil {
			return 0, toStorage(err)
		}
	}
	return len(keys), nil
}
