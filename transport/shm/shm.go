//go:build linux

// Package shm delivers into memory that a client on the same host shares with
// the server: storage is read straight into the client's memory, and a word per
// layer says when it is whole. Who may have what written where is the affair of
// package registry; the memory, the socket and the words are here.
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
// connection lives, and as long as the registry says. Nothing else is ever sent on the connection. When the
// client shuts its side down, closes it or dies, the server stops what is being
// delivered, unmaps the memory and then closes its own side: a client that sees
// the end of the connection knows that nobody writes to its memory any more.
//
// # The words
//
// They lie in a memfd of the server's that the client can only read
// (F_SEAL_FUTURE_WRITE), and that the server never reads back: native-endian
// uint32, registry.Slots rows of 1+registry.MaxLayers words.
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

	"github.com/objcached/objcached/transport/registry"
)

// Sizes of the protocol.
const (
	PageSize = 4096 // lengths are a multiple of it

	row        = 1 + registry.MaxLayers // words
	wordsBytes = (registry.Slots*row*4 + PageSize - 1) / PageSize * PageSize
	hello      = "objshm01"
)

// Provider is the transport's name in a registration.
const Provider = "shm"

// ErrLength says that the length is no multiple of PageSize.
var ErrLength = errors.New("shm: the length is not a multiple of 4096")

var errClosed = errors.New("shm: the socket is closed")
