//go:build fabric && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Limit is what a delivery is measured against: the unavoidable work and nothing
// else. One thread fills registered memory by read, n bytes at off of the
// payload at a time, and writes each Config.WriteBytes of it to the same offset
// of the client's memory with an immediate. It returns how long that took, the
// connection being there, until the last write completed.
func Limit(cfg Config, a Address, total int64, n int, read func(p []byte, off int64) error) (took time.Duration, err error) {
	if err := cfg.setDefaults(); err != nil {
		return 0, err
	}
	n = min(n, cfg.WriteBytes)
	if total <= 0 || n <= 0 || total > a.Length {
		return 0, ErrWindow
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dev, err := openDevice(&cfg)
	if err != nil {
		return 0, err
	}
	defer dev.close()
	ep, err := dev.openEndpoint(a.Address)
	if err != nil {
		return 0, err
	}
	defer func() { C.fab_ep_close(ep) }()
	const buffers = 16
	mem, err := anonymous(int64(buffers * cfg.WriteBytes))
	if err != nil {
		return 0, err
	}
	defer unmap(mem)
	reg, err := dev.register(ep, mem, false, 1)
	if err != nil {
		return 0, err
	}
	defer reg.close()
	b := bare{dev: dev}
	if b.wake, err = newWake(); err != nil {
		return 0, err
	}
	defer closeWake(b.wake)
	if rc := C.fab_step_alloc(&b.step, 1); rc != 0 {
		return 0, failure("allocate", rc)
	}
	defer C.fab_step_free(b.step)
	*b.step.eps, b.step.neps = ep, 1
	for i := range buffers {
		b.free = append(b.free, buffers-1-i)
	}
	all := func(total int64) error {
		for off := int64(0); off < total; {
			for len(b.free) == 0 {
				if err := b.run(0); err != nil {
					return err
				}
			}
			i := b.free[len(b.free)-1]
			b.free = b.free[:len(b.free)-1]
			p := mem[i*cfg.WriteBytes:][:min(int64(cfg.WriteBytes), total-off)]
			for at := 0; at < len(p); at += n {
				if err := read(p[at:min(at+n, len(p))], off+int64(at)); err != nil {
					return err
				}
			}
			b.step.writes[0] = C.struct_fab_write{ep: ep, buf: unsafe.Pointer(&p[0]), desc: reg.mr.desc, len: C.size_t(len(p)),
				addr: C.uint64_t(a.Base + uint64(off)), key: C.uint64_t(a.Key), op: C.uint32_t(i), note: 1, imm: C.uint32_t(immNonce)}
			for posted := false; !posted; {
				if err := b.run(1); err != nil {
					return err
				}
				posted = b.step.writes[0].status == 0
			}
			off += int64(len(p))
		}
		for len(b.free) < buffers {
			if err := b.run(0); err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(1); err != nil { // makes the connection
		return 0, err
	}
	start := time.Now()
	err = all(total)
	return time.Since(start), err
}

// bare is the state of Limit's loop.
type bare struct {
	dev  *device
	step *C.struct_fab_step
	wake int
	free []int
}

// run makes a step with n writes; with none it waits for a completion.
func (b *bare) run(n int) error {
	b.step.nwrites = C.uint32_t(n)
	if C.fab_step_run(b.dev.c, b.step, 1) != 0 {
		C.fab_step_wait(b.step, C.int(b.wake), 1000)
	}
	if n > 0 && b.step.writes[0].status != 0 && b.step.writes[0].status != C.fab_eagain {
		return failure("write", b.step.writes[0].status)
	}
	for i := range int(b.step.ndone) {
		if d := b.step.done[i]; d.err != 0 || d.op < 0 {
			return errors.Join(ErrGone, fmt.Errorf("fabric: %w", failure("write", d.err)))
		}
		b.free = append(b.free, int(b.step.done[i].op))
	}
	return nil
}
