package bench

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcached/objcached/internal/lowwater"
)

// Geometry is N chunks of L layers of S bytes.
type Geometry struct {
	Chunks int   `json:"chunks"`
	Layers int   `json:"layers"`
	Slice  int64 `json:"slice_bytes"`
}

// ChunkBytes is the size of one chunk, and Payload of all.
func (g Geometry) ChunkBytes() int64 { return int64(g.Layers) * g.Slice }

// Payload is the number of bytes of all chunks.
func (g Geometry) Payload() int64 { return int64(g.Chunks) * g.ChunkBytes() }

func (g Geometry) offset(chunk, layer int) int64 {
	return (int64(chunk)*int64(g.Layers) + int64(layer)) * g.Slice
}

func (g Geometry) validate() error {
	if g.Chunks <= 0 || g.Layers <= 0 || g.Slice <= 0 {
		return fmt.Errorf("chunks, layers and slice must be positive, not %d, %d and %d", g.Chunks, g.Layers, g.Slice)
	}
	if int64(g.Chunks) > 1<<40/int64(g.Layers)/g.Slice {
		return fmt.Errorf("%d chunks of %d layers of %d bytes are more than 1 TiB", g.Chunks, g.Layers, g.Slice)
	}
	return nil
}

// fillChunk writes chunk j of a layerwise run: layer after layer.
func (g Geometry) fillChunk(p []byte, j int) {
	for l := range g.Layers {
		fillSlice(p[int64(l)*g.Slice:][:g.Slice], sliceSeed(uint64(j), l))
	}
}

// writeChunkFile makes the file that the bare loops read: the chunks one after
// the other, each as it is stored.
func writeChunkFile(name string, g Geometry, step func(int64)) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, g.ChunkBytes())
	for j := range g.Chunks {
		g.fillChunk(buf, j)
		if _, err := f.Write(buf); err != nil {
			_ = f.Close() // the first error counts
			return err
		}
		step(1)
	}
	return f.Close()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcBlock is how much one CRC covers, as in the store.
const crcBlock = 64 << 10

// bareFile is the chunk file with the CRCs of its slices: what a store with no
// cost of its own would have.
type bareFile struct {
	g    Geometry
	f    *os.File
	crcs []uint32 // of each block of each slice, slices in file order
	per  int      // blocks per slice
}

func openBareFile(name string, g Geometry) (*bareFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	b := &bareFile{g: g, f: f, per: int((g.Slice + crcBlock - 1) / crcBlock)}
	buf := make([]byte, g.Slice)
	for i := range int64(g.Chunks) * int64(g.Layers) {
		if _, err := f.ReadAt(buf, i*g.Slice); err != nil {
			_ = f.Close() // only read
			return nil, fmt.Errorf("read slice %d of the bare file: %w", i, err)
		}
		for p := buf; len(p) > 0; p = p[min(crcBlock, len(p)):] {
			b.crcs = append(b.crcs, crc32.Checksum(p[:min(crcBlock, len(p))], castagnoli))
		}
	}
	return b, nil
}

// read is the unavoidable work for one slice: pread and CRC.
func (b *bareFile) read(p []byte, chunk, layer int) error {
	if _, err := b.f.ReadAt(p, b.g.offset(chunk, layer)); err != nil {
		return err
	}
	i := (chunk*b.g.Layers + layer) * b.per
	for ; len(p) > 0; i++ {
		n := min(crcBlock, len(p))
		if crc32.Checksum(p[:n], castagnoli) != b.crcs[i] {
			return fmt.Errorf("chunk %d layer %d: CRC mismatch", chunk, layer)
		}
		p = p[n:]
	}
	return nil
}

func (b *bareFile) Close() error { return b.f.Close() }

// memory is the limit in memory: every slice to its place, layer by layer.
func (b *bareFile) memory(_ context.Context, dst []byte) (Sample, error) {
	start := time.Now()
	var s Sample
	at := int64(0)
	for l := range b.g.Layers {
		for j := range b.g.Chunks {
			if err := b.read(dst[at:at+b.g.Slice], j, l); err != nil {
				return s, err
			}
			at += b.g.Slice
		}
		if l == 0 {
			s.Layer0 = time.Since(start)
		}
	}
	s.Total = time.Since(start)
	return s, nil
}

