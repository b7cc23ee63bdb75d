package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/objcached/objcached/descriptor"
)

// The fallback gives GetLayers' results from any S3 store. HEADs find the
// prefix, its sizes and ETags first, so that a missing chunk is known before
// the first layer is yielded. Then layers are fetched in groups: of each
// chunk, the group's bytes in one ranged GET where the layout has them side by
// side (l2td), in two where it does not (2ltd). Small groups make the first
// layers early, large ones make few requests; the first group is one layer,
// the others have about groupRange bytes per GET. A window that is small per chunk,
// or that is wanted chunk by chunk, is one group.
const (
	groupRange = 1 << 20   // bytes a GET should have
	smallRange = 256 << 10 // bytes per chunk below which the window is one group
	groupLimit = 64 << 20  // bytes of memory for a group, if the caller gave none
)

// plainSource fetches groups of layers.
type plainSource struct {
	c     *Client
	ctx   context.Context
	stop  context.CancelFunc
	req   *GetRequest
	heads []head

	groups []group
	next   int // group to fetch
	cur    group
	mem    []byte // of cur; layer l at (l-cur.first)*n*S
	own    []byte
}

// group is layers [first, first+count) of the window.
type group struct{ first, count int }

func (c *Client) plainGet(ctx context.Context, req *GetRequest) (*Layers, error) {
	heads, err := c.heads(ctx, req.Keys)
	if err != nil {
		return nil, err
	}
	n := len(heads)
	if n < len(req.Keys) && req.OnMissing != descriptor.Truncate {
		return nil, &Error{Code: "NoSuchKey", Key: req.Keys[n], StatusCode: http.StatusNotFound, Matched: n}
	}
	want := int64(req.NumLayers) * req.PerLayerChunkBytes
	for j, h := range heads {
		if h.size != want {
			e := invalid("chunk_keys", "the chunk has %d bytes, num_layers*per_layer_chunk_bytes is %d", h.size, want)
			e.Key = req.Keys[j]
			return nil, e
		}
	}
	s := &plainSource{c: c, req: req, heads: heads, groups: planGroups(req, n)}
	s.ctx, s.stop = context.WithCancel(ctx)
	ls := &Layers{req: req, matched: n, mode: descriptor.Layer, src: s}
	if len(s.groups) == 1 && req.window() > 1 {
		ls.mode = descriptor.Chunk
	}
	if n == 0 {
		ls.Close()
	}
	return ls, nil
}

// planGroups splits the window.
func planGroups(req *GetRequest, n int) []group {
	layers := req.window()
	piece := req.PerLayerChunkBytes
	if req.Layout == descriptor.TwoLTD {
		piece /= 2
	}
	if req.Delivery == descriptor.Chunk || int64(layers)*req.PerLayerChunkBytes <= smallRange {
		return []group{{0, layers}}
	}
	size := max(1, groupRange/piece)
	if perLayer := int64(n) * req.PerLayerChunkBytes; req.Into == nil && perLayer > 0 {
		size = max(1, min(size, groupLimit/perLayer))
	}
	out := []group{{0, 1}}
	for l := 1; l < layers; l += int(size) {
		out = append(out, group{l, int(min(size, int64(layers-l)))})
	}
	return out
}

// span is a run of a chunk's bytes and where its pieces go.
type span struct {
	off    int64
	pieces []piece
}

func (s *span) size() (n int64) {
	for _, p := range s.pieces {
		n += p.n
	}
	return n
}

// piece is n bytes that belong at dst of the group's memory, for chunk 0;
// chunk j's are j*S further on.
type piece struct{ dst, n int64 }

