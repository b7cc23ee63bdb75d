// Package fabric delivers into a remote client's memory by one-sided writes
// over libfabric (ObjectCache §3.3, §4.1-4.3): the storage server writes a
// layer's bytes, and a 32-bit immediate that comes with a write tells the
// client that the layer is whole. The same code runs on RoCE and InfiniBand
// ("verbs;ofi_rxm"), on "efa", and on plain sockets ("tcp;ofi_rxm").
//
// It is built with the tag fabric, cgo and libfabric's headers. Without them the
// package has the same names, and Open and NewMemory return ErrNotBuilt.
//
// # Addresses
//
// A client makes a Memory and sends its Address to the server over the control
// channel (kv-register): the provider, the endpoint's address in the provider's
// own form, the region's key, its base and its length. The base is a pointer
// with providers that address memory so, else 0. The region that is registered
// has ControlBytes more than the length, for the counts below. The server proves
// that the memory is the caller's by writing a nonce at its start (Remote.WriteNonce),
// which the client awaits (Memory.AwaitNonce) and returns.
//
// The server has one Domain per device, with staging memory registered once, and
// an endpoint of its own for each client (Remote): closing an endpoint is the one
// way to take back writes that every provider has, so a client that hangs or dies
// takes no other with it.
//
// # The immediate
//
//	bits 16-31  generation: tag/Slots + 1, from 1 to 65535
//	bits 12-15  slot: tag % Slots
//	bits  0-11  what:
//	    0 - 1023     layer i of the window is ready          (ordered)
//	    1024         the delivery is over                    (ordered)
//	    1025+e       one more write of epoch e has landed    (counting)
//	    2050+e       epoch e is announced: layer e is ready when epochs 0 to e
//	                 are complete; e = 1024: the delivery is over
//	    4095         generation and slot are 0: the nonce has been written
//
// A client keeps one state per slot. A later generation replaces it; an earlier
// one is stale and ignored. A slot has one delivery at a time, and the next one
// begins only when every write of the last has completed or its endpoint is gone.
//
// # Order
//
// If the provider grants write-after-write order (FI_ORDER_RMA_WAW) for writes of
// our size, the layer's writes go first, and then a write of a cell, as below but
// not read, with the layer's immediate. Else the delivery is counted: every write
// carries an immediate of its epoch, which is the number of layers announced so
// far, and LayerReady writes the epoch's number of writes into the control area,
// in an 8-byte cell (little endian: uint32 count, uint16 generation, uint16 epoch) at
//
//	base + length + (slot*(MaxLayers+1) + e) * 8
//
// with the immediate that announces it. All bytes of layer e have been written in
// epochs up to e, so the layer is whole when all of these are complete, in
// whatever order their writes arrive. The cell of the delivery's end lies at e =
// 1024 and holds the epoch that it ends, which has no layer. A delivery that is
// given up is ended by 1024 in both modes, when its writes have completed. The
// client needs no setting: the immediates say which of the two it is.
//
// FI_DELIVERY_COMPLETE is asked for as well, and with a provider that has it a
// completed write lies in the client's memory.
//
// # Closing
//
// Transfer.Close returns when all its writes have completed, so that nothing of
// it can land later, and tells the client with the last of them. A client
// that takes nothing for Config.Stall is dropped: its endpoint is closed, its
// writes are given up, its buffers return to the pool, and Remote.Gone says so.
// What a transport had accepted by then may still reach that client; such a
// client, or one whose request failed, calls Memory.Withdraw, which closes its
// endpoint and its region: after that no write of any server can land. Unlike
// memory shared on one host it can be revoked without the server's help.
//
// # Reading, and clients that do nothing
//
// A Source reads a client's memory by RDMA read into the same staging buffers, for
// objects that are stored from it. A client that dies between deliveries shows
// only when it is written to: Remote.Probe writes the last 8 bytes of the control
// area, which mean nothing, and a Server does so every Config.Probe. No client
// learns that a server has died; what it asks of the server by the control
// channel fails then.
//
// # Providers
//
// With libfabric 1.17, "tcp;ofi_rxm" may crash the client when its connection ends
// in the middle of a write with an immediate; the ordered mode sends these with 8
// bytes only. "shm" is for tests: a process that dies can leave its lock held,
// and whoever writes to it waits for ever. Package transport/shm is for one host.
package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/objcached/objcached/transport"
	"github.com/objcached/objcached/transport/registry"
)

var (
	_ transport.Sink     = (*Transfer)(nil)
	_ transport.Gatherer = (*Transfer)(nil)
)

