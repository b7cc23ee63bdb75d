// Package doctor says in plain words what this machine can and cannot do for
// objcached, and what to install or change. It tries what it can try (opening a
// ring, a read around the page cache, sealing memory) and says "unknown" where
// it cannot tell.
package doctor

import (
	"context"

	"github.com/objcached/objcached/transport/fabric/device"
)

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	OK      Status = "ok"
	Warn    Status = "warn"    // it works, but not as well as it could, or not for everything
	Missing Status = "missing" // it does not work here
	Unknown Status = "unknown" // it cannot be told
)

// A Check is one thing looked at.
type Check struct {
	Name     string `json:"name"`
	Status   Status `json:"status"`
	Finding  string `json:"finding"`
	Advice   string `json:"advice,omitempty"`
	Required bool   `json:"required,omitempty"` // `objcached serve` does not work without it
}

// A Group is checks that belong together.
type Group struct {
	Name   string  `json:"name"`
	Checks []Check `json:"checks"`
}

// A Report is all checks of one machine.
type Report struct {
	// Serve is false if something that `objcached serve` needs, as it was asked
	// about, is missing.
	Serve   bool            `json:"serve"`
	Groups  []Group         `json:"groups"`
	Devices []device.Device `json:"rdma_devices"`
	// Chosen is the device that the fabric would use.
	Chosen *device.Device `json:"chosen_device,omitempty"`
}

// Options say what to ask about.
type Options struct {
	Data            string // directory of a store, which need not exist yet; empty: none is looked at
	FabricInterface string // network interface of the fabric; empty: the fastest
	Machine         *Machine
}

// Run looks at the machine. It writes nothing but temporary files, which it
// removes.
func Run(ctx context.Context, o Options) *Report {
	m := o.Machine
	if m == nil {
		m = ThisMachine()
	}
	r := &Report{Devices: []device.Device{}}
	group := func(name string, checks ...Check) {
		r.Groups = append(r.Groups, Group{Name: name, Checks: checks})
	}
	group("machine", m.kernel(), m.memory(), m.processor(), m.openFiles(), m.clock())
	group("storage", append(m.data(o.Data), m.ioUring())...)
	group("shared memory (serve --shm-listen)", m.sealedMemory(), m.readOnlyForOthers(), m.passing())
	chosen := m.rdma(r, o.FabricInterface) // first: the others look at what it finds
	group("RDMA and other fabrics", chosen, m.charDevices(len(r.Devices)), m.modules(r.Devices),
		m.lockedMemory(len(r.Devices)), m.hugePages(), m.library(), built(), m.providers(ctx))
	r.Serve = true
	for _, g := range r.Groups {
		for _, c := range g.Checks {
			if c.Required && c.Status == Missing {
				r.Serve = false
			}
		}
	}
	return r
}

func ok(name, finding string) Check { return Check{Name: name, Status: OK, Finding: finding} }

func warn(name, finding, advice string) Check {
	return Check{Name: name, Status: Warn, Finding: finding, Advice: advice}
}

func missing(name, finding, advice string) Check {
	return Check{Name: name, Status: Missing, Finding: finding, Advice: advice}
}

func unknown(name, finding, advice string) Check {
	return Check{Name: name, Status: Unknown, Finding: finding, Advice: advice}
}
