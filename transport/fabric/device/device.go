// Package device finds the RDMA devices of this machine by their network
// interfaces. An operator names an interface; libfabric is asked by an address
// of it, and the threads and memory that feed it belong on its NUMA node.
package device

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Device is one port of an RDMA device as one network interface sees it. A
// port with several interfaces (VLANs) is several of them.
type Device struct {
	RDMADevice string     `json:"rdma_device"`         // as in /sys/class/infiniband: mlx5_0
	Port       int        `json:"port"`                // counted from 1
	Interface  string     `json:"interface,omitempty"` // empty if the port has none
	Address    netip.Addr `json:"address,omitzero"`    // what fi_getinfo is asked for; not valid if the interface has none
	LinkLayer  string     `json:"link_layer"`          // Ethernet or InfiniBand
	State      string     `json:"state"`               // ACTIVE, DOWN, INIT, ...
	LinkRate   int64      `json:"link_rate"`           // bits per second; 0 if it cannot be told
	NUMANode   int        `json:"numa_node"`           // -1 if it cannot be told
	Driver     string     `json:"driver,omitempty"`    // of the hardware: mlx5_core, efa
	Software   bool       `json:"software"`            // no hardware below it: Soft-RoCE or Soft-iWARP
}

// Usable says whether the verbs provider can make a connection over the device,
// or why not.
func (d Device) Usable() (ok bool, why string) {
	switch {
	case d.Driver == "efa":
		return false, d.RDMADevice + " is an Elastic Fabric Adapter, which the provider efa finds by itself"
	case d.State != "ACTIVE":
		return false, fmt.Sprintf("port %d of %s is %s", d.Port, d.RDMADevice, orUnknown(d.State))
	case d.Interface == "":
		return false, fmt.Sprintf("port %d of %s has no network interface", d.Port, d.RDMADevice)
	case !d.Address.IsValid():
		return false, d.Interface + " has no IP address"
	}
	return true, ""
}

// String is like "ens1f0 (mlx5_0 port 1, 10.0.0.1, Ethernet, 100 Gb/s, NUMA node 1)".
func (d Device) String() string {
	parts := []string{fmt.Sprintf("%s port %d", d.RDMADevice, d.Port)}
	if d.Address.IsValid() {
		parts = append(parts, d.Address.String())
	}
	parts = append(parts, orUnknown(d.LinkLayer))
	if d.Software {
		parts = append(parts, "in software")
	}
	if d.LinkRate > 0 {
		parts = append(parts, Rate(d.LinkRate))
	}
	if d.NUMANode >= 0 {
		parts = append(parts, "NUMA node "+strconv.Itoa(d.NUMANode))
	}
	if d.State != "ACTIVE" {
		parts = append(parts, orUnknown(d.State))
	}
	name := d.Interface
	if name == "" {
		name = "no interface"
	}
	return name + " (" + strings.Join(parts, ", ") + ")"
}

// Rate renders bits per second as links are sold: "100 Gb/s".
func Rate(bits int64) string {
	if bits < 1e9 {
		return strconv.FormatFloat(float64(bits)/1e6, 'g', 4, 64) + " Mb/s"
	}
	return strconv.FormatFloat(float64(bits)/1e9, 'g', 4, 64) + " Gb/s"
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
