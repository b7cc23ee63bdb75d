//go:build !fabric || !cgo

package fabric

import (
	"context"
	"time"
)

// Built reports whether this binary has libfabric.
const Built = false

// Domain is a device with its staging memory; see the build with libfabric.
type Domain struct{}

// Open returns ErrNotBuilt.
func Open(Config) (*Domain, error) { return nil, ErrNotBuilt }

// Provider is empty.
func (*Domain) Provider() string { return "" }

// Ordered is false.
func (*Domain) Ordered() bool { return false }

// Stats is zero.
func (*Domain) Stats() Stats { return Stats{} }

// Remote returns ErrNotBuilt.
func (*Domain) Remote(Address) (*Remote, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Domain) Close() error { return nil }

// Remote is a client's memory.
type Remote struct{}

// WriteNonce returns ErrNotBuilt.
func (*Remote) WriteNonce(context.Context, []byte) error { return ErrNotBuilt }

// Probe returns ErrNotBuilt.
func (*Remote) Probe(context.Context) error { return ErrNotBuilt }

// Open returns ErrNotBuilt.
func (*Remote) Open(context.Context, Window) (*Transfer, error) { return nil, ErrNotBuilt }

// OpenSource returns ErrNotBuilt.
func (*Remote) OpenSource(context.Context, Window) (*Source, error) { return nil, ErrNotBuilt }

// Source is one transfer out of a client's memory, a transport.Source.
type Source struct{}

// ReadAt returns ErrNotBuilt.
func (*Source) ReadAt([]byte, int64) (int, error) { return 0, ErrNotBuilt }

// Close does nothing.
func (*Source) Close() error { return nil }

// Gone is nil.
func (*Remote) Gone() <-chan struct{} { return nil }

// Err is ErrNotBuilt.
func (*Remote) Err() error { return ErrNotBuilt }

// Close does nothing.
func (*Remote) Close() error { return nil }

// Transfer is one delivery, a transport.Sink.
type Transfer struct{}

// Ordered is false.
func (*Transfer) Ordered() bool { return false }

// Gather is 0.
func (*Transfer) Gather() int { return 0 }

// Grab returns ErrNotBuilt.
func (*Transfer) Grab(int64, int) ([]byte, error) { return nil, ErrNotBuilt }

// Commit returns ErrNotBuilt.
func (*Transfer) Commit(int64, int) error { return ErrNotBuilt }

// LayerReady returns ErrNotBuilt.
func (*Transfer) LayerReady(int) error { return ErrNotBuilt }

// Close does nothing.
func (*Transfer) Close() error { return nil }

// Memory is the client's side.
type Memory struct{}

// NewMemory returns ErrNotBuilt.
func NewMemory(Config, int64) (*Memory, error) { return nil, ErrNotBuilt }

// Bytes is nil.
func (*Memory) Bytes() []byte { return nil }

// Address is zero.
func (*Memory) Address() Address { return Address{} }

// AwaitNonce is false.
func (*Memory) AwaitNonce(time.Duration) bool { return false }

// Nonce is nil.
func (*Memory) Nonce() []byte { return nil }

// Wait is false.
func (*Memory) Wait(int64, int, time.Duration) bool { return false }

// Gone is nil.
func (*Memory) Gone() <-chan struct{} { return nil }

// Withdraw is true: there is nothing to take back.
func (*Memory) Withdraw(time.Duration) bool { return true }

// Close does nothing.
func (*Memory) Close(time.Duration) error { return nil }

// Limit returns ErrNotBuilt.
func Limit(Config, Address, int64, int, func([]byte, int64) error) (time.Duration, error) {
	return 0, ErrNotBuilt
}
