//go:build fabric && cgo

package fabric

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -lfabric
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Built reports whether this binary has libfabric.
const Built = true

const (
	opsPerRemote = C.FAB_OPS
	batch        = C.FAB_BATCH
)

// device is an open fabric and domain. Its calls, and those of its endpoints,
// are made by one thread at a time (FI_THREAD_DOMAIN).
type device struct {
	c *C.struct_fab // C memory: libfabric keeps what lies in it
}

// failure is a libfabric error as a Go error.
func failure(what string, rc C.int) error {
	return fmt.Errorf("fabric: %s: %s", what, C.GoString(C.fab_strerror(rc)))
}

func openDevice(cfg *Config) (*device, error) {
	node, err := nodeOf(cfg)
	if err != nil {
		return nil, err
	}
	provider := C.CString(cfg.Provider)
	defer C.free(unsafe.Pointer(provider))
	var cnode *C.char
	if node != "" {
		cnode = C.CString(node)
		defer C.free(unsafe.Pointer(cnode))
	}
	d := &device{c: (*C.struct_fab)(C.calloc(1, C.sizeof_struct_fab))}
	if rc := C.fab_open(d.c, provider, cnode); rc != 0 {
		err := failure(C.GoString(d.c.what), rc)
		if d.what() == "fi_getinfo" {
			err = fmt.Errorf("%w: %s at %q: %w", ErrNoProvider, cfg.Provider, node, err)
		}
		C.free(unsafe.Pointer(d.c))
		return nil, err
	}
	return d, nil
}

func (d *device) what() string     { return C.GoString(d.c.what) }
func (d *device) provider() string { return C.GoString(&d.c.provider[0]) }

// ordered reports whether writes of n bytes land in the order of their posting.
func (d *device) ordered(n int) bool { return d.c.ordered != 0 && uint64(d.c.order_size) >= uint64(n) }

func (d *device) close() {
	C.fab_close(d.c)
	C.free(unsafe.Pointer(d.c))
}

// openEndpoint opens an endpoint; peer is nil for one that others write to.
func (d *device) openEndpoint(peer []byte) (*C.struct_fab_ep, error) {
	var ep *C.struct_fab_ep
	if rc := C.fab_ep_open(d.c, &ep); rc != 0 {
		return nil, failure(d.what(), rc)
	}
	if peer == nil {
		return ep, nil
	}
	own, err := nameOf(ep)
	if err == nil {
		err = checkName(peer, own)
	}
	if err == nil {
		// A longer buffer than the name: a provider that reads on finds zeros.
		var name [maxName + 8]byte
		copy(name[:], peer)
		if C.fab_ep_peer(ep, (*C.uint8_t)(&name[0])) != 0 {
			err = ErrAddress
		}
	}
	if err != nil {
		C.fab_ep_close(ep)
		return nil, err
	}
	return ep, nil
}

func nameOf(ep *C.struct_fab_ep) ([]byte, error) {
	var name [maxName]byte
	n := C.size_t(len(name))
	if rc := C.fab_ep_name(ep, (*C.uint8_t)(&name[0]), &n); rc != 0 {
		return nil, failure("fi_getname", rc)
	}
	return append([]byte(nil), name[:n]...), nil
}

// checkName compares the form of a client's address with that of our own: the
// provider reads as many bytes as that form has.
func checkName(name, own []byte) error {
	switch {
	case len(name) == 0 || len(name) > maxName:
		return ErrAddress
	case len(own) > 4 && string(own[:3]) == "fi_": // a text, as shm has it
		if name[len(name)-1] != 0 {
			return ErrAddress
		}
	case len(name) != len(own):
		return ErrAddress
	case len(own) == unix.SizeofSockaddrInet4 || len(own) == unix.SizeofSockaddrInet6:
		if binary.NativeEndian.Uint16(name) != binary.NativeEndian.Uint16(own) {
			return ErrAddress
		}
	}
	return nil
}

// region is registered memory.
type region struct{ mr C.struct_fab_mr }

// register registers mem, which is not Go's, with ep if the provider wants that.
func (d *device) register(ep *C.struct_fab_ep, mem []byte, target bool, key uint64) (*region, error) {
	if d.c.prov_key != 0 {
		key = 0
	} else if n := uint(d.c.key_size); n < 8 {
		key &= 1<<(8*n) - 1
	}
	var t C.int
	if target {
		t = 1
	}
	r := (*region)(C.calloc(1, C.size_t(unsafe.Sizeof(region{}))))
	if rc := C.fab_reg(d.c, ep, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), t, C.uint64_t(key), &r.mr); rc != 0 {
		C.free(unsafe.Pointer(r))
		return nil, failure(d.what(), rc)
	}
	return r, nil
}

func (r *region) close() {
	C.fab_unreg(&r.mr)
	C.free(unsafe.Pointer(r))
}

// anonymous maps n bytes that are not Go's.
func anonymous(n int64) ([]byte, error) {
	if int64(int(n)) != n {
		return nil, unix.ENOMEM
	}
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("fabric: mmap of %d bytes: %w", n, err)
	}
	// A child process must not share the pages: a device would then write to a copy.
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(fmt.Errorf("fabric: madvise: %w", err), unix.Munmap(mem))
	}
	return mem, nil
}

func newWake() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("fabric: eventfd: %w", err)
	}
	return fd, nil
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

func wake(fd int) {
	_, _ = unix.Write(fd, one) // a full counter wakes as well
}

func closeWake(fd int) { _ = unix.Close(fd) } // it is ours and open

func unmap(mem []byte) { _ = unix.Munmap(mem) } // it is ours and mapped
