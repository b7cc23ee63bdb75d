package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/objcached/objcached/storage/blob"
	"github.com/objcached/objcached/storage/meta"
)

// world is what a memMeta and a memBlob share: the moment at which both can be
// cloned as a crash would leave them, and the counting of faults.
type world struct {
	mu sync.RWMutex // held exclusively while a clone is taken

	faultMu sync.Mutex
	ops     int
	failAt  int  // the operation that fails; 0: none
	after   bool // an Apply that fails has happened all the same
	sticky  bool // so do all operations after it
	fired   bool
	onOp    func(n int) // called before each operation, one at a time
	misuse  []error     // of the byte store: what no correct caller does
}

var errInjected = errors.New("injected fault")

// fault counts an operation and says whether it is to fail.
func (w *world) fault() error {
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	w.ops++
	if w.onOp != nil {
		w.onOp(w.ops)
	}
	if w.failAt > 0 && (w.ops == w.failAt || w.sticky && w.ops > w.failAt) {
		w.fired = true
		return errInjected
	}
	return nil
}

func (w *world) arm(k int, after, sticky bool) {
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	w.ops, w.failAt, w.after, w.sticky, w.fired = 0, k, after, sticky, false
}

func (w *world) disarm() (fired bool) {
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	w.failAt = 0
	return w.fired
}

func (w *world) blame(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	w.misuse = append(w.misuse, err)
	return err
}

// memMeta is a meta.Store in memory. A batch is durable once it is applied.
type memMeta struct {
	w     *world
	mu    sync.RWMutex
	parts map[string]*memPart

	// Set while nothing runs: called when a Get has found its answer, and
	// before a batch is looked at.
	afterGet    func(key []byte)
	beforeApply func(b *meta.Batch)
}

type memPart struct {
	keys []string // sorted
	m    map[string][]byte
}

func newMemMeta(w *world) *memMeta { return &memMeta{w: w, parts: make(map[string]*memPart)} }

func (m *memMeta) clone(w *world) *memMeta {
	c := newMemMeta(w)
	for name, p := range m.parts {
		c.parts[name] = &memPart{keys: slices.Clone(p.keys), m: maps.Clone(p.m)}
	}
	return c
}

