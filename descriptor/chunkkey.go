package descriptor

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"unicode/utf8"
)

// A chunk's key is the hash of everything its bytes depend on: the model and
// the way its cache is laid out (the root), every token before the chunk, and
// its own tokens. So equal keys mean equal bytes, a writer may skip a key that
// exists, and no one has to invalidate anything.
//
//	H_-1 = SHA-256(root)
//	H_i  = SHA-256(H_{i-1} || tokens_i)        the key of chunk i
//
// The root is these bytes, in this order, integers little-endian:
//
//	bytes   field
//	23      "objcached/chunk-key/v1" and a zero byte
//	4 + n   model: uint32 length in bytes, then the bytes (UTF-8)
//	4 + n   revision: the same
//	4 + n   dtype: the same
//	4       num_layers, L (uint32)
//	8       per_layer_chunk_bytes, S (uint64)
//	4 + n   layout: as a string field, "l2td" or "2ltd"
//	4       chunk_tokens, G (uint32)
//	4       tensor-parallel rank (uint32)
//	4       tensor-parallel size (uint32)
//	4 + n   tenant salt: uint32 length in bytes, then any bytes
//
// The input of H_i is the 32 raw bytes of H_{i-1} and then G token ids of 4
// bytes each (uint32), 32 + 4*G bytes. Only whole chunks have a key: a tail of
// fewer than G tokens has none.
//
// The key is the hash in 64 lower-case hex digits, after the root's KeyPrefix.
// The prefix is not hashed and is empty by default, because equal bytes should
// have one key. It is there so that one bucket can hold several families of
// keys that are listed, expired or deleted apart ("llama3/", "team-a/");
// whoever wants to share chunks uses the same prefix.
//
// Strings are hashed byte by byte, without Unicode normalisation or case
// folding. A change of any of this is a new version string.
const keyDomain = "objcached/chunk-key/v1\x00"

// Limits of a Root's fields.
const (
	MaxRootString = 4096 // bytes of model, revision, dtype and salt, each
	MaxKeyPrefix  = 512  // bytes; with the hash it stays well below S3's 1024
)

// Root says everything the bytes of a chunk depend on besides its tokens.
// Two writers that share chunks must agree on all of it but KeyPrefix, and
// on KeyPrefix too if they are to find each other's keys.
type Root struct {
	Model              string `json:"model"`
	Revision           string `json:"revision"` // of the weights: a commit or a version, never "latest"
	DType              string `json:"dtype"`    // of the cache, such as "bfloat16" or "fp8_e4m3"
	NumLayers          int    `json:"num_layers"`
	PerLayerChunkBytes int64  `json:"per_layer_chunk_bytes"` // S, of this rank's part
	Layout             Layout `json:"layout"`
	ChunkTokens        int    `json:"chunk_tokens"` // G
	TPRank             int    `json:"tp_rank"`
	TPSize             int    `json:"tp_size"`
	// TenantSalt keeps tenants from finding (and from probing for) each
	// other's prefixes. Empty: shared by all who leave it empty. Any bytes.
	TenantSalt string `json:"tenant_salt"`
	KeyPrefix  string `json:"key_prefix"` // put before every key, not hashed
}

// Validate returns a *FieldError for the first field that is missing or out of
// range.
func (r Root) Validate() error {
	for _, f := range [...]struct{ name, value string }{
		{"model", r.Model}, {"revision", r.Revision}, {"dtype", r.DType},
	} {
		if f.value == "" {
			return &FieldError{Field: f.name, Reason: "is empty; cached bytes depend on it"}
		}
		if len(f.value) > MaxRootString || !utf8.ValidString(f.value) {
			return &FieldError{Field: f.name, Reason: fmt.Sprintf("must be UTF-8 of at most %d bytes", MaxRootString)}
		}
	}
	if r.Layout != L2TD && r.Layout != TwoLTD {
		return &FieldError{Field: "layout", Reason: fmt.Sprintf("must be %q or %q", L2TD, TwoLTD)}
	}
	for _, f := range [...]struct {
		name     string
		value    int64
		min, max int64
	}{
		{"num_layers", int64(r.NumLayers), 1, math.MaxUint32},
		{"per_layer_chunk_bytes", r.PerLayerChunkBytes, 1, math.MaxInt64},
		{"chunk_tokens", int64(r.ChunkTokens), 1, 1 << 24},
		{"tp_size", int64(r.TPSize), 1, math.MaxUint32},
		{"tp_rank", int64(r.TPRank), 0, int64(r.TPSize) - 1},
	} {
		if f.value < f.min || f.value > f.max {
			return &FieldError{Field: f.name, Reason: fmt.Sprintf("is %d, must be in [%d, %d]", f.value, f.min, f.max)}
		}
	}
	if len(r.TenantSalt) > MaxRootString {
		return &FieldError{Field: "tenant_salt", Reason: fmt.Sprintf("has more than %d bytes", MaxRootString)}
	}
	if len(r.KeyPrefix) > MaxKeyPrefix || !utf8.ValidString(r.KeyPrefix) {
		return &FieldError{Field: "key_prefix", Reason: fmt.Sprintf("must be UTF-8 of at most %d bytes", MaxKeyPrefix)}
	}
	return nil
}

