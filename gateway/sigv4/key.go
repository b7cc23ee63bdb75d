package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"
	"sync"
	"sync/atomic"
)

const hmacBlock = sha256.BlockSize

var zeroBlock [hmacBlock]byte

// hmacSum is the HMAC-SHA256 of msg[hmacBlock:]. The first block of msg is
// for its use: the signing key is shorter than a block, so both passes of the
// HMAC are one hash each over memory at hand, and nothing is allocated.
func hmacSum(key *[sha256.Size]byte, msg []byte) [sha256.Size]byte {
	var outer [hmacBlock + sha256.Size]byte
	for i := range hmacBlock {
		var k byte
		if i < len(key) {
			k = key[i]
		}
		msg[i] = k ^ 0x36
		outer[i] = k ^ 0x5c
	}
	inner := sha256.Sum256(msg)
	copy(outer[hmacBlock:], inner[:])
	clear(msg[:hmacBlock]) // it holds the key in thin disguise
	return sha256.Sum256(outer[:])
}

func mac(key []byte, data string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(data))
	return h.Sum(nil)
}

// deriveKey makes the key that signs one day's requests in a region.
func deriveKey(secret string, c credential) [sha256.Size]byte {
	k := mac([]byte("AWS4"+secret), c.date)
	k = mac(k, c.region)
	k = mac(k, c.service)
	return [sha256.Size]byte(mac(k, terminator))
}

// maxKeys bounds the cache of signing keys.
const maxKeys = 1024

// keyCache keeps signing keys of requests that were verified. Readers take no
// lock: the map is replaced, never changed. An entry is made once per access
// key, day and region.
type keyCache struct {
	m  atomic.Pointer[map[keyID]keyEntry]
	mu sync.Mutex // of those who replace it
}

type keyID struct{ accessKey, date, region, service string }

type keyEntry struct {
	secret string // a changed secret must not find the old key
	key    [sha256.Size]byte
}

func (k *keyCache) get(c credential, secret string) (key [sha256.Size]byte, ok bool) {
	m := k.m.Load()
	if m == nil {
		return key, false
	}
	e, ok := (*m)[keyID{c.accessKey, c.date, c.region, c.service}]
	if !ok || e.secret != secret {
		return key, false
	}
	return e.key, true
}

func (k *keyCache) put(c credential, secret string, key [sha256.Size]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := make(map[keyID]keyEntry)
	if old := k.m.Load(); old != nil && len(*old) < maxKeys {
		for id, e := range *old {
			m[id] = e
		}
	}
	// The strings of c lie in the request's header: keep no more than needed.
	id := keyID{strings.Clone(c.accessKey), strings.Clone(c.date), strings.Clone(c.region), strings.Clone(c.service)}
	m[id] = keyEntry{secret, key}
	k.m.Store(&m)
}
