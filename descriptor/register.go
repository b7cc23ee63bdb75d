package descriptor

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// ProviderShm names memory shared on one host. Every other provider is a fabric's.
const ProviderShm = "shm"

// maxHandle bounds handles, ids and provider names, in bytes.
const maxHandle = 128

// Register is the body of kv-register, in one of three forms. In JSON:
//
//	{"provider": "shm", "length": 1048576}
//	    names memory of that many bytes, a multiple of 4,096. The answer has
//	    an id, under which the memory itself is handed over at the socket.
//	{"id": "...", "nonce": "base64url"}
//	    proves that the sender reads that memory: the nonce is what the server
//	    has written at its first byte. The answer has the handle.
//	{"handle": "..."}
//	    keeps a handle that is not in use from expiring.
//
// A fabric's provider comes with address (base64), key (base64) and base.
type Register struct {
	Provider string
	Length   int64
	Address  []byte
	Key      []byte
	Base     int64

	ID    string
	Nonce []byte

	Handle string
}

// Registered is the answer to kv-register, in JSON: after the first form id,
// socket and nonce_bytes; after the second handle, slots and max_layers; after
// the third nothing more than expires_in_ms.
type Registered struct {
	ID string `json:"id,omitempty"`
	// Socket is the path of the Unix socket that takes the memory.
	Socket string `json:"socket,omitempty"`
	// NonceBytes is how many bytes the nonce at the memory's start has.
	NonceBytes int `json:"nonce_bytes,omitempty"`

	Handle string `json:"handle,omitempty"`
	// Slots is how many deliveries may go into the memory at one time. Tag t
	// takes slot t % Slots; a slot's tags must rise.
	Slots int `json:"slots,omitempty"`
	// MaxLayers is how many layers one delivery may have.
	MaxLayers int `json:"max_layers,omitempty"`

	// ExpiresInMillis is how long the id, or the unused handle, is good for.
	ExpiresInMillis int64 `json:"expires_in_ms"`
}

// Summary is the answer to a layerwise GET into memory, in JSON.
type Summary struct {
	Mode    string `json:"mode"`    // "layer" or "chunk"
	Matched int    `json:"matched"` // chunks delivered
	Bytes   int64  `json:"bytes"`
	// PerLayerMicros is when each layer of the window was ready, in
	// microseconds from the start of the request; empty if nothing matched.
	PerLayerMicros []int64 `json:"per_layer_us"`
	GrantedRate    float64 `json:"granted_rate"` // bytes per second; 0: not limited
}

var registerFields = []field[Register]{
	{"provider", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Provider, err = shortText(r, maxHandle)
			return err
		}, nil, nil},
	{"length", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.Length, err = positive(r); return err }, nil, nil},
	{"address", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Address, err = encoded(r, base64.StdEncoding)
			return err
		}, nil, nil},
	{"key", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Key, err = encoded(r, base64.StdEncoding)
			return err
		}, nil, nil},
	{"base", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.Base, err = notNegative(r); return err }, nil, nil},
	{"id", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.ID, err = shortText(r, maxHandle); return err }, nil, nil},
	{"nonce", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Nonce, err = encoded(r, base64.RawURLEncoding)
			return err
		}, nil, nil},
	{"handle", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Handle, err = shortText(r, maxHandle)
			return err
		}, nil, nil},
}

// ParseRegister reads the body of kv-register. Every error is a *FieldError.
func ParseRegister(enc Encoding, body []byte, lim Limits) (*Register, error) {
	q := new(Register)
	if err := parseDocument(enc, body, lim.WithDefaults(), registerFields, q); err != nil {
		return nil, err
	}
	naming := q.Length != 0 || q.Address != nil || q.Key != nil || q.Base != 0
	switch {
	case q.Handle != "":
		if q.Provider != "" || naming || q.ID != "" || q.Nonce != nil {
			return nil, &FieldError{"handle", "stands alone"}
		}
	case q.ID != "" || q.Nonce != nil:
		switch {
		case q.Provider != "" || naming:
			return nil, &FieldError{"id", "goes with nonce alone"}
		case q.ID == "":
			return nil, &FieldError{"id", "missing"}
		case q.Nonce == nil:
			return nil, &FieldError{"nonce", "missing"}
		}
	case q.Provider == "":
		return nil, &FieldError{"provider", "missing"}
	case q.Length == 0:
		return nil, &FieldError{"length", "missing"}
	case q.Provider == ProviderShm && q.Address != nil:
		return nil, &FieldError{"address", "belongs to a fabric"}
	case q.Provider == ProviderShm && q.Key != nil:
		return nil, &FieldError{"key", "belongs to a fabric"}
	case q.Provider == ProviderShm && q.Base != 0:
		return nil, &FieldError{"base", "belongs to a fabric"}
	}
	return q, nil
}

// MarshalRegister writes q as JSON: the form whose fields are set.
func MarshalRegister(q *Register) ([]byte, error) {
	switch {
	case q.Handle != "":
		return json.Marshal(map[string]any{"handle": q.Handle})
	case q.ID != "":
		return json.Marshal(map[string]any{"id": q.ID, "nonce": base64.RawURLEncoding.EncodeToString(q.Nonce)})
	case q.Provider == ProviderShm:
		return json.Marshal(map[string]any{"provider": q.Provider, "length": q.Length})
	}
	return nil, &FieldError{"provider", "must be " + ProviderShm}
}

// String shows the form and no secret.
func (q *Register) String() string {
	switch {
	case q.Handle != "":
		return "renew"
	case q.ID != "":
		return "confirm"
	}
	return fmt.Sprintf("register %q of %d bytes", q.Provider, q.Length)
}

// shortText reads a text of 1 to most bytes.
func shortText(r reader, most int) (string, error) {
	if err := want(r, kindText); err != nil {
		return "", err
	}
	s, err := r.text()
	if err == nil && (s == "" || len(s) > most) {
		err = valueErrorf("must have 1 to %d bytes", most)
	}
	return strings.Clone(s), err
}

// encoded reads bytes in one of the forms of base64; they are never nil.
func encoded(r reader, enc *base64.Encoding) ([]byte, error) {
	if err := want(r, kindText); err != nil {
		return nil, err
	}
	s, err := r.text()
	if err != nil {
		return nil, err
	}
	b, err := enc.Strict().DecodeString(s)
	if err != nil || strings.ContainsAny(s, "\r\n") {
		return nil, valueError("is not base64")
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

func notNegative(r reader) (int64, error) {
	n, err := integer(r)
	if err == nil && n < 0 {
		err = valueErrorf("must not be negative: %d", n)
	}
	return n, err
}
