package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/objcached/objcached/transport/fabric"
)

// Fabric says by which device the client's memory is reached.
type Fabric struct {
	Provider   string // of libfabric; empty: none
	Node       string // address of the device, on both sides
	WriteBytes int    // of the limit's writes; default 1 MiB
}

// fabricOrder is what a bare server is asked to write.
type fabricOrder struct {
	Fabric  Fabric
	Address fabric.Address
	Bytes   int64 // of the payload, from its start
	CRC     bool
}

// fabricLimit is the limit of delivery over libfabric: another process reads the
// chunk file into registered memory and writes that into memory of this one.
type fabricLimit struct {
	cfg Fabric
	url string
	g   Geometry
	mem *fabric.Memory
}

func (l *fabricLimit) config() fabric.Config {
	return fabric.Config{Provider: l.cfg.Provider, Node: l.cfg.Node, WriteBytes: l.cfg.WriteBytes}
}

// newFabricLimit makes the memory.
func newFabricLimit(cfg Fabric, url string, g Geometry) (*fabricLimit, error) {
	cfg.WriteBytes = cmp.Or(cfg.WriteBytes, 1<<20)
	l := &fabricLimit{cfg: cfg, url: url, g: g}
	var err error
	l.mem, err = fabric.NewMemory(l.config(), g.Payload())
	return l, err
}

func (l *fabricLimit) Close() error { return l.mem.Close(10 * time.Second) }

// fabricAnswer is what it took, without opening the device.
type fabricAnswer struct{ Took, CPU time.Duration }

// write has n bytes written.
func (l *fabricLimit) write(ctx context.Context, n int64, crc bool) (a fabricAnswer, err error) {
	body, err := json.Marshal(fabricOrder{l.cfg, l.mem.Address(), n, crc})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/?fabric", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("the bare server answers %s: %s", resp.Status, answer)
	}
	if err = json.Unmarshal(answer, &a); err == nil && a.Took <= 0 {
		err = errors.New("the bare server says that it took no time")
	}
	return a, err
}

// run is the first layer by itself, and then all of them.
func (l *fabricLimit) run(ctx context.Context, crc bool) (s Sample, err error) {
	a, err := l.write(ctx, int64(l.g.Chunks)*l.g.Slice, crc)
	if err != nil {
		return s, err
	}
	s.Layer0 = a.Took
	cpu := startCPU(0)
	a, err = l.write(ctx, l.g.Payload(), crc)
	s.Total, s.Server = a.Took, a.CPU
	s.Client, _ = cpu.stop()
	return s, err
}

// serveFabric answers POST /?fabric.
func (h *BareHandler) serveFabric(w http.ResponseWriter, r *http.Request) {
	var o fabricOrder
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<12)).Decode(&o); err != nil || o.Bytes <= 0 || o.Bytes > h.file.g.Payload() {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	cfg := fabric.Config{Provider: o.Fabric.Provider, Node: o.Fabric.Node, WriteBytes: o.Fabric.WriteBytes}
	var cpu cpuMeter
	started := false
	took, err := fabric.Limit(cfg, o.Address, o.Bytes, int(h.file.g.Slice), func(p []byte, off int64) error {
		if !started {
			started, cpu = true, startCPU(0)
		}
		return h.file.payload(p, off, o.CRC)
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	spent, _ := cpu.stop()
	_ = json.NewEncoder(w).Encode(fabricAnswer{took, spent}) // who asked may have left
}

// partial keeps a sum that is compared with nothing from being left out.
var partial atomic.Uint32

// payload reads the bytes at off of the layer-major payload, slice by slice.
func (b *bareFile) payload(p []byte, off int64, crc bool) error {
	for len(p) > 0 {
		i, in := off/b.g.Slice, off%b.g.Slice
		q := p[:min(int64(len(p)), b.g.Slice-in)]
		chunk, layer := int(i%int64(b.g.Chunks)), int(i/int64(b.g.Chunks))
		switch {
		case crc && int64(len(q)) == b.g.Slice:
			if err := b.read(q, chunk, layer); err != nil {
				return err
			}
		default:
			if _, err := b.f.ReadAt(q, b.g.offset(chunk, layer)+in); err != nil {
				return err
			}
			if crc { // part of a slice: the work, without what it should come to
				partial.Store(crc32.Checksum(q, castagnoli))
			}
		}
		p, off = p[len(q):], off+int64(len(q))
	}
	return nil
}

// The keys of the rows of delivery over libfabric.
const (
	limitFabricBare = "limit-fabric-read"
	limitFabric     = "limit-fabric"
)

// limitThings are the limits of what the store writes to memory: of as many
// threads into shared memory, or of one over a fabric. The last one is what
// rows are compared with.
func (d *bed) limitThings() []thing {
	if d.fabric == nil {
		return []thing{d.threadsThing()}
	}
	row := func(key, name string, crc bool) thing {
		return thing{key: key, name: name, pid: d.server.PID, mem: d.fabric.mem.Bytes()[:d.b.Payload()],
			run: func(ctx context.Context, _ []byte) (Sample, error) { return d.fabric.run(ctx, crc) }}
	}
	p := d.b.Fabric.Provider
	return []thing{
		row(limitFabricBare, "bare loop over "+p+": pread, fi_writedata", false),
		row(limitFabric, "bare limit over "+p+": pread + CRC32C, fi_writedata", true),
	}
}

// overFabric puts the limit of a fabric in place of those in memory.
func (d *bed) overFabric(things []thing) []thing {
	if d.fabric == nil {
		return things
	}
	inMemory := []string{limitStaged, limitChunks, limitSlices}
	out := d.limitThings()
	for _, t := range things {
		if slices.Contains(inMemory, t.key) {
			continue
		}
		if slices.Contains(inMemory, t.limit) {
			t.limit = limitFabric
		}
		out = append(out, t)
	}
	return out
}
