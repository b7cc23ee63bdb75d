package device_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Mellanox/rdmamap"

	"github.com/objcached/objcached/transport/fabric/device"
	"github.com/objcached/objcached/transport/fabric/device/devicetest"
)

func TestList(t *testing.T) {
	addr := netip.MustParseAddr
	want := map[string][]device.Device{
		"roce": {
			{RDMADevice: "mlx5_0", Port: 1, Interface: "ens1f0", Address: addr("10.1.0.10"), LinkLayer: "Ethernet", State: "ACTIVE", LinkRate: 100e9, NUMANode: 1, Driver: "mlx5_core"},
			{RDMADevice: "mlx5_0", Port: 1, Interface: "ens1f0.7", Address: addr("10.7.0.10"), LinkLayer: "Ethernet", State: "ACTIVE", LinkRate: 100e9, NUMANode: 1, Driver: "mlx5_core"},
			{RDMADevice: "mlx5_1", Port: 1, Interface: "ens1f1", Address: addr("10.2.0.10"), LinkLayer: "Ethernet", State: "DOWN", LinkRate: 100e9, NUMANode: 1},
		},
		"infiniband": {
			{RDMADevice: "mlx4_0", Port: 1, Interface: "ib0", Address: addr("10.3.0.10"), LinkLayer: "InfiniBand", State: "ACTIVE", LinkRate: 56e9, NUMANode: -1},
			{RDMADevice: "mlx4_0", Port: 2, Interface: "ib1", LinkLayer: "InfiniBand", State: "ACTIVE", LinkRate: 56e9, NUMANode: -1},
		},
		"efa": {
			{RDMADevice: "rdmap0s6", Port: 1, LinkLayer: "Unspecified", State: "ACTIVE", LinkRate: 100e9, NUMANode: 0, Driver: "efa"},
		},
		"nothing": nil,
		"softroce": {
			{RDMADevice: "rxe0", Port: 1, Interface: "eth0", Address: addr("192.0.2.30"), LinkLayer: "Ethernet", State: "ACTIVE", LinkRate: 10e9, NUMANode: 0, Software: true},
			{RDMADevice: "rxe10", Port: 1, Interface: "d0", Address: addr("10.0.0.1"), LinkLayer: "Ethernet", State: "ACTIVE", NUMANode: -1, Software: true},
		},
	}
	for _, name := range devicetest.Machines {
		got, err := devicetest.System(devicetest.Machine(t, name)).List()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got) != len(want[name]) {
			t.Errorf("%s: %d devices, want %d: %v", name, len(got), len(want[name]), got)
			continue
		}
		for i, w := range want[name] {
			if got[i] != w {
				t.Errorf("%s device %d:\n got %+v\nwant %+v", name, i, got[i], w)
			}
		}
	}
}

