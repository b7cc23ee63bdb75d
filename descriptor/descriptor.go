// Package descriptor is the wire format of the KV requests: the descriptor of
// a layerwise GET (ObjectCache, Table 1) with its limits and validation, and
// the body of kv-match.
package descriptor

import "fmt"

// Layout says how a chunk's bytes are arranged.
type Layout string

// The layouts.
const (
	L2TD   Layout = "l2td" // layer l at [l*S,(l+1)*S): its K half, then its V half
	TwoLTD Layout = "2ltd" // all K layers, then all V layers: two half slices per layer
)

// Mode says in which order a delivery goes.
type Mode string

// The delivery modes of a descriptor.
const (
	Auto  Mode = "auto"  // the server's threshold rule (§3.4, Eq. 2)
	Layer Mode = "layer" // layer-major
	Chunk Mode = "chunk" // chunk-major
)

// OnMissing says what a missing chunk means.
type OnMissing string

// The choices for a missing chunk.
const (
	Fail     OnMissing = "fail"
	Truncate OnMissing = "truncate"
)

// Descriptor is a parsed and validated layerwise GET. The zero values of the
// optional fields have been replaced by their defaults.
type Descriptor struct {
	ChunkKeys          []string // prefix order, N of them
	NumLayers          int      // L
	ChunkTokens        int      // G, informative
	PerLayerChunkBytes int64    // S
	Layout             Layout
	Delivery           Mode
	FirstLayer         int
	LayerCount         int // layers to deliver, from FirstLayer
	OnMissing          OnMissing
	LayerComputeMicros float64 // c_i; 0: not given
	Target             *Target // rdma_target; nil: into the response body
	HasLayerOffsets    bool    // layer_offsets is reserved
}

// ChunkBytes is the size every chunk object must have: L*S.
func (d *Descriptor) ChunkBytes() int64 { return int64(d.NumLayers) * d.PerLayerChunkBytes }

// FieldError is bad input; Field is the field's wire name, or the limit's.
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// MissingError names the first chunk that does not exist.
type MissingError struct {
	Key     string
	Matched int // chunks before it
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("chunk %d (%q) does not exist", e.Matched, e.Key)
}

// ChunkSizeError names a chunk whose size is not L*S.
type ChunkSizeError struct {
	Key        string
	Size, Want int64
}

func (e *ChunkSizeError) Error() string {
	return fmt.Sprintf("chunk %q has %d bytes, num_layers*per_layer_chunk_bytes is %d", e.Key, e.Size, e.Want)
}

// BusyError says that a limit of the server is reached; try again later.
type BusyError struct{ Limit string }

func (e *BusyError) Error() string { return "server is over its limit: " + e.Limit }