// Sizes and counts of the protocol.
const (
	NonceBytes = registry.NonceBytes
	Slots      = registry.Slots     // deliveries into one memory at a time
	MaxLayers  = registry.MaxLayers // of one delivery
	PageSize   = 4096               // a memory's length is a multiple of it

	// MaxTag is the last tag whose generation fits the immediate. A memory that
	// has used it up is registered anew.
	MaxTag = Slots*(maxGeneration-1) + Slots - 1

	// ControlBytes follow a memory's last byte in its region.
	ControlBytes = (Slots*(MaxLayers+1)*cellBytes + PageSize - 1) / PageSize * PageSize

	maxGeneration = 1<<16 - 1
	cellBytes     = 8
)

// Address names a client's memory to a server. Key and base are as secret as
// the memory's content: they belong in no log.
type Address struct {
	Provider string // as Domain.Provider says it
	Address  []byte // of the endpoint, in the provider's form
	Key      uint64
	Base     uint64
	Length   int64 // bytes, a multiple of PageSize
}

// String leaves out what must not be logged.
func (a Address) String() string { return fmt.Sprintf("%s memory of %d bytes", a.Provider, a.Length) }

// Format prints String, whatever the verb.
func (a Address) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// LogValue is String too.
func (a Address) LogValue() slog.Value { return slog.StringValue(a.String()) }

// IP is the network address of the endpoint, for providers that have one: a
// server may compare it with that of its caller before it writes anything.
func (a Address) IP() (netip.Addr, bool) {
	const inet, inet6 = 2, 10 // address families; the structs are Linux's sockaddr_in and sockaddr_in6
	b := a.Address
	switch {
	case len(b) == 16 && binary.NativeEndian.Uint16(b) == inet:
		return netip.AddrFrom4([4]byte(b[4:8])), true
	case len(b) == 28 && binary.NativeEndian.Uint16(b) == inet6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap(), true
	}
	return netip.Addr{}, false
}

// Config says which device to use and how much to hold. A zero field means its
// default.
type Config struct {
	Provider  string // libfabric's name; default "tcp;ofi_rxm"
	Node      string // the device's own address; default that of Interface
	Interface string // network interface; default: the fastest with an RDMA device for verbs, else the provider chooses

	// WriteBytes is the most that one write carries, and the size of a staging
	// buffer: slices that lie together in the client's memory are gathered up to
	// it. From 4 KiB to 8 MiB; default 1 MiB.
	WriteBytes int
	Buffers    int // staging buffers of all deliveries; default 64
	// TransferBuffers is how many of them one delivery may hold; default half.
	TransferBuffers int
	Remotes         int           // clients at a time; default 256
	Stall           time.Duration // how long a client may take nothing; default 10 s
	// Probe is how often a Server looks whether an idle client is still there;
	// default 5 s.
	Probe time.Duration
	// Count counts writes even if the provider grants order.
	Count bool

	Now func() time.Time // default time.Now
}

// Window says where in a client's memory a delivery goes.
type Window struct {
	Offset, Length int64 // bytes
	Tag            int64
	FirstLayer     int // the first layer that will be announced
	Layers         int
}

// Stats is what a Domain holds now.
type Stats struct {
	Buffers     int // staging buffers in all
	BufferBytes int // of one
	Free        int // buffers that nobody holds
	Waiting     int // calls that wait for one
	Remotes     int
	Transfers   int
	Writes      int // queued or under way
}

// Errors of this package; none holds a key or an address.
var (
	ErrNotBuilt = errors.New("fabric: built without libfabric: build with make build-fabric")
	// ErrUnknown: what a provider is called here is in Providers.
	ErrUnknown = errors.New("fabric: unknown provider")
	// ErrNoProvider: libfabric has no such provider on this machine, or none at
	// this address.
	ErrNoProvider = errors.New("fabric: libfabric offers no such provider here")
	ErrAddress    = errors.New("fabric: not an address of this provider")
	ErrProvider   = errors.New("fabric: the memory is of another provider")
	ErrWindow     = errors.New("fabric: the window lies outside the memory")
	ErrLayers     = errors.New("fabric: too many layers for one delivery")
	ErrTag        = fmt.Errorf("fabric: the tag is out of range, or its slot is in use: %w", registry.ErrTag)
	ErrBusy       = errors.New("fabric: too many clients")
	ErrGone       = fmt.Errorf("fabric: the client is gone: %w", registry.ErrRevoked)
	ErrStalled    = fmt.Errorf("%w: it took nothing for too long", ErrGone)
	ErrClosed     = errors.New("fabric: closed")
)

// Over is the index for Memory.Wait of a delivery's end.
const Over = -1
