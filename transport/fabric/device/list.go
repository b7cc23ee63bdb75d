package device

import (
	"cmp"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/Mellanox/rdmamap"
)

// A System is where devices are looked for. The zero value is this machine.
type System struct {
	// Root holds sys; default "/".
	Root string
	// DeviceOf names the RDMA device of a network interface, "" or an error if
	// it has none. Default: rdmamap's answer, which is always about /sys and
	// the network namespace of the process.
	DeviceOf func(iface string) (string, error)
	// Addresses lists the IP addresses of a network interface. Default: this
	// process's view.
	Addresses func(iface string) ([]netip.Addr, error)
}

// List is all RDMA ports with their interfaces, by name. A machine without any
// has an empty list and no error.
func (s System) List() ([]Device, error) {
	names, err := s.names("sys/class/infiniband")
	if err != nil {
		return nil, err
	}
	ifaces, err := s.interfaces()
	if err != nil {
		return nil, err
	}
	owners := map[string]string{} // interface to RDMA device
	for _, iface := range ifaces {
		if dev := s.owner(iface, names); dev != "" {
			owners[iface] = dev
		}
	}
	var list []Device
	for _, name := range names {
		ports, err := s.names("sys/class/infiniband/" + name + "/ports")
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			n, err := strconv.Atoi(p)
			if err != nil {
				continue
			}
			port := s.port(name, n)
			bare := true
			for _, iface := range ifaces {
				if owners[iface] == name && (len(ports) == 1 || s.onPort(iface, name, n)) {
					list, bare = append(list, s.withInterface(port, iface)), false
				}
			}
			if bare {
				list = append(list, port)
			}
		}
	}
	slices.SortFunc(list, func(a, b Device) int {
		return cmp.Or(natural(a.RDMADevice, b.RDMADevice), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Interface, b.Interface))
	})
	return list, nil
}

// owner is the RDMA device of an interface, or "".
func (s System) owner(iface string, devices []string) string {
	of := s.DeviceOf
	if of == nil {
		of = rdmamap.GetRdmaDeviceForNetdevice
	}
	if dev, err := of(iface); err == nil && dev != "" {
		return dev
	}
	// rdmamap knows InfiniBand by the node's GUID, which only the first port
	// shares, and RoCE by the GID table, which is empty while the link is down.
	for _, dev := range devices {
		ports, err := s.names("sys/class/infiniband/" + dev + "/ports")
		if err != nil {
			continue
		}
		for _, p := range ports {
			if n, err := strconv.Atoi(p); err == nil && s.onPort(iface, dev, n) {
				return dev
			}
		}
	}
	return ""
}

// onPort says whether an interface sends through a port.
func (s System) onPort(iface, dev string, port int) bool {
	dir := "sys/class/infiniband/" + dev + "/ports/" + strconv.Itoa(port)
	// RoCE: a GID names its interface; an upper one (VLAN) too.
	gids, _ := s.names(dir + "/gid_attrs/ndevs") // none while the link is down
	for _, i := range gids {
		if s.read(dir+"/gid_attrs/ndevs/"+i) == iface {
			return true
		}
	}
	// IPoIB: the last half of the hardware address is the port's GUID.
	if gid := strings.ReplaceAll(s.read(dir+"/gids/0"), ":", ""); s.read(dir+"/link_layer") == "InfiniBand" && len(gid) == 32 {
		mac := strings.ReplaceAll(s.read("sys/class/net/"+iface+"/address"), ":", "")
		return len(mac) == 40 && strings.EqualFold(mac[24:], gid[16:])
	}
	// The same hardware function, and the same port of it.
	if _, err := os.Stat(s.path("sys/class/infiniband/" + dev + "/device/net/" + iface)); err == nil {
		n, err := strconv.Atoi(s.read("sys/class/net/" + iface + "/dev_port"))
		return err == nil && n == port-1
	}
	// Soft-RoCE names the interface it was put on.
	return s.read("sys/class/infiniband/"+dev+"/parent") == iface
}

// port describes a port, without an interface.
func (s System) port(name string, n int) Device {
	dev := "sys/class/infiniband/" + name
	dir := dev + "/ports/" + strconv.Itoa(n)
	d := Device{RDMADevice: name, Port: n, LinkLayer: s.read(dir + "/link_layer"), NUMANode: s.node(dev + "/device/numa_node")}
	_, d.State, _ = strings.Cut(s.read(dir+"/state"), ": ") // "4: ACTIVE"
	if driver, err := os.Readlink(s.path(dev + "/device/driver")); err == nil {
		d.Driver = filepath.Base(driver)
	}
	if _, err := os.Stat(s.path(dev + "/device")); err != nil || s.read(dev+"/parent") != "" {
		d.Software = true
		return d // its rate is made up
	}
	if number, _, ok := strings.Cut(s.read(dir+"/rate"), " Gb/sec"); ok { // "100 Gb/sec (4X EDR)"
		if g, err := strconv.ParseFloat(number, 64); err == nil && g > 0 && g < 1e6 {
			d.LinkRate = int64(g * 1e9)
		}
	}
	return d
}

func (s System) withInterface(d Device, iface string) Device {
	d.Interface = iface
	d.Address = s.address(iface)
	if d.NUMANode < 0 {
		d.NUMANode = s.node("sys/class/net/" + iface + "/device/numa_node")
	}
	if d.LinkRate == 0 {
		d.LinkRate = s.speed(iface)
	}
	return d
}

// speed is what the network driver says, in bits per second: 0 for an interface
// that has no speed (virtual ones say -1 or fail).
func (s System) speed(iface string) int64 {
	mb, err := strconv.ParseInt(s.read("sys/class/net/"+iface+"/speed"), 10, 32)
	if err != nil || mb <= 0 {
		return 0
	}
	return mb * 1e6
}

func (s System) node(file string) int {
	n, err := strconv.Atoi(s.read(file))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// address is the address to ask libfabric for: IPv4 first. Link-local ones are
// left out, since they mean nothing without the interface.
func (s System) address(iface string) netip.Addr {
	of := s.Addresses
	if of == nil {
		of = addresses
	}
	all, err := of(iface)
	if err != nil {
		return netip.Addr{} // the interface has gone meanwhile
	}
	all = slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.IsLinkLocalUnicast() })
	for _, a := range all {
		if a.Is4() {
			return a
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return netip.Addr{}
}

func addresses(iface string) ([]netip.Addr, error) {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, err
	}
	nets, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list, nil
}

// interfaces lists the network interfaces. The folder has files that are none.
func (s System) interfaces() ([]string, error) {
	names, err := s.names("sys/class/net")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(n string) bool { return s.read("sys/class/net/"+n+"/type") == "" }), nil
}

func (s System) path(name string) string {
	return filepath.Join(cmp.Or(s.Root, "/"), name)
}

// names lists a folder; one that does not exist is empty.
func (s System) names(dir string) ([]string, error) {
	entries, err := os.ReadDir(s.path(dir))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// read is the content of a file of one line, or "". Files of /sys that do not
// apply cannot be read.
func (s System) read(file string) string {
	b, err := os.ReadFile(s.path(file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// natural orders mlx5_2 before mlx5_10.
func natural(a, b string) int {
	x, y := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	if x == y && len(a) != len(b) {
		return cmp.Compare(len(a), len(b))
	}
	return cmp.Compare(a, b)
}
