package gateway

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/meta"
	"github.com/objcached/objcached/storage/object"
)

// newStore is the real object model over a key-value store and a byte store in
// memory: what the gateway sees is what it sees in production.
func newStore(t testing.TB) storage.Store {
	t.Helper()
	s, _ := openStore(t)
	return s
}

func openStore(t testing.TB) (*object.Store, *memBlob) { return openStoreWith(t, object.Options{}) }

func openStoreWith(t testing.TB, o object.Options) (*object.Store, *memBlob) {
	t.Helper()
	b := &memBlob{}
	s, err := object.Open(t.Context(), &memMeta{parts: map[string]map[string][]byte{}}, b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s, b
}

// memMeta is a meta.Store in memory.
type memMeta struct {
	mu    sync.RWMutex
	parts map[string]map[string][]byte
}

func (m *memMeta) Get(_ context.Context, partition string, key, dst []byte) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.parts[partition][string(key)]
	if !ok {
		return dst, meta.ErrNotFound
	}
	return append(dst, v...), nil
}

func (m *memMeta) Scan(_ context.Context, partition string, start, end []byte, fn func(key, value []byte) (bool, error)) error {
	m.mu.RLock()
	var keys []string
	values := map[string][]byte{}
	for k, v := range m.parts[partition] {
		if k >= string(start) && (end == nil || k < string(end)) {
			keys = append(keys, k)
			values[k] = v
		}
	}
	m.mu.RUnlock()
	slices.Sort(keys)
	for _, k := range keys {
		if more, err := fn([]byte(k), values[k]); err != nil || !more {
			return err
		}
	}
	return nil
}

func (m *memMeta) Apply(_ context.Context, partition string, b *meta.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[partition]
	for _, c := range b.Conds {
		v, ok := p[string(c.Key)]
		if c.Absent == ok || !c.Absent && !bytes.Equal(v, c.Value) {
			return meta.ErrConflict
		}
	}
	if p == nil {
		p = map[string][]byte{}
		m.parts[partition] = p
	}
	for _, op := range b.Ops {
		if op.Delete {
			delete(p, string(op.Key))
		} else {
			p[string(op.Key)] = slices.Clone(op.Value)
		}
	}
	return nil
}

func (m *memMeta) Partitions(context.Context) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []string
	for name, p := range m.parts {
		if len(p) > 0 {
			out = append(out, name)
		}
	}
	return out, nil
}

func (m *memMeta) Close() error { return nil }

// memBlob is a blob.Store in memory that never uses space twice.
type memBlob struct {
	mu   sync.RWMutex
	data [][]byte // by Volume of the extent
	live int64
}

func (m *memBlob) Reserve(_ context.Context, size int64) ([]blob.Extent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = append(m.data, make([]byte, size))
	m.live += blob.Roundup(size)
	return []blob.Extent{{Volume: uint32(len(m.data) - 1), Len: size}}, nil
}

// bytes is the memory behind [off, off+n) of an extent.
func (m *memBlob) bytes(e blob.Extent, off int64, n int) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if off < 0 || off+int64(n) > e.Len {
		return nil, blob.ErrRange
	}
	return m.data[e.Volume][e.Offset+off:][:n], nil
}

func (m *memBlob) WriteAt(_ context.Context, e blob.Extent, p []byte, off int64) error {
	b, err := m.bytes(e, off, len(p))
	copy(b, p)
	return err
}

func (m *memBlob) ReadAt(_ context.Context, e blob.Extent, p []byte, off int64, _ bool) error {
	b, err := m.bytes(e, off, len(p))
	copy(p, b)
	return err
}

func (m *memBlob) Seal(context.Context, []blob.Extent) error { return nil }

func (m *memBlob) Free(_ context.Context, exts []blob.Extent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range exts {
		m.live -= blob.Roundup(e.Len)
	}
	return nil
}

func (m *memBlob) Restore(_ context.Context, live func(yield func(blob.Extent) error) error) error {
	return live(func(blob.Extent) error { return nil })
}

func (m *memBlob) Stats() blob.Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return blob.Stats{Capacity: 1 << 40, Reserved: m.live, Volumes: len(m.data)}
}

func (m *memBlob) Close() error { return nil }

// flip damages byte at of the one extent that begins with prefix.
func (m *memBlob) flip(t testing.TB, prefix []byte, at int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.data {
		if bytes.HasPrefix(d, prefix) {
			d[at] ^= 1
			return
		}
	}
	t.Fatal("content not found in the byte store")
}
