package deliver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
)

// pattern is the content of a chunk: a function of its key and the offset
// alone, so that what is expected needs no store.
func pattern(key uint64, off int64) byte {
	x := key ^ uint64(off)
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	return byte(x * 0xbf58476d1ce4e5b9 >> 40)
}

// contents keeps what content made: the same chunks serve many deliveries.
var contents sync.Map

func content(key string, size int64) []byte {
	type id struct {
		key  string
		size int64
	}
	if b, ok := contents.Load(id{key, size}); ok {
		return b.([]byte)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, key) // a hash does not fail
	k := h.Sum64()
	b := make([]byte, size)
	for i := range b {
		b[i] = pattern(k, int64(i))
	}
	contents.Store(id{key, size}, b)
	return b
}

// expected is the payload by the wire's definition, from patterns alone.
func expected(d *descriptor.Descriptor, n int, mode descriptor.Mode) []byte {
	s, l := d.PerLayerChunkBytes, int64(d.NumLayers)
	chunks := make([][]byte, n)
	for j := range chunks {
		chunks[j] = content(d.ChunkKeys[j], s*l)
	}
	out := make([]byte, 0, int64(n)*int64(d.LayerCount)*s)
	slice := func(layer, j int) {
		if d.Layout == descriptor.TwoLTD {
			k := int64(layer) * s / 2
			v := l*s/2 + k
			out = append(out, chunks[j][k:k+s/2]...)
			out = append(out, chunks[j][v:v+s/2]...)
			return
		}
		out = append(out, chunks[j][int64(layer)*s:int64(layer+1)*s]...)
	}
	first, end := d.FirstLayer, d.FirstLayer+d.LayerCount
	if mode == descriptor.Chunk {
		for j := range n {
			for layer := first; layer < end; layer++ {
				slice(layer, j)
			}
		}
		return out
	}
	for layer := first; layer < end; layer++ {
		for j := range n {
			slice(layer, j)
		}
	}
	return out
}

// fakeStore holds chunks in memory and counts what is done to them. What
// deliver has no business to call is nil and panics.
type fakeStore struct {
	storage.Store
	chunks  map[string][]byte
	corrupt map[string]int64 // key: bad block
	openErr error
	into    bool // its objects read into foreign memory themselves

	pins   atomic.Int64 // objects open
	opens  atomic.Int64 // calls of OpenMany
	reads  atomic.Int64
	blocks atomic.Int64 // blocks verified
	failAt int64        // the read that fails, counted from 1; 0: none
	onRead func(n int64, hint storage.ReadHint)
}

var errFault = errors.New("injected fault")

func newFake(d *descriptor.Descriptor) *fakeStore {
	f := &fakeStore{chunks: map[string][]byte{}}
	for _, k := range d.ChunkKeys {
		f.chunks[k] = content(k, d.ChunkBytes())
	}
	return f
}

func (f *fakeStore) OpenMany(_ context.Context, bucket string, keys []string) ([]storage.Object, error) {
	f.opens.Add(1)
	if bucket != "b" {
		return nil, storage.ErrNoSuchBucket
	}
	if f.openErr != nil {
		return nil, f.openErr
	}
	var objs []storage.Object
	for _, k := range keys {
		b, ok := f.chunks[k]
		if !ok {
			return objs, fmt.Errorf("%w: %q", storage.ErrNoSuchKey, k)
		}
		f.pins.Add(1)
		o := &fakeObject{f: f, key: k, b: b}
		if f.into {
			objs = append(objs, intoObject{o})
		} else {
			objs = append(objs, o)
		}
	}
	return objs, nil
}

type fakeObject struct {
	f      *fakeStore
	key    string
	b      []byte
	closed bool
}

func (o *fakeObject) Size() int64 { return int64(len(o.b)) }
func (o *fakeObject) Info() (storage.ObjectInfo, error) {
	return storage.ObjectInfo{}, errors.New("not used")
}

func (o *fakeObject) ReadAt(ctx context.Context, p []byte, off int64, hint storage.ReadHint) error {
	n := o.f.reads.Add(1)
	if o.f.onRead != nil {
		o.f.onRead(n, hint)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	clear(p) // undefined until the read succeeds
	if o.closed || off < 0 || off+int64(len(p)) > int64(len(o.b)) || len(p) == 0 {
		return storage.ErrInvalidRange
	}
	if n == o.f.failAt {
		return errFault
	}
	first, last := off/storage.BlockSize, (off+int64(len(p))-1)/storage.BlockSize
	o.f.blocks.Add(last - first + 1)
	if bad, ok := o.f.corrupt[o.key]; ok && first <= bad && bad <= last {
		return &storage.CorruptError{Key: o.key, Block: bad}
	}
	copy(p, o.b[off:])
	return nil
}

// intoObject has the ability of the embedded store's objects.
type intoObject struct{ *fakeObject }

func (o intoObject) ReadInto(ctx context.Context, dst [][]byte, off int64, hint storage.ReadHint) error {
	for _, p := range dst {
		if err := o.ReadAt(ctx, p, off, hint); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

func (o *fakeObject) Close() error {
	if !o.closed {
		o.closed = true
		o.f.pins.Add(-1)
	}
	return nil
}

// idle fails the test if anything is still held.
func idle(t testing.TB, d *Deliverer, f *fakeStore) {
	t.Helper()
	d.held.mu.Lock()
	defer d.held.mu.Unlock()
	if d.held.all.deliveries != 0 || d.held.all.open != 0 || d.held.window != 0 || f.pins.Load() != 0 {
		t.Errorf("still held: %d deliveries, %d chunks, %d window bytes, %d pins",
			d.held.all.deliveries, d.held.all.open, d.held.window, f.pins.Load())
	}
}

// desc makes a validated descriptor of n chunks.
func desc(t testing.TB, n, l int, s int64, change ...func(*descriptor.Descriptor)) *descriptor.Descriptor {
	t.Helper()
	d := &descriptor.Descriptor{NumLayers: l, PerLayerChunkBytes: s}
	for i := range n {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(i)*0x9e3779b97f4a7c15)
		d.ChunkKeys = append(d.ChunkKeys, fmt.Sprintf("%x", b))
	}
	for _, c := range change {
		c(d)
	}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

func twoLTD(d *descriptor.Descriptor)  { d.Layout = descriptor.TwoLTD }
func inChunk(d *descriptor.Descriptor) { d.Delivery = descriptor.Chunk }
func trunc(d *descriptor.Descriptor)   { d.OnMissing = descriptor.Truncate }
func window(first, count int) func(*descriptor.Descriptor) {
	return func(d *descriptor.Descriptor) { d.FirstLayer, d.LayerCount = first, count }
}
