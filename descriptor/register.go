package descriptor

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// ProviderShm names memory shared on one host. Every other provider is a fabric's.
const ProviderShm = "shm"

// Bounds of what a Register holds, in bytes.
const (
	maxHandle  = 128 // handles, ids and provider names
	MaxAddress = 256 // of an endpoint
	MaxKey     = 64  // of remote memory
)

// Register is the body of kv-register, in one of five forms. In JSON:
//
//	{"providers": true}
//	    asks by which transports memory can be reached. The answer is a Providers.
//	{"provider": "shm", "length": 1048576}
//	    names memory of that many bytes, a multiple of 4,096. The answer has
//	    an id, under which the memory itself is handed over at the socket.
//	{"provider": "tcp;ofi_rxm", "length": 1048576, "address": "base64", "key": "base64", "base": 140737353711616}
//	    names memory on a fabric: the endpoint that it can be written through,
//	    its remote key, and what its first byte is called there (an address, or 0).
//	    The answer has an id, and the nonce is in the memory.
//	{"id": "...", "nonce": "base64url"}
//	    proves that the sender reads that memory: the nonce is what the server
//	    has written at its first byte. The answer has the handle.
//	{"handle": "..."}
//	    keeps a handle that is not in use from expiring.
//	{"handle": "...", "withdraw": true}
//	    takes the memory back. The answer comes when nothing more is written to it.
//
// A provider is named as its transport names it: shm, or a libfabric provider.
type Register struct {
	Providers bool // ask which there are

	Provider string
	Length   int64
	Address  []byte // 1 to MaxAddress bytes, opaque
	Key      []byte // 1 to MaxKey bytes, opaque and secret
	Base     int64  // Base+Length fits an int64

	ID    string
	Nonce []byte

	Handle   string
	Withdraw bool
}

// Providers is the answer to the first form of Register, in JSON: by which
// transports memory can be reached, the one to be preferred first. Empty: none.
type Providers struct {
	Providers []Provider `json:"providers"`
}

// Provider is one transport that reaches clients' memory.
type Provider struct {
	Provider string `json:"provider"`
	// Socket is, for shm, the path of the Unix socket that takes the memory: a
	// client that does not see it is on another host.
	Socket string `json:"socket,omitempty"`
}

// Registered is the answer to the other forms of Register, in JSON: to one that
// names memory id, nonce_bytes and for shm socket; to one with a nonce handle,
// slots and max_layers; to one with a handle nothing more than expires_in_ms,
// which is 0 after a withdrawal.
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
	{"providers", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.Providers, err = onlyTrue(r); return err }, nil, nil},
	{"provider", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Provider, err = shortText(r, maxHandle)
			return err
		}, nil, nil},
	{"length", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.Length, err = positive(r); return err }, nil, nil},
	{"address", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Address, err = encoded(r, base64.StdEncoding, 1, MaxAddress)
			return err
		}, nil, nil},
	{"key", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Key, err = encoded(r, base64.StdEncoding, 1, MaxKey)
			return err
		}, nil, nil},
	{"base", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.Base, err = notNegative(r); return err }, nil, nil},
	{"id", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.ID, err = shortText(r, maxHandle); return err }, nil, nil},
	{"nonce", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Nonce, err = encoded(r, base64.RawURLEncoding, 0, maxHandle)
			return err
		}, nil, nil},
	{"handle", false,
		func(r reader, q *Register, _ *Limits) (err error) {
			q.Handle, err = shortText(r, maxHandle)
			return err
		}, nil, nil},
	{"withdraw", false,
		func(r reader, q *Register, _ *Limits) (err error) { q.Withdraw, err = onlyTrue(r); return err }, nil, nil},
}

// ParseRegister reads the body of kv-register. Every error is a *FieldError.
func ParseRegister(enc Encoding, body []byte, lim Limits) (*Register, error) {
	q := new(Register)
	if err := parseDocument(enc, body, lim.WithDefaults(), registerFields, q); err != nil {
		return nil, err
	}
	naming := q.Provider != "" || q.Length != 0 || q.Address != nil || q.Key != nil || q.Base != 0
	proving := q.ID != "" || q.Nonce != nil
	switch {
	case q.Providers:
		if naming || proving || q.Handle != "" || q.Withdraw {
			return nil, &FieldError{"providers", "stands alone"}
		}
	case q.Handle != "":
		if naming || proving {
			return nil, &FieldError{"handle", "stands alone, or with withdraw"}
		}
	case q.Withdraw:
		return nil, &FieldError{"handle", "missing"}
	case proving:
		switch {
		case naming:
			return nil, &FieldError{"id", "goes with nonce alone"}
		case q.ID == "":
			return nil, &FieldError{"id", "missing"}
		case q.Nonce == nil:
			return nil, &FieldError{"nonce", "missing"}
		}
	default:
		if err := q.checkMemory(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// checkMemory checks a form that names memory.
func (q *Register) checkMemory() error {
	fabric := q.Provider != ProviderShm
	switch {
	case q.Provider == "":
		return &FieldError{"provider", "missing"}
	case q.Length == 0:
		return &FieldError{"length", "missing"}
	case fabric && q.Address == nil:
		return &FieldError{"address", "missing"}
	case fabric && q.Key == nil:
		return &FieldError{"key", "missing"}
	case fabric && q.Base > math.MaxInt64-q.Length:
		return &FieldError{"length", "with base past the last address"}
	case !fabric && q.Address != nil:
		return &FieldError{"address", "belongs to a fabric"}
	case !fabric && q.Key != nil:
		return &FieldError{"key", "belongs to a fabric"}
	case !fabric && q.Base != 0:
		return &FieldError{"base", "belongs to a fabric"}
	}
	return nil
}

// MarshalRegister writes q as JSON: the form whose fields are set.
func MarshalRegister(q *Register) ([]byte, error) {
	switch {
	case q.Providers:
		return json.Marshal(map[string]any{"providers": true})
	case q.Withdraw:
		return json.Marshal(map[string]any{"handle": q.Handle, "withdraw": true})
	case q.Handle != "":
		return json.Marshal(map[string]any{"handle": q.Handle})
	case q.ID != "":
		return json.Marshal(map[string]any{"id": q.ID, "nonce": base64.RawURLEncoding.EncodeToString(q.Nonce)})
	case q.Provider == ProviderShm:
		return json.Marshal(map[string]any{"provider": q.Provider, "length": q.Length})
	}
	if err := q.checkMemory(); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"provider": q.Provider, "length": q.Length, "base": q.Base,
		"address": base64.StdEncoding.EncodeToString(q.Address), "key": base64.StdEncoding.EncodeToString(q.Key)})
}

// String shows the form and no secret.
func (q *Register) String() string {
	switch {
	case q.Providers:
		return "ask for providers"
	case q.Withdraw:
		return "withdraw"
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

// onlyTrue reads a field whose presence is what it says.
func onlyTrue(r reader) (bool, error) {
	if err := want(r, kindBool); err != nil {
		return false, err
	}
	v, err := r.literal()
	if err == nil && !v {
		err = valueError("must be true, or left out")
	}
	return v, err
}

// encoded reads least to most bytes in one of the forms of base64; they are
// never nil.
func encoded(r reader, enc *base64.Encoding, least, most int) ([]byte, error) {
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
	if len(b) < least || len(b) > most {
		return nil, valueErrorf("must have %d to %d bytes", least, most)
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
