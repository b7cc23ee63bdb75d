//go:build fabric && cgo

package fabric

import (
	"errors"
	"fmt"
	"time"
)

const maxName = 128 // bytes of an endpoint's address

// What an immediate says, with the epoch or layer added.
const (
	immReady    = 0
	immOver     = immReady + MaxLayers
	immWritten  = immOver + 1
	immCounted  = immWritten + MaxLayers + 1
	immCountEnd = immCounted + MaxLayers
	immNonce    = 1<<12 - 1
)

// immediate packs what a write tells the client.
func immediate(gen uint32, slot int, what int) uint32 {
	return gen<<16 | uint32(slot)<<12 | uint32(what)
}

// parseImmediate is immediate's inverse.
func parseImmediate(imm uint32) (gen uint32, slot int, what int) {
	return imm >> 16, int(imm >> 12 & (Slots - 1)), int(imm & (1<<12 - 1))
}

// cellAt is the offset in a memory's region of an epoch's count.
func cellAt(length int64, slot, epoch int) int64 {
	return length + int64(slot*(MaxLayers+1)+epoch)*cellBytes
}

// generation is what distinguishes the deliveries of one slot.
func generation(tag int64) uint32 { return uint32(tag/Slots + 1) }

func (c *Config) setDefaults() error {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if c.Provider == "" {
		c.Provider = "tcp;ofi_rxm"
	}
	def(&c.WriteBytes, 1<<20)
	def(&c.Buffers, 64)
	def(&c.TransferBuffers, max(1, c.Buffers/2))
	def(&c.Remotes, 256)
	if c.Stall == 0 {
		c.Stall = 10 * time.Second
	}
	if c.Probe == 0 {
		c.Probe = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.WriteBytes < PageSize || c.WriteBytes > maxWriteBytes || c.WriteBytes%PageSize != 0:
		return fmt.Errorf("fabric: a write of %d bytes: it has 4 KiB to 8 MiB, in whole pages", c.WriteBytes)
	case c.Buffers < 1 || c.TransferBuffers < 1 || c.Remotes < 1 || c.Stall < 0 || c.Probe < 0:
		return errors.New("fabric: a limit below 1")
	}
	return nil
}

// maxWriteBytes: devices are seen to fail above it.
const maxWriteBytes = 8 << 20

var (
	errRange = errors.New("fabric: bytes outside the window")
	errLent  = errors.New("fabric: bytes are lent already, or are not")
	errLayer = errors.New("fabric: no such layer, or not the next one")
)
