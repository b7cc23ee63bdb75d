// Package meta defines the metadata store under the S3 object model: an
// ordered key-value store with atomic, conditional batches inside one
// partition. Embedded: Pebble (storage/pebblekv). Distributed: RADOS omap.
package meta

import (
	"context"
	"errors"
)

// Errors of a Store.
var (
	ErrNotFound = errors.New("meta: key not found")
	ErrConflict = errors.New("meta: condition not met")
	ErrClosed   = errors.New("meta: closed")
)

// Store keeps key-value pairs in partitions. Keys are at most 4 KiB, ordered
// bytewise within a partition; nothing is atomic across partitions.
// All methods may be called concurrently.
type Store interface {
	// Get appends the value to dst and returns it, or ErrNotFound. It sees
	// every batch whose Apply returned before Get was called.
	Get(ctx context.Context, partition string, key, dst []byte) ([]byte, error)
	// Scan calls fn for the pairs with start <= key < end in order (nil end:
	// to the end of the partition) until fn returns false or an error. key and
	// value are valid only during the call. It sees a consistent snapshot.
	Scan(ctx context.Context, partition string, start, end []byte, fn func(key, value []byte) (bool, error)) error
	// Apply checks every condition and applies every operation of b
	// atomically, and returns when the result is durable (concurrent calls
	// share syncs). ErrConflict means that nothing was changed. Either answer
	// rests on durable state only: also of a batch without operations, which
	// so is a way to wait for what it names. b's slices are not kept after
	// Apply returns.
	Apply(ctx context.Context, partition string, b *Batch) error
	// Partitions lists the partitions that hold at least one pair.
	Partitions(ctx context.Context) ([]string, error)
	Close() error
}

// Batch is a set of conditions and operations. The zero value is empty.
type Batch struct {
	Conds []Cond
	Ops   []Op
}

// Cond holds when the value at Key equals Value; with Absent, when there is none.
type Cond struct {
	Key, Value []byte
	Absent     bool
}

// Op sets Key to Value, or deletes it.
type Op struct {
	Key, Value []byte
	Delete     bool
}

// Set adds an operation that sets key to value.
func (b *Batch) Set(key, value []byte) { b.Ops = append(b.Ops, Op{Key: key, Value: value}) }

// Delete adds an operation that removes key.
func (b *Batch) Delete(key []byte) { b.Ops = append(b.Ops, Op{Key: key, Delete: true}) }

// IfAbsent adds the condition that key does not exist.
func (b *Batch) IfAbsent(key []byte) { b.Conds = append(b.Conds, Cond{Key: key, Absent: true}) }

// IfEqual adds the condition that key holds value.
func (b *Batch) IfEqual(key, value []byte) {
	b.Conds = append(b.Conds, Cond{Key: key, Value: value})
}
