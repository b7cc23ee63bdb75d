package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/transport/fabric"
	"github.com/objcached/objcached/transport/fabric/device"
)

// softRoCE says how to have an RDMA device without a card.
func softRoCE(iface string) string {
	return "With an RDMA card: install its driver (rdma-core, and the kernel's module or the maker's). Without one, to try it: " +
		"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev " + cmp.Or(iface, "eth0")
}

// rdma lists the devices and chooses one, as the fabric will.
func (m *Machine) rdma(r *Report, iface string) Check {
	const name = "RDMA devices"
	list, err := m.Devices.List()
	if err != nil {
		return unknown(name, err.Error(), "")
	}
	r.Devices = append(r.Devices, list...)
	d, err := m.Devices.Choose(iface)
	if err == nil {
		r.Chosen = &d
	}
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.String()
	}
	found := strings.Join(names, "; ")
	switch {
	case err == nil && d.Software:
		return warn(name, found+". Chosen: "+d.Interface, "The chosen device is in software: good for tests, slower than TCP.")
	case err == nil:
		return ok(name, found+". Chosen: "+d.Interface+numaNote(d))
	case iface != "" && len(list) == 0: // serve would not start with it
		return required(missing(name, reason(err), softRoCE(iface)))
	case iface != "":
		return required(missing(name, reason(err), "Name another interface with --fabric-interface, or bring this one up."))
	case len(list) == 0:
		return missing(name, "none: layers go to clients on other hosts by TCP", softRoCE(""))
	case slices.ContainsFunc(list, func(d device.Device) bool { return d.Driver == "efa" }):
		return warn(name, found, "An Elastic Fabric Adapter: libfabric's provider efa finds it by itself. objcached has not been tested on one.")
	case errors.Is(err, device.ErrNoDevice):
		return missing(name, found+". "+reason(err), "Bring the link up and give the interface an IP address.")
	}
	return warn(name, found+". "+reason(err), "Name one with --fabric-interface.")
}

func reason(err error) string { return strings.TrimPrefix(err.Error(), "device: ") }

func numaNote(d device.Device) string {
	if d.NUMANode < 0 {
		return ""
	}
	return fmt.Sprintf(", near the cores and memory of NUMA node %d", d.NUMANode)
}

// charDevices are how a process reaches the hardware.
func (m *Machine) charDevices(devices int) Check {
	const name = "/dev/infiniband"
	files, err := filepath.Glob(m.path("dev/infiniband/uverbs*"))
	if err != nil || len(files) == 0 {
		if devices == 0 {
			return missing(name, "no uverbs devices, as there is no RDMA device", "")
		}
		return missing(name, "no uverbs devices: programs cannot reach the RDMA devices",
			"modprobe ib_uverbs; in a container: --device=/dev/infiniband.")
	}
	cm := m.path("dev/infiniband/rdma_cm")
	if !m.exists("dev/infiniband/rdma_cm") {
		return missing(name, fmt.Sprintf("%d uverbs, but no rdma_cm, by which connections are made", len(files)),
			"modprobe rdma_ucm; in a container: --device=/dev/infiniband.")
	}
	for _, f := range append(files, cm) {
		if err := m.Try.Open(f); err != nil {
			return missing(name, fmt.Sprintf("%s cannot be opened: %v", strings.TrimPrefix(f, strings.TrimSuffix(m.Root, "/")), err),
				"Run as a user who may (group rdma on many systems); in a container: --device=/dev/infiniband.")
		}
	}
	return ok(name, fmt.Sprintf("%d uverbs and rdma_cm, which this user may open", len(files)))
}

// modules looks at the kernel modules between a card and a program.
func (m *Machine) modules(devices []device.Device) Check {
	const name = "kernel modules"
	want := []string{"ib_uverbs", "rdma_ucm"}
	if !slices.ContainsFunc(devices, func(d device.Device) bool { return !d.Software }) {
		want = append(want, "rdma_rxe") // no hardware: Soft-RoCE is what there could be
	}
	folder := "lib/modules/" + m.release()
	known := m.read(folder+"/modules.dep") + "\n" + m.read(folder+"/modules.builtin")
	var parts, load, absent []string
	unsure := false
	for _, mod := range want {
		switch {
		case m.exists("sys/module/" + mod):
			parts = append(parts, mod+" loaded")
		case strings.Contains(known, "/"+mod+".ko"):
			parts, load = append(parts, mod+" not loaded"), append(load, mod)
		case m.exists(folder):
			parts, absent = append(parts, mod+" not installed"), append(absent, mod)
		default:
			parts, unsure = append(parts, mod+" not loaded"), true
		}
	}
	finding := strings.Join(parts, ", ")
	switch {
	case len(absent) > 0:
		return missing(name, finding, "This kernel has no "+strings.Join(absent, ", ")+": install a full one (Debian: linux-image-amd64, not -cloud; Ubuntu: linux-modules-extra-$(uname -r)).")
	case unsure:
		return unknown(name, finding+"; /"+folder+" is not here, so what could be loaded cannot be told", "In a container, look on its host.")
	case len(load) > 0:
		return warn(name, finding, "If RDMA is wanted: modprobe "+strings.Join(load, " "))
	}
	return ok(name, finding)
}

