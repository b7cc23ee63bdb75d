package descriptor

// Limits bound what one request may ask for. A zero field means its default.
type Limits struct {
	Chunks     int   // N: keys in chunk_keys
	Layers     int   // L: num_layers
	SliceBytes int64 // S: per_layer_chunk_bytes
	BodyBytes  int64 // the request body, or the decoded header form
}

// The limits unless told otherwise.
const (
	DefaultChunks     = 65536
	DefaultLayers     = 1024
	DefaultSliceBytes = 64 << 20
	DefaultBodyBytes  = 16 << 20
)

// MaxKeyBytes is S3's limit for an object key.
const MaxKeyBytes = 1024

// WithDefaults returns l with every zero field replaced by its default.
func (l Limits) WithDefaults() Limits {
	if l.Chunks == 0 {
		l.Chunks = DefaultChunks
	}
	if l.Layers == 0 {
		l.Layers = DefaultLayers
	}
	if l.SliceBytes == 0 {
		l.SliceBytes = DefaultSliceBytes
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = DefaultBodyBytes
	}
	return l
}
