package bench

import "encoding/binary"

// The bytes of a slice are a function of its seed and their offset, so that
// whoever gets them can check them without having the original.

// mix is the finaliser of splitmix64: every bit of x changes about half of the
// result's.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sliceSeed tells the slice of one layer of one chunk from all others.
func sliceSeed(chunk uint64, layer int) uint64 {
	return mix(chunk*0x9e3779b97f4a7c15 + uint64(layer) + 1)
}

// word is bytes [8i, 8i+8) of a slice, little-endian.
func word(seed uint64, i int) uint64 { return mix(seed + uint64(i)*0x9e3779b97f4a7c15) }

// fillSlice writes a slice.
func fillSlice(p []byte, seed uint64) {
	whole := len(p) / 8
	for i := range whole {
		binary.LittleEndian.PutUint64(p[8*i:], word(seed, i))
	}
	tail := word(seed, whole)
	for k := 8 * whole; k < len(p); k++ {
		p[k] = byte(tail >> (8 * (k % 8)))
	}
}

// badByte returns the offset of the first 8 bytes (or fewer, at the end) that
// are not the slice's, or -1.
func badByte(p []byte, seed uint64) int {
	whole := len(p) / 8
	for i := range whole {
		if binary.LittleEndian.Uint64(p[8*i:]) != word(seed, i) {
			return 8 * i
		}
	}
	tail := word(seed, whole)
	for k := 8 * whole; k < len(p); k++ {
		if p[k] != byte(tail>>(8*(k%8))) {
			return k
		}
	}
	return -1
}

// badSample is badByte for the slice's two ends and one place between: enough
// to see a slice that is not there, is another's, or was cut, at a cost that
// does not show.
func badSample(p []byte, seed uint64) int {
	whole := len(p) / 8
	if whole < 4 {
		return badByte(p, seed)
	}
	for _, i := range [...]int{0, int(seed % uint64(whole)), whole - 1} {
		if binary.LittleEndian.Uint64(p[8*i:]) != word(seed, i) {
			return 8 * i
		}
	}
	return -1
}
