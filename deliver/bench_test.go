package deliver_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/objcached/objcached/deliver"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/local"
)

// bed is one set of chunks, in the embedded store and in a plain file.
type bed struct {
	d     *descriptor.Descriptor
	store *local.Store
	file  *os.File
	sums  []uint32 // CRC32C by slice of the file
}

const benchBucket = "bench"

func newBed(b *testing.B, n, l int, s int64) *bed {
	b.Helper()
	dir := b.TempDir()
	total := int64(n) * int64(l) * s
	store, err := local.Open(b.Context(), local.Options{Dir: filepath.Join(dir, "store"), Capacity: total + total/2 + 1<<30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	if err := store.CreateBucket(b.Context(), storage.Bucket{Name: benchBucket}); err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "chunks"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	t := &bed{d: &descriptor.Descriptor{NumLayers: l, PerLayerChunkBytes: s}, store: store, file: f}
	r := rand.NewChaCha8([32]byte{7})
	chunk := make([]byte, int64(l)*s)
	for j := range n {
		_, _ = r.Read(chunk) // never fails
		key := fmt.Sprintf("%064x", j)
		t.d.ChunkKeys = append(t.d.ChunkKeys, key)
		if _, err := store.Put(b.Context(), benchBucket, key, bytes.NewReader(chunk), storage.PutOptions{Size: int64(len(chunk))}); err != nil {
			b.Fatal(err)
		}
		if _, err := f.Write(chunk); err != nil {
			b.Fatal(err)
		}
		for k := int64(0); k < int64(len(chunk)); k += s {
			t.sums = append(t.sums, crc32.Checksum(chunk[k:k+s], castagnoli))
		}
	}
	if err := t.d.Validate(); err != nil {
		b.Fatal(err)
	}
	return t
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bare is the limit: the same slices in the same order by pread and CRC into
// one buffer of 256 KiB, written when it is full and at the end of a layer.
func (t *bed) bare(w io.Writer) error {
	s, l, n := int(t.d.PerLayerChunkBytes), t.d.NumLayers, len(t.d.ChunkKeys)
	buf := make([]byte, max(256<<10, s))
	for layer := range l {
		at := 0
		for j := range n {
			if at+s > len(buf) {
				if _, err := w.Write(buf[:at]); err != nil {
					return err
				}
				at = 0
			}
			i := j*l + layer
			if _, err := t.file.ReadAt(buf[at:at+s], int64(i)*int64(s)); err != nil {
				return err
			}
			if crc32.Checksum(buf[at:at+s], castagnoli) != t.sums[i] {
				return storage.ErrBadDigest
			}
			at += s
		}
		if _, err := w.Write(buf[:at]); err != nil {
			return err
		}
	}
	return nil
}

// ours is the product's path without the gateway's signature and parsing.
func (t *bed) ours(dl *deliver.Deliverer, w io.Writer) error {
	y, err := dl.Prepare(context.Background(), benchBucket, t.d)
	if err != nil {
		return err
	}
	defer func() { _ = y.Close() }()
	return y.WriteTo(context.Background(), w)
}

func (t *bed) size() int64 { return int64(len(t.d.ChunkKeys)) * t.d.ChunkBytes() }

// overHTTP measures body as the answer of a minimal handler on loopback.
func (t *bed) overHTTP(b *testing.B, body func(w io.Writer) error) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(t.size(), 10))
		if err := body(w); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{ReadBufferSize: 64 << 10, DisableCompression: true}}
	defer client.CloseIdleConnections()
	buf := make([]byte, 1<<20)
	layer := t.size() / int64(t.d.NumLayers)
	var layer0 time.Duration
	b.SetBytes(t.size())
	for b.Loop() {
		start := time.Now()
		resp, err := client.Get(srv.URL)
		if err != nil {
			b.Fatal(err)
		}
		for got := int64(0); got < t.size(); {
			n, err := resp.Body.Read(buf)
			if got < layer && got+int64(n) >= layer {
				layer0 += time.Since(start)
			}
			got += int64(n)
			if err != nil && got < t.size() {
				b.Fatal(err)
			}
		}
		_ = resp.Body.Close()
	}
	b.ReportMetric(float64(layer0.Microseconds())/1000/float64(b.N), "ms/layer0")
}

// BenchmarkDeliverBody prints our layer-major body beside its limits over the
// same data: pread and CRC into memory, and the same written over loopback.
//
//	go test ./deliver -run - -bench DeliverBody -benchtime 5x -count 3
func BenchmarkDeliverBody(b *testing.B) {
	for _, g := range []struct {
		n, l int
		s    int64
	}{{224, 32, 64 << 10}, {224, 32, 1 << 10}, {56, 32, 100_000}} {
		b.Run(fmt.Sprintf("N=%d/L=%d/S=%d", g.n, g.l, g.s), func(b *testing.B) {
			t := newBed(b, g.n, g.l, g.s)
			dl := deliver.New(t.store, deliver.Config{})
			plain := deliver.New(t.store, deliver.Config{WindowBytes: -1})
			memory := func(body func(w io.Writer) error) func(*testing.B) {
				return func(b *testing.B) {
					b.SetBytes(t.size())
					b.ReportAllocs()
					for b.Loop() {
						if err := body(io.Discard); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			http := func(body func(w io.Writer) error) func(*testing.B) {
				return func(b *testing.B) { t.overHTTP(b, body) }
			}
			ours := func(w io.Writer) error { return t.ours(dl, w) }
			b.Run("memory/bare", memory(t.bare))
			b.Run("memory/ours", memory(ours))
			b.Run("http/bare", http(t.bare))
			b.Run("http/ours", http(ours))
			if g.s%storage.BlockSize != 0 {
				b.Run("http/no-window", http(func(w io.Writer) error { return t.ours(plain, w) }))
			}
		})
	}
}

// BenchmarkStaging compares sizes of the staging buffer.
func BenchmarkStaging(b *testing.B) {
	t := newBed(b, 112, 32, 64<<10)
	for _, size := range []int{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20} {
		dl := deliver.New(t.store, deliver.Config{StagingBytes: size})
		b.Run(fmt.Sprintf("%dK", size>>10), func(b *testing.B) {
			t.overHTTP(b, func(w io.Writer) error { return t.ours(dl, w) })
		})
	}
}
