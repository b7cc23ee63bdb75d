package object

import (
	"sync"
	"sync/atomic"
)

// bitmap says which blocks of an object have been verified.
type bitmap struct{ words []atomic.Uint64 }

func (m *bitmap) has(block int64) bool {
	return m != nil && m.words[block/64].Load()&(1<<(block%64)) != 0
}

func (m *bitmap) set(block int64) { m.words[block/64].Or(1 << (block % 64)) }

// verifiedCache keeps the bitmaps of the objects read lately. A forgotten one
// costs a verification more, no correctness.
type verifiedCache struct {
	mu    sync.Mutex
	m     map[ID]*bitmap
	words int
}

// maxVerifiedWords bounds a verifiedCache: a word stands for 4 MiB of data, and
// an entry counts as some words more than it has.
const (
	maxVerifiedWords   = 1 << 21
	verifiedEntryWords = 12
)

func newVerifiedCache() *verifiedCache { return &verifiedCache{m: make(map[ID]*bitmap)} }

// of returns the bitmap of rec, which has extents or segments.
func (c *verifiedCache) of(rec *record) *bitmap {
	if rec.kind != kindExtents {
		return nil
	}
	n := int(blocksOf(rec.size)+63) / 64
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.m[rec.id]; m != nil {
		return m
	}
	m := &bitmap{words: make([]atomic.Uint64, n)}
	for id, old := range c.m { // some, in no order
		if c.words+n+verifiedEntryWords <= maxVerifiedWords {
			break
		}
		c.words -= len(old.words) + verifiedEntryWords
		delete(c.m, id)
	}
	c.m[rec.id] = m
	c.words += n + verifiedEntryWords
	return m
}
