package device

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ErrNoDevice is wrapped by errors of Choose that no choice of interface mends:
// this machine has no RDMA device that is ready.
var ErrNoDevice = errors.New("no RDMA device is ready")

// Address is what libfabric is asked for on this machine to use a network
// interface without RDMA, as the providers over TCP do.
func Address(iface string) (netip.Addr, error) {
	s := System{}
	names, err := s.interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("device: %w", err)
	}
	if !slices.Contains(names, iface) {
		return netip.Addr{}, fmt.Errorf("device: there is no network interface %q", iface)
	}
	a := s.address(iface)
	if !a.IsValid() {
		return a, fmt.Errorf("device: %s has no IP address", iface)
	}
	return a, nil
}

// Choose is System.Choose on this machine.
func Choose(iface string) (Device, error) { return System{}.Choose(iface) }

// Choose is the device behind a network interface, ready for a connection: its
// Address is valid. Without a name it is the fastest device in hardware, or the
// fastest in software if that is all there is; several of the same speed are an
// error, because the wrong one may not reach the peer. Errors list what there
// is to choose from.
func (s System) Choose(iface string) (Device, error) {
	all, err := s.List()
	if err != nil {
		return Device{}, fmt.Errorf("device: %w", err)
	}
	ready := slices.DeleteFunc(slices.Clone(all), func(d Device) bool { ok, _ := d.Usable(); return !ok })
	if iface == "" {
		return fastest(all, ready)
	}
	for _, d := range all {
		if d.Interface != iface {
			continue
		}
		if ok, why := d.Usable(); !ok {
			return d, fmt.Errorf("device: %s cannot be used: %s; %s", iface, why, candidates(ready))
		}
		return d, nil
	}
	names, err := s.interfaces()
	switch {
	case err != nil:
		return Device{}, fmt.Errorf("device: %w", err)
	case !slices.Contains(names, iface):
		return Device{}, fmt.Errorf("device: there is no network interface %q; %s", iface, candidates(ready))
	case len(all) == 0:
		return Device{}, fmt.Errorf("device: %w: this machine has none, so neither has %s", ErrNoDevice, iface)
	}
	return Device{}, fmt.Errorf("device: network interface %s has no RDMA device; %s", iface, candidates(ready))
}

func fastest(all, ready []Device) (Device, error) {
	switch {
	case len(all) == 0:
		return Device{}, fmt.Errorf("device: %w: this machine has none", ErrNoDevice)
	case len(ready) == 0:
		var whys []string
		for _, d := range all {
			_, why := d.Usable()
			whys = append(whys, why)
		}
		return Device{}, fmt.Errorf("device: %w: %s", ErrNoDevice, strings.Join(whys, "; "))
	}
	better := func(a, b Device) bool {
		if a.Software != b.Software {
			return b.Software
		}
		return a.LinkRate > b.LinkRate
	}
	best := ready[0]
	for _, d := range ready[1:] {
		if better(d, best) {
			best = d
		}
	}
	equals := slices.DeleteFunc(slices.Clone(ready), func(d Device) bool { return better(best, d) })
	if len(equals) > 1 {
		return Device{}, fmt.Errorf("device: several are as fast as each other, so the interface must be named; %s", candidates(equals))
	}
	return best, nil
}

func candidates(ready []Device) string {
	if len(ready) == 0 {
		return "no interface has an RDMA device that is ready"
	}
	names := make([]string, len(ready))
	for i, d := range ready {
		names[i] = d.String()
	}
	return "to choose from: " + strings.Join(names, ", ")
}
