package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strconv"

	"github.com/objcached/objcached/descriptor"
)

// GetRequest asks for the layers of a prefix. Keys, NumLayers and
// PerLayerChunkBytes are needed; the zero value of everything else is the default.
type GetRequest struct {
	Keys               []string // chunk keys in prefix order, N of them
	NumLayers          int      // L, of a chunk
	PerLayerChunkBytes int64    // S, bytes
	ChunkTokens        int      // G, informative
	// Layout is how the chunks are stored; default L2TD. With TwoLTD a layer
	// is delivered as each chunk's K half, then its V half, and S must be even.
	Layout descriptor.Layout
	// Delivery is Auto (default: the server decides), Layer or Chunk. The
	// caller sees layers in any case; with Chunk the first comes with the last byte.
	Delivery   descriptor.Mode
	FirstLayer int
	LayerCount int // default: from FirstLayer to the last
	// OnMissing is Fail (default: a missing chunk is an Error with Code
	// NoSuchKey, Key and Matched) or Truncate (the longest prefix that exists).
	OnMissing descriptor.OnMissing
	// LayerComputeMicros is c_i, the time one layer computes; 0: not given.
	LayerComputeMicros float64

	// Into, if set, receives the whole payload and is what the layers' Data
	// points into: layer l (counted from FirstLayer) at l*n*S, n being
	// Layers.Matched(). It must hold N*LayerCount*S bytes, is written to
	// until All ends or Close returns, and is the caller's again afterwards.
	Into []byte
}

// window is the number of layers asked for.
func (r *GetRequest) window() int {
	if r.LayerCount == 0 {
		return r.NumLayers - r.FirstLayer
	}
	return r.LayerCount
}

// validate catches what no store needs to be asked about.
func (r *GetRequest) validate() error {
	switch {
	case len(r.Keys) == 0:
		return invalid("chunk_keys", "is empty")
	case r.NumLayers <= 0:
		return invalid("num_layers", "is %d", r.NumLayers)
	case r.PerLayerChunkBytes <= 0:
		return invalid("per_layer_chunk_bytes", "is %d", r.PerLayerChunkBytes)
	case r.ChunkTokens < 0:
		return invalid("chunk_tokens", "is %d", r.ChunkTokens)
	case r.FirstLayer < 0 || r.FirstLayer >= r.NumLayers:
		return invalid("first_layer", "%d of %d layers", r.FirstLayer, r.NumLayers)
	case r.LayerCount < 0 || r.LayerCount > r.NumLayers-r.FirstLayer:
		return invalid("layer_count", "%d from layer %d of %d", r.LayerCount, r.FirstLayer, r.NumLayers)
	case r.Layout != "" && r.Layout != descriptor.L2TD && r.Layout != descriptor.TwoLTD:
		return invalid("layout", "%q is unknown", r.Layout)
	case r.Layout == descriptor.TwoLTD && r.PerLayerChunkBytes%2 != 0:
		return invalid("layout", "%q needs an even per_layer_chunk_bytes, not %d", r.Layout, r.PerLayerChunkBytes)
	case r.Delivery != "" && r.Delivery != descriptor.Auto && r.Delivery != descriptor.Layer && r.Delivery != descriptor.Chunk:
		return invalid("delivery", "%q is unknown", r.Delivery)
	case r.OnMissing != "" && r.OnMissing != descriptor.Fail && r.OnMissing != descriptor.Truncate:
		return invalid("on_missing", "%q is unknown", r.OnMissing)
	case r.LayerComputeMicros < 0 || math.IsNaN(r.LayerComputeMicros) || math.IsInf(r.LayerComputeMicros, 0):
		return invalid("layer_compute_us", "is %v", r.LayerComputeMicros)
	}
	if int64(r.NumLayers) > math.MaxInt64/r.PerLayerChunkBytes/int64(len(r.Keys)) {
		return invalid("per_layer_chunk_bytes", "N*L*S overflows")
	}
	if want := int64(len(r.Keys)) * int64(r.window()) * r.PerLayerChunkBytes; r.Into != nil && int64(len(r.Into)) < want {
		return invalid("Into", "holds %d bytes, the payload may have %d", len(r.Into), want)
	}
	return nil
}