// planSpans lists what a group needs of each of n chunks, in the order of the
// object's bytes, neighbours joined.
func planSpans(req *GetRequest, n int, g group) []span {
	slice := req.PerLayerChunkBytes
	first := int64(req.FirstLayer + g.first)
	var out []span
	add := func(off, dst, size int64) {
		if k := len(out) - 1; k >= 0 && out[k].off+out[k].size() == off {
			out[k].pieces = append(out[k].pieces, piece{dst, size})
			return
		}
		out = append(out, span{off, []piece{{dst, size}}})
	}
	part, parts := slice, int64(1)
	if req.Layout == descriptor.TwoLTD {
		part, parts = slice/2, 2
	}
	for half := range parts {
		for l := range int64(g.count) {
			add((half*int64(req.NumLayers)+first+l)*part, l*int64(n)*slice+half*part, part)
		}
	}
	return out
}

func (s *plainSource) layer(l int) ([]byte, error) {
	size := int64(len(s.heads)) * s.req.PerLayerChunkBytes
	if l >= s.cur.first+s.cur.count {
		s.cur = s.groups[s.next]
		s.next++
		if err := s.fetch(size); err != nil {
			return nil, err
		}
	}
	return s.mem[int64(l-s.cur.first)*size:][:size:size], nil
}

// fetch reads the current group, Config.Concurrency GETs at a time.
func (s *plainSource) fetch(layerSize int64) error {
	need := int64(s.cur.count) * layerSize
	if s.req.Into != nil {
		s.mem = s.req.Into[int64(s.cur.first)*layerSize:][:need]
	} else {
		if int64(cap(s.own)) < need {
			s.c.release(s.own)
			s.own = s.c.buffer(need)
		}
		s.mem = s.own[:need]
	}
	spans := planSpans(s.req, len(s.heads), s.cur)
	g, ctx := errgroup.WithContext(s.ctx)
	g.SetLimit(s.c.cfg.Concurrency)
	for j := range s.heads {
		for i := range spans {
			if ctx.Err() != nil {
				break
			}
			g.Go(func() error { return s.fetchSpan(ctx, j, &spans[i]) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.ctx.Err()
}

// errRangeIgnored is a store that answers a ranged GET with something else.
var errRangeIgnored = errors.New("the answer is not the range asked for")

// fetchSpan reads one span of chunk j, again if the connection breaks.
func (s *plainSource) fetchSpan(ctx context.Context, j int, sp *span) error {
	for attempt := 0; ; attempt++ {
		err := s.fetchSpanOnce(ctx, j, sp)
		if err == nil {
			return nil
		}
		e := fromMinio(err, s.req.Keys[j])
		if errors.Is(err, io.ErrUnexpectedEOF) {
			e.Code = "ShortBody"
		}
		if !s.c.again(ctx, attempt, e, 0) {
			return e
		}
	}
}

func (s *plainSource) fetchSpanOnce(ctx context.Context, j int, sp *span) error {
	h := s.heads[j]
	size := sp.size()
	var opts minio.GetObjectOptions
	if h.etag != "" {
		// An overwrite since the HEAD is an error, never a mixture.
		if err := opts.SetMatchETag(strings.Trim(h.etag, `"`)); err != nil {
			return err
		}
	}
	ranged := size != h.size
	if ranged {
		if err := opts.SetRange(sp.off, sp.off+size-1); err != nil {
			return err
		}
	}
	body, info, header, err := s.c.core.GetObject(ctx, s.c.cfg.Bucket, s.req.Keys[j], opts)
	if err != nil {
		return err
	}
	defer body.Close() // after the last byte this hands the connection back
	if info.Size != size || (ranged && header.Get("Content-Range") == "") {
		e := networkError(errRangeIgnored)
		e.Code, e.Key, e.StatusCode = "InvalidResponse", s.req.Keys[j], http.StatusOK
		return e
	}
	base := int64(j) * s.req.PerLayerChunkBytes
	for _, p := range sp.pieces {
		if _, err := io.ReadFull(body, s.mem[base+p.dst:][:p.n]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

func (s *plainSource) close() {
	s.stop()
	s.c.release(s.own)
	s.own, s.mem = nil, nil
}