func (m *memMeta) Get(_ context.Context, partition string, key, dst []byte) ([]byte, error) {
	if err := m.w.fault(); err != nil {
		return nil, err
	}
	if m.afterGet != nil {
		defer m.afterGet(key)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := m.parts[partition]
	if p == nil {
		return nil, meta.ErrNotFound
	}
	v, ok := p.m[string(key)]
	if !ok {
		return nil, meta.ErrNotFound
	}
	return append(dst, v...), nil
}

func (m *memMeta) Scan(_ context.Context, partition string, start, end []byte, fn func(k, v []byte) (bool, error)) error {
	if err := m.w.fault(); err != nil {
		return err
	}
	type pair struct{ k, v []byte }
	var pairs []pair
	m.mu.RLock()
	if p := m.parts[partition]; p != nil {
		i, _ := slices.BinarySearch(p.keys, string(start))
		for _, k := range p.keys[i:] {
			if end != nil && k >= string(end) {
				break
			}
			pairs = append(pairs, pair{[]byte(k), p.m[k]})
		}
	}
	m.mu.RUnlock()
	for _, p := range pairs {
		v := bytes.Clone(p.v)
		more, err := fn(p.k, v)
		for i := range v { // valid only during the call
			v[i] = 0xee
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (m *memMeta) Apply(_ context.Context, partition string, b *meta.Batch) error {
	if m.beforeApply != nil {
		m.beforeApply(b)
	}
	err := m.w.fault()
	if err != nil && !m.w.after {
		return err
	}
	m.w.mu.RLock()
	defer m.w.mu.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[partition]
	if p == nil {
		p = &memPart{m: make(map[string][]byte)}
	}
	for _, c := range b.Conds {
		v, ok := p.m[string(c.Key)]
		if c.Absent && ok || !c.Absent && (!ok || !bytes.Equal(v, c.Value)) {
			return errors.Join(meta.ErrConflict, err)
		}
	}
	for _, op := range b.Ops {
		k := string(op.Key)
		i, ok := slices.BinarySearch(p.keys, k)
		switch {
		case op.Delete && ok:
			p.keys = slices.Delete(p.keys, i, i+1)
			delete(p.m, k)
		case !op.Delete:
			if !ok {
				p.keys = slices.Insert(p.keys, i, k)
			}
			p.m[k] = bytes.Clone(op.Value)
		}
	}
	if m.parts[partition] = p; len(p.keys) == 0 {
		delete(m.parts, partition)
	}
	return err
}

func (m *memMeta) Partitions(context.Context) ([]string, error) {
	if err := m.w.fault(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.parts)), nil
}

func (m *memMeta) Close() error { return nil }

// poison is what freed space holds.
var poison = bytes.Repeat([]byte{0xdb}, blob.Align)

// memBlob is a blob.Store in memory, of one volume. What is not sealed may be
// lost in a crash, page by page; what is freed is overwritten at once; every
// use of space that is not reserved is noted in world.misuse.
type memBlob struct {
	w        *world
	mu       sync.Mutex
	data     []byte
	durable  []byte
	taken    []bool          // per page
	exts     map[int64]int64 // reserved: offset to length
	longest  int64           // the longest extent that Reserve gives; 0: no limit
	next     int             // where Reserve looks first
	restored chan struct{}
	onRead   func() error
}

//go:norace
func newMemBlob(w *world, size int64) *memBlob {
	return &memBlob{w: w, data: make([]byte, size), durable: make([]byte, size), taken: make([]bool, size/blob.Align),
		exts: make(map[int64]int64), restored: make(chan struct{})}
}

// clone is what a crash leaves: sealed bytes, and of the others some.
//
//go:norace
func (b *memBlob) clone(w *world, r *rand.Rand) *memBlob {
	c := newMemBlob(w, int64(len(b.data)))
	for off := 0; off < len(b.data); off += blob.Align {
		from := b.durable
		if r.IntN(2) == 0 {
			from = b.data
		}
		copy(c.data[off:off+blob.Align], from[off:])
	}
	copy(c.durable, c.data)
	c.longest = b.longest
	return c
}

func (b *memBlob) Reserve(ctx context.Context, size int64) ([]blob.Extent, error) {
	select {
	case <-b.restored:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := b.w.fault(); err != nil {
		return nil, err
	}
	b.w.mu.RLock()
	defer b.w.mu.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken int64
	for _, n := range b.exts {
		taken += blob.Roundup(n)
	}
	if int64(len(b.data))-taken < blob.Roundup(size) {
		return nil, blob.ErrNoSpace
	}
	var out []blob.Extent
	for i := b.next; size > 0; i++ {
		if i %= len(b.taken); b.taken[i] {
			continue
		}
		e := blob.Extent{Offset: int64(i) * blob.Align}
		for i < len(b.taken) && !b.taken[i] && size > 0 && (b.longest == 0 || e.Len < b.longest) {
			n := min(size, blob.Align)
			b.taken[i] = true
			e.Len, size = e.Len+n, size-n
			i++
		}
		b.exts[e.Offset] = e.Len
		b.next = i
		out = append(out, e)
		i--
	}
	return out, nil
}

func (b *memBlob) check(e blob.Extent, off, n int64) error {
	if b.exts[e.Offset] != e.Len || e.Volume != 0 {
		return b.w.blame("use of extent %+v, which is not reserved", e)
	}
	if off < 0 || off+n > e.Len {
		return b.w.blame("[%d,%d) of %+v: %w", off, off+n, e, blob.ErrRange)
	}
	return nil
}

func (b *memBlob) WriteAt(_ context.Context, e blob.Extent, p []byte, off int64) error {
	if err := b.w.fault(); err != nil {
		return err
	}
	b.w.mu.RLock()
	defer b.w.mu.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check(e, off, int64(len(p))); err != nil {
		return err
	}
	copy(b.data[e.Offset+off:], p)
	return nil
}

func (b *memBlob) Seal(_ context.Context, exts []blob.Extent) error {
	if err := b.w.fault(); err != nil {
		return err
	}
	b.w.mu.RLock()
	defer b.w.mu.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range exts {
		if err := b.check(e, 0, e.Len); err != nil {
			return err
		}
		copy(b.durable[e.Offset:e.Offset+e.Len], b.data[e.Offset:])
	}
	return nil
}

func (b *memBlob) ReadAt(_ context.Context, e blob.Extent, p []byte, off int64, _ bool) error {
	if err := b.w.fault(); err != nil {
		return err
	}
	if b.onRead != nil {
		if err := b.onRead(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRestored() { // before that nobody knows what is live
		if err := b.check(e, off, int64(len(p))); err != nil {
			return err
		}
	}
	copy(p, b.data[e.Offset+off:])
	return nil
}

func (b *memBlob) Free(_ context.Context, exts []blob.Extent) error {
	if err := b.w.fault(); err != nil {
		return err
	}
	b.w.mu.RLock()
	defer b.w.mu.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range exts {
		if err := b.check(e, 0, e.Len); err != nil {
			return err
		}
		delete(b.exts, e.Offset)
		for off := e.Offset; off < e.Offset+blob.Roundup(e.Len); off += blob.Align {
			b.taken[off/blob.Align] = false
			copy(b.data[off:off+blob.Align], poison)
			copy(b.durable[off:off+blob.Align], poison)
		}
	}
	return nil
}

func (b *memBlob) isRestored() bool {
	select {
	case <-b.restored:
		return true
	default:
		return false
	}
}

func (b *memBlob) Restore(_ context.Context, live func(func(blob.Extent) error) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := live(func(e blob.Extent) error {
		if e.Volume != 0 || e.Offset%blob.Align != 0 || e.Offset+blob.Roundup(e.Len) > int64(len(b.data)) {
			return b.w.blame("restore: %+v: %w", e, blob.ErrRange)
		}
		b.exts[e.Offset] = e.Len
		for i := e.Offset / blob.Align; i < (e.Offset+blob.Roundup(e.Len))/blob.Align; i++ {
			if b.taken[i] {
				return b.w.blame("restore: %+v overlaps", e)
			}
			b.taken[i] = true
		}
		return nil
	})
	if err == nil {
		close(b.restored)
	}
	return err
}

func (b *memBlob) Stats() blob.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := blob.Stats{Capacity: int64(len(b.data)), Volumes: 1}
	for _, n := range b.exts {
		st.Reserved += blob.Roundup(n)
	}
	return st
}

func (b *memBlob) Close() error { return nil }