// wireDescriptor is the descriptor on the wire.
type wireDescriptor struct {
	Keys               []string             `json:"chunk_keys"`
	NumLayers          int                  `json:"num_layers"`
	ChunkTokens        int                  `json:"chunk_tokens,omitempty"`
	PerLayerChunkBytes int64                `json:"per_layer_chunk_bytes"`
	Layout             descriptor.Layout    `json:"layout,omitempty"`
	Delivery           descriptor.Mode      `json:"delivery,omitempty"`
	FirstLayer         int                  `json:"first_layer,omitempty"`
	LayerCount         int                  `json:"layer_count,omitempty"`
	OnMissing          descriptor.OnMissing `json:"on_missing,omitempty"`
	LayerComputeMicros float64              `json:"layer_compute_us,omitempty"`
}

func (r *GetRequest) encode() ([]byte, error) {
	return json.Marshal(wireDescriptor{
		Keys: r.Keys, NumLayers: r.NumLayers, ChunkTokens: r.ChunkTokens, PerLayerChunkBytes: r.PerLayerChunkBytes,
		Layout: r.Layout, Delivery: r.Delivery, FirstLayer: r.FirstLayer, LayerCount: r.LayerCount,
		OnMissing: r.OnMissing, LayerComputeMicros: r.LayerComputeMicros,
	})
}

// Layer is one layer of every chunk of the prefix.
type Layer struct {
	Index int // the model's layer, from 0: FirstLayer is the first to come
	// Data is n*S bytes: chunk j's slice at j*S. It points into Into if that
	// was given, else it is valid until the next step of the iteration only.
	Data  []byte
	slice int64
}

// Chunk is chunk j's slice of the layer, S bytes of Data.
func (l Layer) Chunk(j int) []byte {
	lo := int64(j) * l.slice
	return l.Data[lo : lo+l.slice : lo+l.slice]
}

// Layers is an answer under way. It is for one goroutine. Iterate All, or
// call Close: until then it holds a connection.
type Layers struct {
	req     *GetRequest
	matched int
	mode    descriptor.Mode
	native  bool
	src     source
	ready   int
	done    bool
}

// source gives layers 0, 1, ... of the window, in order, once each. The bytes
// it returns stay valid until the next call.
type source interface {
	layer(l int) ([]byte, error)
	close()
}

// Matched is the number of chunks that are delivered: N, or fewer with Truncate.
func (l *Layers) Matched() int { return l.matched }

// Mode is how the store delivers: descriptor.Layer or descriptor.Chunk.
func (l *Layers) Mode() descriptor.Mode { return l.mode }

// Native reports whether the store answered the KV request itself; false
// means ranged GETs.
func (l *Layers) Native() bool { return l.native }

// Close ends the answer early. It may be called at any time, and again.
func (l *Layers) Close() {
	if !l.done {
		l.done = true
		l.src.close()
	}
}

// All yields the layers in order, each as soon as it is whole. After an error
// it ends; the error is an *Error whose LayersReady says how many layers came
// before, and wraps io.ErrUnexpectedEOF if the store broke off. All can be
// used once; when it ends, in whatever way, the answer is closed. With no
// chunk matched it yields nothing.
func (l *Layers) All() iter.Seq2[Layer, error] {
	return func(yield func(Layer, error) bool) {
		defer l.Close()
		for !l.done && l.matched > 0 && l.ready < l.req.window() {
			data, err := l.src.layer(l.ready)
			if err != nil {
				yield(Layer{}, l.fail(err))
				return
			}
			ly := Layer{Index: l.req.FirstLayer + l.ready, Data: data, slice: l.req.PerLayerChunkBytes}
			l.ready++
			if !yield(ly, nil) {
				return
			}
		}
	}
}

func (l *Layers) fail(err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		e = &Error{Code: "ShortBody", Matched: -1, Err: io.ErrUnexpectedEOF}
	default:
		e = networkError(err)
	}
	e.LayersReady = l.ready
	return e
}

// GetLayers asks for a prefix and returns when the store has found its chunks
// and is about to send layer 0. When ctx ends, the delivery breaks off.
func (c *Client) GetLayers(ctx context.Context, req GetRequest) (*Layers, error) {
	if err := req.validate(); err != nil {
		return nil, err
	}
	is, err := c.isNative(ctx, req.Keys[0], false)
	if err != nil {
		return nil, err
	}
	if is {
		ls, err := c.kvGet(ctx, &req)
		if !errors.Is(err, errNotKV) {
			return ls, err
		}
		// As in Match: is the answer about this request, or has the store changed?
		if is, probeErr := c.isNative(ctx, req.Keys[0], true); is || probeErr != nil {
			return nil, err
		}
	}
	return c.plainGet(ctx, &req)
}