// appendBinary appends the bytes that H_-1 is the hash of.
func (r Root) appendBinary(b []byte) []byte {
	le := binary.LittleEndian
	str := func(b []byte, s string) []byte {
		return append(le.AppendUint32(b, uint32(len(s))), s...)
	}
	b = append(b, keyDomain...)
	b = str(b, r.Model)
	b = str(b, r.Revision)
	b = str(b, r.DType)
	b = le.AppendUint32(b, uint32(r.NumLayers))
	b = le.AppendUint64(b, uint64(r.PerLayerChunkBytes))
	b = str(b, string(r.Layout))
	b = le.AppendUint32(b, uint32(r.ChunkTokens))
	b = le.AppendUint32(b, uint32(r.TPRank))
	b = le.AppendUint32(b, uint32(r.TPSize))
	return str(b, r.TenantSalt)
}

// Keys returns the keys of the whole chunks in tokens, in order: len(tokens)/G
// of them. The error is Validate's.
func (r Root) Keys(tokens []uint32) ([]string, error) {
	h, err := r.NewHasher()
	if err != nil || len(tokens) < r.ChunkTokens {
		return nil, err
	}
	return h.Append(make([]string, 0, len(tokens)/r.ChunkTokens), tokens), nil
}

// NewHasher returns a Hasher that stands before the first token.
func (r Root) NewHasher() (*Hasher, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	h := &Hasher{
		prefix: r.KeyPrefix,
		full:   sha256.Size + 4*r.ChunkTokens,
		hex:    make([]byte, len(r.KeyPrefix)+hex.EncodedLen(sha256.Size)),
	}
	copy(h.hex, r.KeyPrefix)
	root := sha256.Sum256(r.appendBinary(make([]byte, 0, 256)))
	h.buf = append(make([]byte, 0, h.full), root[:]...)
	return h, nil
}

// Hasher makes keys as tokens come in, hashing each token once: a prompt that
// grows turn by turn is never hashed again from its start. It is not safe for
// concurrent use.
type Hasher struct {
	prefix string
	buf    []byte // H_{i-1}, then the tokens of chunk i seen so far
	full   int    // len(buf) at which chunk i is whole
	chunks int
	hex    []byte
}

// Append takes tokens and appends the keys of the chunks they complete to keys.
func (h *Hasher) Append(keys []string, tokens []uint32) []string {
	for _, t := range tokens {
		h.buf = binary.LittleEndian.AppendUint32(h.buf, t)
		if len(h.buf) < h.full {
			continue
		}
		sum := sha256.Sum256(h.buf)
		h.buf = append(h.buf[:0], sum[:]...)
		h.chunks++
		hex.Encode(h.hex[len(h.prefix):], sum[:])
		keys = append(keys, string(h.hex))
	}
	return keys
}

// Chunks is the number of keys made so far: the index of the next chunk.
func (h *Hasher) Chunks() int { return h.chunks }

// Pending is the number of tokens taken that belong to no whole chunk yet.
func (h *Hasher) Pending() int { return (len(h.buf) - sha256.Size) / 4 }

// Clone returns an independent Hasher at the same place, for prompts that
// share a prefix and then part.
func (h *Hasher) Clone() *Hasher {
	c := *h
	c.buf = append(make([]byte, 0, h.full), h.buf...)
	c.hex = append([]byte(nil), h.hex...)
	return &c
}
