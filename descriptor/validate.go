package descriptor

import (
	"fmt"
	"math"
	"math/bits"
	"unicode/utf8"
)

// noLimits is for the sending side, which does not know the server's.
var noLimits = Limits{Chunks: maxCount, Layers: maxCount, SliceBytes: math.MaxInt64, BodyBytes: math.MaxInt64}

// Validate checks d as a server without limits would, and replaces the zero
// values of optional fields by their defaults. Its errors are *FieldError.
// Parse has done both already.
func (d *Descriptor) Validate() error { return d.complete(noLimits) }

// complete checks d against itself and lim and fills in the defaults.
func (d *Descriptor) complete(lim Limits) error {
	if err := checkKeys(d.ChunkKeys, lim); err != nil {
		return err
	}
	bad := func(field, format string, args ...any) error {
		return &FieldError{field, fmt.Sprintf(format, args...)}
	}
	switch {
	case d.NumLayers <= 0:
		return bad("num_layers", "must be positive, not %d", d.NumLayers)
	case d.NumLayers > lim.Layers:
		return bad("num_layers", "over the limit of %d layers", lim.Layers)
	case d.PerLayerChunkBytes <= 0:
		return bad("per_layer_chunk_bytes", "must be positive, not %d", d.PerLayerChunkBytes)
	case d.PerLayerChunkBytes > lim.SliceBytes:
		return bad("per_layer_chunk_bytes", "over the limit of %d bytes", lim.SliceBytes)
	case d.ChunkTokens < 0:
		return bad("chunk_tokens", "must be positive, not %d", d.ChunkTokens)
	case !fits(len(d.ChunkKeys), d.NumLayers, d.PerLayerChunkBytes):
		return bad("per_layer_chunk_bytes", "chunk_keys * num_layers * per_layer_chunk_bytes overflows")
	case d.FirstLayer < 0 || d.FirstLayer >= d.NumLayers:
		return bad("first_layer", "%d is not below num_layers, %d", d.FirstLayer, d.NumLayers)
	case d.LayerCount < 0:
		return bad("layer_count", "must be positive, not %d", d.LayerCount)
	case d.LayerCount > d.NumLayers-d.FirstLayer:
		return bad("layer_count", "layers [%d,%d) end past num_layers, %d",
			d.FirstLayer, int64(d.FirstLayer)+int64(d.LayerCount), d.NumLayers)
	case d.LayerComputeMicros < 0 || math.IsInf(d.LayerComputeMicros, 0) || math.IsNaN(d.LayerComputeMicros):
		return bad("layer_compute_us", "must be positive, not %v", d.LayerComputeMicros)
	}
	if d.LayerCount == 0 {
		d.LayerCount = d.NumLayers - d.FirstLayer
	}
	switch d.Layout {
	case "":
		d.Layout = L2TD
	case L2TD:
	case TwoLTD:
		if d.PerLayerChunkBytes%2 != 0 {
			return bad("layout", "%s halves each slice, and per_layer_chunk_bytes is odd: %d", TwoLTD, d.PerLayerChunkBytes)
		}
	default:
		return bad("layout", "unknown: %q", clip(string(d.Layout)))
	}
	switch d.Delivery {
	case "":
		d.Delivery = Auto
	case Auto, Layer, Chunk:
	default:
		return bad("delivery", "unknown: %q", clip(string(d.Delivery)))
	}
	switch d.OnMissing {
	case "":
		d.OnMissing = Fail
	case Fail, Truncate:
	default:
		return bad("on_missing", "unknown: %q", clip(string(d.OnMissing)))
	}
	if d.Target != nil {
		return d.Target.complete(d)
	}
	return nil
}

func checkKeys(keys []string, lim Limits) error {
	const name = "chunk_keys"
	switch {
	case len(keys) == 0:
		return &FieldError{name, "empty"}
	case len(keys) > lim.Chunks:
		return &FieldError{name, fmt.Sprintf("over the limit of %d chunks", lim.Chunks)}
	}
	for i, k := range keys {
		if err := checkKey(i, k); err != nil {
			return named(name, err)
		}
		if !utf8.ValidString(k) {
			return &FieldError{name, fmt.Sprintf("key %d is not UTF-8", i)}
		}
	}
	return nil
}

// fits reports whether n*l*s, all positive, is within int64.
func fits(n, l int, s int64) bool {
	hi, nl := bits.Mul64(uint64(n), uint64(l))
	if hi != 0 {
		return false
	}
	hi, nls := bits.Mul64(nl, uint64(s))
	return hi == 0 && nls <= math.MaxInt64
}