// threads is memory with several threads, which take slices in order.
func (b *bareFile) threads(dst []byte, n int) (Sample, error) {
	var s Sample
	var next, first atomic.Int64
	chunks, total := int64(b.g.Chunks), int64(b.g.Chunks)*int64(b.g.Layers)
	start := time.Now()
	var g errgroup.Group
	for range n {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < total; i = next.Add(1) - 1 {
				if err := b.read(dst[i*b.g.Slice:][:b.g.Slice], int(i%chunks), int(i/chunks)); err != nil {
					return err
				}
				if i < chunks && first.Add(1) == chunks {
					s.Layer0 = time.Since(start)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	s.Total = time.Since(start)
	return s, err
}

// BareHandler answers GET /?write=BYTES with the whole payload layer-major
// (and /?chunk=J with one chunk) from a chunk file, doing per slice what any
// correct store must do (pread, CRC) and nothing else: no authentication, no
// lookup, no check of the request. It writes in pieces of the size asked for.
// Close it after use.
type BareHandler struct {
	file *bareFile
	bufs sync.Pool // *[]byte
}

// NewBareHandler opens the chunk file.
func NewBareHandler(name string, g Geometry) (*BareHandler, error) {
	if err := g.validate(); err != nil {
		return nil, err
	}
	f, err := openBareFile(name, g)
	if err != nil {
		return nil, err
	}
	return &BareHandler{file: f}, nil
}

// Close closes the file.
func (h *BareHandler) Close() error { return h.file.Close() }

// buffer takes a buffer of at least n bytes, to be put back.
func (h *BareHandler) buffer(n int64) *[]byte {
	mem, _ := h.bufs.Get().(*[]byte)
	if mem == nil || int64(cap(*mem)) < n {
		b := make([]byte, n)
		mem = &b
	}
	return mem
}

func (h *BareHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g, q := h.file.g, r.URL.Query()
	if q.Has("fabric") {
		h.serveFabric(w, r)
		return
	}
	if q.Has("chunk") {
		h.serveChunk(w, q.Get("chunk"))
		return
	}
	write, err := strconv.ParseInt(q.Get("write"), 10, 64)
	if err != nil || write < 1 || write > 1<<30 {
		http.Error(w, "write must be a number of bytes", http.StatusBadRequest)
		return
	}
	write = max(write/g.Slice, 1) * g.Slice // whole slices
	mem := h.buffer(write)
	defer h.bufs.Put(mem)
	buf := (*mem)[:write]
	w.Header().Set("Content-Length", strconv.FormatInt(g.Payload(), 10))
	fill := int64(0)
	for l := range g.Layers {
		for j := range g.Chunks {
			if err := h.file.read(buf[fill:fill+g.Slice], j, l); err != nil {
				panic(http.ErrAbortHandler)
			}
			if fill += g.Slice; fill == write {
				if _, err := w.Write(buf); err != nil {
					return // the client has left
				}
				fill = 0
			}
		}
		if l == 0 || l == g.Layers-1 { // layer 0 is not kept back for the next layer's bytes
			if _, err := w.Write(buf[:fill]); err != nil {
				return
			}
			fill = 0
		}
	}
}

// newBareTransport is what the bare loop reads through: as few parts as
// net/http allows, with the client's buffer size. Marked: like the client, it
// sleeps until much of a large read has come.
func newBareTransport(marked bool) *http.Transport {
	dial := new(net.Dialer).DialContext
	if marked {
		dial = lowwater.Dialer(dial)
	}
	return &http.Transport{DialContext: dial, ReadBufferSize: 64 << 10, DisableCompression: true}
}

// bareClient is the reading loop against a BareHandler: the same reads into
// the same memory as the client's, and nothing around them.
type bareClient struct {
	http  *http.Client
	url   string
	g     Geometry
	write int64 // bytes the server writes at a time
}

func (c *bareClient) get(ctx context.Context, dst []byte) (Sample, error) {
	var s Sample
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/?write="+strconv.FormatInt(c.write, 10), nil)
	if err != nil {
		return s, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the bare server answers %s", resp.Status)
	}
	layer := int64(c.g.Chunks) * c.g.Slice
	for l := range int64(c.g.Layers) {
		if _, err := io.ReadFull(resp.Body, dst[l*layer:][:layer]); err != nil {
			return s, fmt.Errorf("bare loop, layer %d: %w", l, err)
		}
		if l == 0 {
			s.Layer0 = time.Since(start)
		}
	}
	s.Total = time.Since(start)
	return s, nil
}

// writeSizes are what the bare server is tried with; the best is its limit.
var writeSizes = []int64{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20}

// bestWrite sets the write size that is fastest here and now.
func (c *bareClient) bestWrite(ctx context.Context, dst []byte, rounds int, step func(int64)) error {
	times := make([][]float64, len(writeSizes))
	for range rounds {
		for i, w := range writeSizes {
			c.write = w
			s, err := c.get(ctx, dst)
			if err != nil {
				return err
			}
			times[i] = append(times[i], s.Total.Seconds())
			step(1)
		}
	}
	best := 0
	for i := range times {
		if median(times[i]) < median(times[best]) {
			best = i
		}
	}
	c.write = writeSizes[best]
	return nil
}
