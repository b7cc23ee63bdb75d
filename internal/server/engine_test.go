package server

import (
	"encoding/binary"
	"testing"

	kv "github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// TestServingEngineBlocks lays out the KV cache of a serving engine as vLLM has
// it: one tensor [2][blocks][16 tokens][heads][dim] for each layer, and a block
// table for each sequence. Chunks of 64 tokens must land in it so that the
// engine, which knows nothing of chunks, finds each token by its table.
func TestServingEngineBlocks(t *testing.T) { everyWay(t, testServingEngineBlocks) }

func testServingEngineBlocks(t *testing.T, w way) {
	const (
		layers, tokensPerBlock, tokensPerChunk = 4, 16, 64
		tokenBytes                             = 8 * 32 * 2 // heads * dim * 2 bytes, of one plane
		blocks, chunks                         = 40, 7
		blockBytes                             = tokensPerBlock * tokenBytes
		planeBytes                             = blocks * blockBytes
		tensorBytes                            = 2*planeBytes + 192 // and what the allocator leaves between
		slice                                  = 2 * tokensPerChunk * tokenBytes
	)
	_, c, _ := w.start(t, 1, 10)

	// What a token's K or V is in a layer, word by word.
	word := func(layer, plane, token, i int) uint64 {
		x := uint64(layer+1)<<48 ^ uint64(plane+1)<<40 ^ uint64(token+1)<<16 ^ uint64(i)
		return (x ^ x>>31) * 0x9e3779b97f4a7c15
	}
	var stored []kv.Chunk
	for j := range chunks {
		data := make([]byte, 0, layers*slice)
		for l := range layers {
			for plane := range 2 {
				for token := range tokensPerChunk {
					for i := range tokenBytes / 8 {
						data = binary.LittleEndian.AppendUint64(data, word(l, plane, j*tokensPerChunk+token, i))
					}
				}
			}
		}
		stored = append(stored, kv.Chunk{Key: "engine/" + string(rune('a'+j)), Data: data})
	}
	kv.Chain(stored, "", 0)
	if _, err := c.PutChunks(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, ch := range stored {
		keys = append(keys, ch.Key)
	}

	// The engine's cache and the sequence's block table: any blocks, any order.
	buf, err := c.Register(t.Context(), layers*tensorBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	cache := buf.Bytes()
	place := descriptor.Target{Planes: 2, PlaneStride: planeBytes, BlocksPerChunk: tokensPerChunk / tokensPerBlock, BlockStride: blockBytes}
	for l := range int64(layers) {
		place.LayerBases = append(place.LayerBases, l*tensorBytes)
	}
	for i := range int64(chunks * tokensPerChunk / tokensPerBlock) {
		place.Slots = append(place.Slots, (i*27+5)%blocks)
	}
	table := place.Slots
	used := map[int64]bool{}
	for _, b := range table {
		used[b] = true
	}

	for _, mode := range []descriptor.Mode{descriptor.Layer, descriptor.Chunk} {
		for i := range cache {
			cache[i] = 0x5a
		}
		tr, err := c.GetLayersInto(t.Context(), kv.GetRequest{Keys: keys, NumLayers: layers, ChunkTokens: tokensPerChunk,
			PerLayerChunkBytes: slice, Delivery: mode}, buf, place)
		if err != nil {
			t.Fatal(err)
		}
		for l := range layers {
			if err := tr.WaitLayer(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			tensor := cache[l*tensorBytes:][:tensorBytes]
			for plane := range 2 {
				for token := range chunks * tokensPerChunk {
					at := plane*planeBytes + int(table[token/tokensPerBlock])*blockBytes + token%tokensPerBlock*tokenBytes
					for i := range tokenBytes / 8 {
						if binary.LittleEndian.Uint64(tensor[at+8*i:]) != word(l, plane, token, i) {
							t.Fatalf("%s: layer %d plane %d token %d is wrong", mode, l, plane, token)
						}
					}
				}
				for b := range int64(blocks) {
					for _, x := range tensor[plane*planeBytes+int(b)*blockBytes:][:blockBytes] {
						if !used[b] && x != 0x5a {
							t.Fatalf("%s: layer %d: block %d is another sequence's and was written", mode, l, b)
						}
					}
				}
			}
			for _, x := range tensor[2*planeBytes:] {
				if x != 0x5a {
					t.Fatalf("%s: layer %d: bytes between the tensors were written", mode, l)
				}
			}
		}
		if sum, err := tr.Wait(t.Context()); err != nil || sum.Mode != string(mode) || sum.Bytes != layers*chunks*slice || len(sum.PerLayerMicros) != layers {
			t.Errorf("%+v, %v", sum, err)
		}
	}
}