// TestPortWithoutInterface: an InfiniBand port without IPoIB is listed.
func TestPortWithoutInterface(t *testing.T) {
	root := devicetest.Machine(t, "infiniband")
	for _, name := range []string{"ib0", "ib1"} {
		if err := os.Remove(filepath.Join(root, "sys/class/net", name)); err != nil {
			t.Fatal(err)
		}
	}
	s := devicetest.System(root)
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].Interface != "" || list[1].Port != 2 {
		t.Fatalf("%v %v", list, err)
	}
	if _, err := s.Choose(""); !errors.Is(err, device.ErrNoDevice) || !strings.Contains(err.Error(), "port 1 of mlx4_0 has no network interface") {
		t.Error(err)
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		machine, iface string
		want           string // the RDMA device, or
		errs           []string
		none           bool
	}{
		{machine: "roce", iface: "ens1f0", want: "mlx5_0"},
		{machine: "roce", iface: "ens1f0.7", want: "mlx5_0"},
		{machine: "roce", iface: "ens1f1", errs: []string{"port 1 of mlx5_1 is DOWN", "to choose from: ens1f0 (mlx5_0 port 1, 10.1.0.10, Ethernet, 100 Gb/s, NUMA node 1), ens1f0.7"}},
		{machine: "roce", iface: "eno1", errs: []string{"network interface eno1 has no RDMA device", "ens1f0 (mlx5_0"}},
		{machine: "roce", iface: "ens9", errs: []string{`there is no network interface "ens9"`, "ens1f0 (mlx5_0"}},
		{machine: "roce", iface: "bonding_masters", errs: []string{"there is no network interface"}},
		{machine: "roce", iface: "", errs: []string{"must be named", "ens1f0 (", "ens1f0.7 ("}},
		{machine: "infiniband", iface: "", want: "mlx4_0"}, // the only one with an address
		{machine: "infiniband", iface: "ib0", want: "mlx4_0"},
		{machine: "infiniband", iface: "ib1", errs: []string{"ib1 has no IP address", "to choose from: ib0"}},
		{machine: "efa", iface: "", errs: []string{"Elastic Fabric Adapter"}, none: true},
		{machine: "efa", iface: "ens5", errs: []string{"network interface ens5 has no RDMA device"}},
		{machine: "nothing", iface: "", errs: []string{"this machine has none"}, none: true},
		{machine: "nothing", iface: "eth0", errs: []string{"this machine has none", "eth0"}, none: true},
		{machine: "nothing", iface: "eth1", errs: []string{`no network interface "eth1"`, "no interface has an RDMA device"}},
		{machine: "softroce", iface: "", want: "rxe0"},
		{machine: "softroce", iface: "d0", want: "rxe10"},
	} {
		got, err := devicetest.System(devicetest.Machine(t, c.machine)).Choose(c.iface)
		if c.errs == nil {
			if err != nil || got.RDMADevice != c.want || !got.Address.IsValid() {
				t.Errorf("%s %q: %+v %v, want %s", c.machine, c.iface, got, err, c.want)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s %q: %+v, want an error", c.machine, c.iface, got)
			continue
		}
		for _, w := range c.errs {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s %q: %q lacks %q", c.machine, c.iface, err, w)
			}
		}
		if errors.Is(err, device.ErrNoDevice) != c.none {
			t.Errorf("%s %q: ErrNoDevice is %v of %q", c.machine, c.iface, !c.none, err)
		}
	}
}

// TestHardwareFirst: a device in hardware is taken before one in software that
// claims more.
func TestHardwareFirst(t *testing.T) {
	root := devicetest.Machine(t, "softroce")
	devicetest.Build(t, root, `
sys/devices/pci1/1/numa_node = 1
sys/devices/pci1/1/net/ens1/type = 1
sys/devices/pci1/1/net/ens1/dev_port = 0
sys/devices/pci1/1/infiniband/bnxt_re0/device -> ../..
sys/devices/pci1/1/infiniband/bnxt_re0/ports/1/state = 4: ACTIVE
sys/devices/pci1/1/infiniband/bnxt_re0/ports/1/rate = 5 Gb/sec (1X DDR)
sys/class/net/ens1 -> ../../devices/pci1/1/net/ens1
sys/class/infiniband/bnxt_re0 -> ../../devices/pci1/1/infiniband/bnxt_re0
answers/addresses/ens1 = 10.9.0.1`)
	// Not known to rdmamap: found as a function of the same card.
	if d, err := devicetest.System(root).Choose(""); err != nil || d.RDMADevice != "bnxt_re0" || d.NUMANode != 1 {
		t.Errorf("%+v %v", d, err)
	}
}

// TestThisMachine asks the real system: whatever it has, List, Choose and
// rdmamap agree. In the hardware lab the environment says what there must be.
func TestThisMachine(t *testing.T) {
	list, err := device.System{}.List()
	if err != nil {
		t.Fatal(err)
	}
	want := os.Getenv("OBJCACHED_TEST_RDMA_DEVICE")
	found := want == ""
	for _, d := range list {
		found = found || d.RDMADevice == want
		got, err := device.Choose(d.Interface)
		if ok, _ := d.Usable(); d.Interface != "" && ok != (err == nil) {
			t.Errorf("%s: %+v %v", d, got, err)
		}
		if d.LinkLayer == "Ethernet" && d.State == "ACTIVE" {
			if name, err := rdmamap.GetRdmaDeviceForNetdevice(d.Interface); err != nil || name != d.RDMADevice {
				t.Errorf("%s: rdmamap says %q %v", d, name, err)
			}
		}
	}
	if !found {
		t.Errorf("no %s in %v", want, list)
	}
	if _, err := device.Choose("no such interface"); err == nil {
		t.Error("an interface that does not exist is chosen")
	}
}