// lockedMemory is what a process may pin for a device to write to.
func (m *Machine) lockedMemory(devices int) Check {
	const name, enough = "locked memory (ulimit -l)", 1 << 30
	n, err := m.Rlimit(unix.RLIMIT_MEMLOCK)
	if err != nil {
		return unknown(name, err.Error(), "")
	}
	if n == unix.RLIM_INFINITY {
		return ok(name, "unlimited")
	}
	caps, err := strconv.ParseUint(m.field("proc/self/status", "CapEff"), 16, 64)
	const ipcLock = 14
	// The kernel asks for the capability in the first user namespace, whose map
	// is the identity.
	first := strings.Join(strings.Fields(m.read("proc/self/uid_map")), " ") == "0 0 4294967295"
	if err == nil && first && caps&(1<<ipcLock) != 0 {
		return ok(name, fmt.Sprintf("%s, which does not bind this process (CAP_IPC_LOCK)", bytesText(int64(n))))
	}
	const advice = "Memory that an RDMA device writes to is pinned: ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit (docker: --ulimit memlock=-1)."
	switch {
	case n >= enough:
		return ok(name, bytesText(int64(n)))
	case devices == 0:
		return warn(name, bytesText(int64(n))+", too little for RDMA, of which there is none", advice)
	}
	return missing(name, bytesText(int64(n))+" is too little to register buffers", advice)
}

// hugePages make a registration smaller for the card's translation cache.
func (m *Machine) hugePages() Check {
	const name = "huge pages"
	total, err := strconv.ParseInt(m.field("proc/meminfo", "HugePages_Total"), 10, 64)
	if err != nil {
		return unknown(name, "/proc/meminfo does not count them", "")
	}
	finding := "none reserved"
	if total > 0 {
		finding = fmt.Sprintf("%d of %s reserved", total, bytesText(m.meminfo("Hugepagesize")))
	}
	// "always [madvise] never": what is in brackets holds.
	mode := func(file string) string {
		_, rest, _ := strings.Cut(m.read("sys/kernel/mm/transparent_hugepage/"+file), "[")
		mode, _, _ := strings.Cut(rest, "]")
		return mode
	}
	anon, shmem := mode("enabled"), mode("shmem_enabled")
	if anon == "" {
		return unknown(name, finding+"; no transparent ones in this kernel, or /sys does not say", "")
	}
	finding += fmt.Sprintf("; transparent ones: %s, for shared memory: %s", anon, shmem)
	switch shmem {
	case "always", "within_size", "advise", "force":
		return ok(name, finding)
	}
	return warn(name, finding, "Buffers in shared memory are made of small pages; for large pools: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

// library looks where the dynamic linker does.
func (m *Machine) library() Check {
	const name, file = "libfabric", "libfabric.so.1"
	for _, dir := range m.libraryDirs() {
		full := m.path(filepath.Join(dir, file))
		if _, err := filepath.EvalSymlinks(full); err != nil {
			continue
		}
		target, _ := filepath.EvalSymlinks(full)
		return ok(name, fmt.Sprintf("%s in %s", filepath.Base(target), dir))
	}
	return missing(name, file+" is in no library directory that the system names",
		"apt-get install libfabric1 (to build: libfabric-dev); AWS and card makers bring their own.")
}

func (m *Machine) libraryDirs() []string {
	dirs := strings.FieldsFunc(m.Env("LD_LIBRARY_PATH"), func(r rune) bool { return r == ':' || r == ';' })
	confs, _ := filepath.Glob(m.path("etc/ld.so.conf.d/*.conf")) // the pattern is well-formed
	for _, conf := range append(confs, m.path("etc/ld.so.conf")) {
		rel, err := filepath.Rel(m.Root, conf)
		if err != nil {
			continue
		}
		for line := range strings.Lines(m.read(rel)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				dirs = append(dirs, line)
			}
		}
	}
	return append(dirs, "/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib",
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
}

func built() Check {
	const name = "this binary"
	if fabric.Built {
		return ok(name, "built with the tag fabric")
	}
	return missing(name, "built without the tag fabric: it delivers by response body and shared memory only",
		"make build-fabric (needs libfabric-dev and a C compiler, which it installs when run as root)")
}

// providers are what libfabric itself finds usable here.
func (m *Machine) providers(ctx context.Context) Check {
	const name = "libfabric providers"
	out, err := m.Output(ctx, "fi_info")
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return unknown(name, "fi_info is not installed", "apt-get install libfabric-bin, and ask again.")
	case errors.As(err, &exit) && len(out) == 0:
		return missing(name, fmt.Sprintf("fi_info finds none (%v)", err), "")
	case err != nil:
		return unknown(name, "fi_info: "+err.Error(), "")
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if p, found := strings.CutPrefix(line, "provider: "); found {
			names = append(names, strings.TrimSpace(p))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return unknown(name, "fi_info's answer names none", "")
	}
	finding := strings.Join(names, ", ")
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "verbs") || strings.HasPrefix(n, "efa") }) {
		return warn(name, finding+": none of them is RDMA", "tcp;ofi_rxm serves for tests; verbs and efa appear when there is a device.")
	}
	return ok(name, finding)
}