// kvGet sends the request. Errors that a store without kv-get might answer
// wrap errNotKV.
func (c *Client) kvGet(ctx context.Context, req *GetRequest) (*Layers, error) {
	body, err := req.encode()
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, call{
		method: http.MethodPost, query: "kv-get", body: body,
		header: map[string]string{"Content-Type": "application/json"},
	})
	if err != nil {
		return nil, foreign(err)
	}
	n, err := checkAnswer(resp, req)
	if err != nil {
		_ = resp.Body.Close() // an object may follow: not worth reading to its end
		return nil, err
	}
	ls := &Layers{req: req, matched: n, mode: descriptor.Mode(resp.Header.Get("X-Kv-Mode")), native: true}
	if ls.mode == descriptor.Chunk {
		ls.src = &chunkSource{c: c, body: resp.Body, req: req, n: int64(n)}
	} else {
		ls.src = &layerSource{c: c, body: resp.Body, req: req, size: int64(n) * req.PerLayerChunkBytes}
	}
	if n == 0 {
		ls.Close()
	}
	return ls, nil
}

// checkAnswer checks what a 200 says about its body and returns n.
func checkAnswer(resp *http.Response, req *GetRequest) (int, error) {
	bad := func(format string, args ...any) error {
		return &Error{
			Code: "InvalidResponse", Message: fmt.Sprintf(format, args...), StatusCode: resp.StatusCode,
			RequestID: resp.Header.Get("X-Amz-Request-Id"), Matched: -1,
		}
	}
	mode := resp.Header.Get("X-Kv-Mode")
	if mode == "" {
		return 0, &Error{Code: "NotImplemented", StatusCode: resp.StatusCode, Message: "the answer is not one of kv-get", Matched: -1, Err: errNotKV}
	}
	if m := descriptor.Mode(mode); m != descriptor.Layer && m != descriptor.Chunk {
		return 0, bad("x-kv-mode is %q", mode)
	}
	n, err := strconv.Atoi(resp.Header.Get("X-Kv-Matched"))
	if err != nil || n < 0 || n > len(req.Keys) || (n < len(req.Keys) && req.OnMissing != descriptor.Truncate) {
		return 0, bad("x-kv-matched is %q for %d keys", resp.Header.Get("X-Kv-Matched"), len(req.Keys))
	}
	if want := int64(n) * int64(req.window()) * req.PerLayerChunkBytes; resp.ContentLength >= 0 && resp.ContentLength != want {
		return 0, bad("Content-Length is %d, must be %d", resp.ContentLength, want)
	}
	return n, nil
}

// layerSource reads a layer-major body: each layer in reads as large as it is.
type layerSource struct {
	c    *Client
	body io.ReadCloser
	req  *GetRequest
	size int64 // of a layer
	buf  []byte
}

func (s *layerSource) layer(l int) ([]byte, error) {
	var p []byte
	if s.req.Into != nil {
		p = s.req.Into[int64(l)*s.size:][:s.size:s.size]
	} else {
		if s.buf == nil {
			s.buf = s.c.buffer(s.size)
		}
		p = s.buf
	}
	_, err := io.ReadFull(s.body, p)
	return p, err
}

func (s *layerSource) close() {
	_ = s.body.Close() // after the last byte this hands the connection back, before it ends it
	s.c.release(s.buf)
	s.buf = nil
}

// chunkSource reads a chunk-major body (for each chunk its S bytes of each
// layer of the window) to the places the layers have in the payload. No layer
// is whole before the last chunk has come, so all are read at once.
type chunkSource struct {
	c    *Client
	body io.ReadCloser
	req  *GetRequest
	n    int64
	all  []byte
	own  []byte // to release
}

func (s *chunkSource) layer(l int) ([]byte, error) {
	size := s.n * s.req.PerLayerChunkBytes
	if s.all == nil {
		if err := s.read(); err != nil {
			return nil, err
		}
	}
	return s.all[int64(l)*size:][:size:size], nil
}

func (s *chunkSource) read() error {
	slice, layers := s.req.PerLayerChunkBytes, int64(s.req.window())
	all := s.req.Into
	if all == nil {
		s.own = s.c.buffer(s.n * layers * slice)
		all = s.own
	}
	for j := range s.n {
		for l := range layers {
			if _, err := io.ReadFull(s.body, all[(l*s.n+j)*slice:][:slice]); err != nil {
				return err
			}
		}
	}
	s.all = all
	return nil
}

func (s *chunkSource) close() {
	_ = s.body.Close()
	s.c.release(s.own)
	s.own = nil
}
