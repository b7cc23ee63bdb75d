package sigv4

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
)

const hexSize = 2 * sha256.Size

// Chunks checks the chain of signatures in a streamed body, each of which
// signs the one before it. It is for one goroutine and allocates nothing per
// chunk.
type Chunks struct {
	key     [sha256.Size]byte
	chunk   []byte // a block for the HMAC, then the string to sign
	trailer []byte
}

// Chunks starts the chain at the request's own signature.
func (r *Result) Chunks() *Chunks {
	c := &Chunks{key: r.key}
	head := r.date + "\n" + r.scope + "\n" + r.signature + "\n"
	c.chunk = append(c.chunk, zeroBlock[:]...)
	c.chunk = append(c.chunk, algorithm+"-PAYLOAD\n"+head+EmptySHA256+"\n"...)
	c.chunk = append(c.chunk, zeroBlock[:]...) // room for the hash in hex
	c.trailer = append(c.trailer, zeroBlock[:]...)
	c.trailer = append(c.trailer, algorithm+"-TRAILER\n"+head...)
	c.trailer = append(c.trailer, zeroBlock[:]...)
	return c
}

// Verify checks the hex signature of the next chunk, whose bytes have the
// SHA-256 sum. After a failure the chain is of no more use.
func (c *Chunks) Verify(signature []byte, sum *[sha256.Size]byte) bool {
	// ... previous signature \n hash of nothing \n hash of the chunk
	prev := c.chunk[len(c.chunk)-3*hexSize-2:][:hexSize]
	if !c.check(c.chunk, signature, sum) {
		return false
	}
	copy(prev, signature)
	copy(c.trailer[len(c.trailer)-2*hexSize-1:], signature)
	return true
}

// VerifyTrailer checks the hex signature of the trailer, after the last
// chunk. sum is the SHA-256 of its lines, each "name:value\n".
func (c *Chunks) VerifyTrailer(signature []byte, sum *[sha256.Size]byte) bool {
	return c.check(c.trailer, signature, sum)
}

func (c *Chunks) check(buf, signature []byte, sum *[sha256.Size]byte) bool {
	hex.Encode(buf[len(buf)-hexSize:], sum[:])
	mac := hmacSum(&c.key, buf)
	var want [hexSize]byte
	hex.Encode(want[:], mac[:])
	return subtle.ConstantTimeCompare(want[:], signature) == 1
}
