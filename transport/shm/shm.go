//go:build linux

// Package shm delivers into memory that a client on the same host shares with
// the server: storage is read straight into the client's memory, and a word per
// layer says when it is whole.
//
// # Registering
//
// The server listens on a Unix socket (SOCK_SEQPACKET, mode 0600). Memory is
// registered in four steps; 1 and 4 are signed kv-register requests.
//
//  1. Reserve: the client names a length and gets an id, good for a short time.
//  2. The client connects to the socket and sends one packet of the 8 bytes
//     "objshm01" and the id, with one descriptor (SCM_RIGHTS): a memfd of exactly
//     that length, sealed with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL. A
//     memfd that could shrink would let its owner end the server by SIGBUS.
//  3. The server maps it, writes a random nonce of 32 bytes at its start, and
//     answers with one packet: a byte 0 and the words' descriptor (SCM_RIGHTS);
//     or a byte 1 and a text that says why not.
//  4. Confirm: the client returns the nonce, which only one who reads that
//     memory can know, and gets a handle.
//
// The handle works for the tenant and access key that reserved it, while the
// connection lives, and until it has not been used for Config.Idle. Use and Renew
// start that time anew. Nothing else is ever sent on the connection. When the
// client shuts its side down, closes it or dies, the server stops what is being
// delivered, unmaps the memory and then closes its own side: a client that sees
// the end of the connection knows that nobody writes to its memory any more.
//
// # The words
//
// They lie in a memfd of the server's that the client can only read
// (F_SEAL_FUTURE_WRITE), and that the server never reads back: native-endian
// uint32, Slots rows of 1+MaxLayers words.
//
//	row t % Slots, word 0      the last delivery of this row is over: nothing
//	                           more of it will be written
//	row t % Slots, word 1+i    layer i of the window is ready
//
// Delivery t sets a word to its generation, t/Slots + 1, by an atomic store
// after the bytes, and then wakes the word's waiters (FUTEX_WAKE, not private).
// Generations of a row rise, so no word needs to be reset.
//
// A layer is valid when it has been announced and not before: blocks are read
// into place and then verified, so bytes that failed their CRC may lie in a
// layer that never becomes ready.
package shm

import (
	"errors"
	"math"
)

// Sizes and counts of the protocol.
const (
	NonceBytes = 32
	Slots      = 16   // deliveries into one memory at a time
	MaxLayers  = 1024 // of one delivery
	PageSize   = 4096 // lengths are a multiple of it

	// MaxTag is the last tag whose generation fits a word.
	MaxTag = Slots*(math.MaxUint32-1) + Slots - 1

	row        = 1 + MaxLayers // words
	wordsBytes = (Slots*row*4 + PageSize - 1) / PageSize * PageSize
	hello      = "objshm01"
	idBytes    = 24 // of randomness in an id or a handle
)

// generation is what a tag's words are set to.
func generation(tag int64) uint32 { return uint32(tag/Slots + 1) }

// Errors of Server. None of them holds a handle, an id or a nonce.
var (
	ErrHandle  = errors.New("shm: the handle is unknown, expired, closed or another's")
	ErrID      = errors.New("shm: the id is unknown, expired, already confirmed or another's")
	ErrNoPeer  = errors.New("shm: the memory has not been handed over at the socket")
	ErrNonce   = errors.New("shm: the nonce is wrong")
	ErrTag     = errors.New("shm: the tag is used up or out of range")
	ErrWindow  = errors.New("shm: the window lies outside the memory")
	ErrLayers  = errors.New("shm: too many layers for one delivery")
	ErrLength  = errors.New("shm: the length is not a multiple of 4096 or over the limit of one registration")
	ErrRevoked = errors.New("shm: the client has withdrawn its memory")
	errClosed  = errors.New("shm: server is closed")
)

// BusyError says that a limit is reached; try again later.
type BusyError struct{ Limit string }

func (e *BusyError) Error() string { return "shm: over the limit of " + e.Limit }
