package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/transport/fabric"
	"github.com/objcached/objcached/transport/fabric/device/devicetest"
)

// healthy is what a machine has beside its RDMA devices, when nothing is wrong.
const healthy = `
proc/sys/kernel/osrelease = 6.1.0-42-amd64
proc/meminfo = MemTotal:       65536000 kB\nMemAvailable:   60000000 kB\nHugePages_Total:      16\nHugepagesize:       2048 kB
proc/cpuinfo = processor : 0\nflags : fpu sse4_2 pclmulqdq sha_ni
proc/self/cgroup = 0::/system.slice/objcached.service
proc/self/mountinfo = 30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw
proc/self/status = Name: x\nCapEff: 0000000000000000
proc/self/uid_map = 0 0 4294967295
sys/fs/cgroup/system.slice/objcached.service/memory.max = max
sys/kernel/mm/transparent_hugepage/enabled = always [madvise] never
sys/kernel/mm/transparent_hugepage/shmem_enabled = always within_size [advise] never deny force
sys/module/ib_uverbs/refcnt = 0
sys/module/rdma_ucm/refcnt = 0
sys/module/rdma_rxe/refcnt = 0
dev/infiniband/uverbs0 = x
dev/infiniband/rdma_cm = x
etc/ld.so.conf.d/x.conf = # ours\n/opt/fabric/lib
opt/fabric/lib/libfabric.so.1.29.1 = x
opt/fabric/lib/libfabric.so.1 -> libfabric.so.1.29.1
`

const fiInfo = "provider: verbs;ofi_rxm\n    fabric: IB\nprovider: tcp\nprovider: verbs;ofi_rxm\nprovider: tcp;ofi_rxm\n"

// machine is a healthy one with the RDMA devices of a tree.
func machine(t *testing.T, name string) *Machine {
	t.Helper()
	root := devicetest.Machine(t, name)
	devicetest.Build(t, root, healthy)
	return &Machine{
		Root: root, Devices: devicetest.System(root),
		Rlimit: func(int) (uint64, error) { return unix.RLIM_INFINITY, nil },
		Sleep:  func(d time.Duration) time.Duration { return d + 55*time.Microsecond },
		Timer:  func(d time.Duration) time.Duration { return d + time.Millisecond },
		Output: func(context.Context, string, ...string) ([]byte, error) { return []byte(fiInfo), nil },
		Env:    func(string) string { return "" },
		Try: Tries{
			Files:   func(string) Files { return Files{FS: "XFS", Free: 1 << 40, Size: 2 << 40, DirectUnit: 512} },
			IOUring: func() error { return nil },
			Seals:   func(int) error { return nil },
			Pass:    func() error { return nil },
			Open:    func(string) error { return nil },
		},
	}
}

func find(t *testing.T, r *Report, name string) Check {
	t.Helper()
	for _, g := range r.Groups {
		for _, c := range g.Checks {
			if c.Name == name {
				return c
			}
		}
	}
	t.Fatalf("no check %q", name)
	return Check{}
}

// expect checks one line of a report; words are in the finding or the advice.
func expect(t *testing.T, r *Report, name string, status Status, words ...string) {
	t.Helper()
	c := find(t, r, name)
	if c.Status != status {
		t.Errorf("%s is %s, want %s: %s", name, c.Status, status, c.Finding)
	}
	for _, w := range words {
		if !strings.Contains(c.Finding+" "+c.Advice, w) {
			t.Errorf("%s: %q %q lacks %q", name, c.Finding, c.Advice, w)
		}
	}
	if c.Status == Missing && c.Advice == "" && name != "/dev/infiniband" {
		t.Errorf("%s is missing, and nothing says what to do", name)
	}
}

func TestHealthy(t *testing.T) {
	r := Run(t.Context(), Options{Data: t.TempDir(), FabricInterface: "ens1f0", Machine: machine(t, "roce")})
	for _, g := range r.Groups {
		for _, c := range g.Checks {
			if c.Status != OK && c.Name != "this binary" {
				t.Errorf("%s: %s: %s", c.Name, c.Status, c.Finding)
			}
		}
	}
	expect(t, r, "RDMA devices", OK, "ens1f0 (mlx5_0 port 1, 10.1.0.10, Ethernet, 100 Gb/s, NUMA node 1)", "Chosen: ens1f0", "memory of NUMA node 1", "DOWN")
	expect(t, r, "libfabric", OK, "libfabric.so.1.29.1 in /opt/fabric/lib")
	expect(t, r, "libfabric providers", OK, "tcp, tcp;ofi_rxm, verbs;ofi_rxm")
	expect(t, r, "huge pages", OK, "16 of 2 MiB reserved", "madvise, for shared memory: advise")
	expect(t, r, "sleep granularity", OK, "kernel 155µs, Go's timers 1.1ms")
	if !r.Serve || r.Chosen == nil || r.Chosen.NUMANode != 1 || r.Chosen.LinkRate != 100e9 || len(r.Devices) != 3 {
		t.Errorf("%+v", r)
	}
	wantBuilt := Missing
	if fabric.Built {
		wantBuilt = OK
	}
	expect(t, r, "this binary", wantBuilt)
}

func TestDevices(t *testing.T) {
	for _, c := range []struct {
		machine, iface string
		status         Status
		serve          bool
		words          []string
	}{
		{"nothing", "", Missing, true, []string{"by TCP", "modprobe rdma_rxe", "netdev eth0"}},
		{"nothing", "eth7", Missing, false, []string{`no network interface "eth7"`}},
		{"roce", "", Warn, true, []string{"must be named", "--fabric-interface"}},
		{"roce", "ens1f1", Missing, false, []string{"is DOWN", "to choose from: ens1f0"}},
		{"infiniband", "", OK, true, []string{"InfiniBand", "56 Gb/s", "Chosen: ib0"}},
		{"efa", "", Warn, true, []string{"rdmap0s6", "provider efa", "not been tested"}},
		{"softroce", "", Warn, true, []string{"in software", "Chosen: eth0"}},
		{"softroce", "d0", Warn, true, []string{"Chosen: d0"}},
	} {
		r := Run(t.Context(), Options{FabricInterface: c.iface, Machine: machine(t, c.machine)})
		expect(t, r, "RDMA devices", c.status, c.words...)
		if r.Serve != c.serve {
			t.Errorf("%s %q: serve works: %v", c.machine, c.iface, r.Serve)
		}
	}
}

// TestFaults changes one thing at a time.
func TestFaults(t *testing.T) {
	build := func(line string) func(*testing.T, *Machine) {
		return func(t *testing.T, m *Machine) {
			name, _, _ := strings.Cut(line, " = ")
			if err := os.RemoveAll(m.path(name)); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, " = ") {
				devicetest.Build(t, m.Root, line)
			}
		}
	}
	files := func(f Files) func(*testing.T, *Machine) {
		return func(_ *testing.T, m *Machine) { m.Try.Files = func(string) Files { return f } }
	}
	ring := func(err error, sysctl string) func(*testing.T, *Machine) {
		return func(t *testing.T, m *Machine) {
			m.Try.IOUring = func() error { return err }
			devicetest.Build(t, m.Root, sysctl)
		}
	}
	limit := func(n uint64, more ...string) func(*testing.T, *Machine) {
		return func(t *testing.T, m *Machine) {
			m.Rlimit = func(int) (uint64, error) { return n, nil }
			for _, l := range more {
				build(l)(t, m)
			}
		}
	}
	output := func(out string, err error) func(*testing.T, *Machine) {
		return func(_ *testing.T, m *Machine) {
			m.Output = func(context.Context, string, ...string) ([]byte, error) { return []byte(out), err }
		}
	}
	const v1 = `proc/self/mountinfo = 35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`
	cases := []struct {
		what, check string
		break_      func(*testing.T, *Machine)
		status      Status
		broken      bool // serve does not work
		words       []string
	}{
		{"old kernel", "kernel", build("proc/sys/kernel/osrelease = 4.18.0-553.el8"), Warn, false, []string{"4.18", "5.10"}},
		{"no proc", "kernel", build("proc/sys/kernel/osrelease"), Unknown, false, nil},
		{"cgroup v2 limit", "memory for the page cache", func(t *testing.T, m *Machine) {
			build("sys/fs/cgroup/system.slice/memory.max = 4294967296")(t, m) // the folder above bounds it
			build("sys/fs/cgroup/system.slice/memory.current = 3221225472")(t, m)
			build(`sys/fs/cgroup/system.slice/memory.stat = anon 1073741824\nactive_file 1073741824\ninactive_file 1073741824`)(t, m)
		}, Warn, false, []string{"the cgroup grants 4.0 GiB, of which 3.0 GiB is left", "57.2 GiB of 62.5 GiB"}},
		{"cgroup v1 limit in a container", "memory for the page cache", func(t *testing.T, m *Machine) {
			build(`proc/self/cgroup = 9:name=systemd:/docker/abc\n4:cpu,memory:/docker/abc\n0::/`)(t, m)
			build(v1)(t, m)
			build("sys/fs/cgroup/memory/memory.limit_in_bytes = 2147483648")(t, m)
			build("sys/fs/cgroup/memory/memory.usage_in_bytes = 1610612736")(t, m)
			build(`sys/fs/cgroup/memory/memory.stat = total_active_file 536870912\ntotal_inactive_file 0`)(t, m)
		}, Warn, false, []string{"grants 2.0 GiB, of which 1.0 GiB"}},
		{"cgroup v1 without a limit", "memory for the page cache", func(t *testing.T, m *Machine) {
			build(`proc/self/cgroup = 4:memory:/`)(t, m)
			build(`proc/self/mountinfo = 35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`)(t, m)
			build("sys/fs/cgroup/memory/memory.limit_in_bytes = 9223372036854771712")(t, m)
		}, OK, false, nil},
		{"cgroup hidden", "memory for the page cache", build("proc/self/cgroup"), Unknown, false, []string{"cannot be found"}},
		{"no meminfo", "memory for the page cache", build("proc/meminfo"), Unknown, false, nil},
		{"no SHA-NI", "checksum instructions", build(`proc/cpuinfo = flags : fpu sse4_2`), Warn, false, []string{"SHA-256 in software"}},
		{"no CRC", "checksum instructions", build(`proc/cpuinfo = flags : fpu sse2`), Warn, false, []string{"CRC32C in software"}},
		{"arm", "checksum instructions", build(`proc/cpuinfo = Features : fp asimd aes sha2 crc32`), OK, false, []string{"crc32", "sha2"}},
		{"no cpuinfo", "checksum instructions", build("proc/cpuinfo"), Unknown, false, nil},
		{"few files", "open files (ulimit -n)", limit(1024), Warn, false, []string{"512 connections"}},
		{"coarse sleep", "sleep granularity", func(_ *testing.T, m *Machine) {
			m.Sleep = func(time.Duration) time.Duration { return 4 * time.Millisecond }
		}, Warn, false, []string{"kernel 4ms"}},

		{"read-only", "data directory", files(Files{FS: "ext4", Write: unix.EROFS}), Missing, true, []string{"read-only"}},
		{"no hole punching", "data directory", files(Files{FS: "FUSE", Detach: unix.EOPNOTSUPP}), Missing, true, []string{"ext4 or XFS"}},
		{"in memory", "data directory", files(Files{FS: "tmpfs", Free: 8 << 30}), Warn, false, []string{"restarts"}},
		{"container layer", "data directory", files(Files{FS: "overlay", Free: 8 << 30}), Warn, false, []string{"volume"}},
		{"network", "data directory", files(Files{FS: "NFS", Free: 8 << 30}), Warn, false, []string{"network file system"}},
		{"full", "data directory", files(Files{FS: "ext4", Free: 1 << 20}), Warn, false, []string{"Less than 1 GiB"}},
		{"no O_DIRECT", "direct reads (O_DIRECT)", files(Files{FS: "tmpfs", Free: 8 << 30, Direct: unix.EINVAL}), Missing, false, []string{"does not have them", "not used yet"}},
		{"O_DIRECT fails", "direct reads (O_DIRECT)", files(Files{FS: "ext4", Free: 8 << 30, Direct: unix.EIO}), Unknown, false, nil},

		{"no io_uring", "io_uring", ring(unix.ENOSYS, ""), Missing, false, []string{"this kernel has none", "not used yet"}},
		{"io_uring off", "io_uring", ring(unix.EPERM, "proc/sys/kernel/io_uring_disabled = 2"), Missing, false, []string{"io_uring_disabled=2", "not used yet"}},
		{"io_uring for root", "io_uring", ring(unix.EPERM, "proc/sys/kernel/io_uring_disabled = 1"), Missing, false, []string{"io_uring_group"}},
		{"io_uring by seccomp", "io_uring", ring(unix.EPERM, "proc/sys/kernel/io_uring_disabled = 0"), Missing, false, []string{"seccomp", "not used yet"}},
		{"io_uring without memory", "io_uring", ring(unix.ENOMEM, ""), Unknown, false, nil},

		{"no memfd", "sealed memory (memfd)", func(_ *testing.T, m *Machine) { m.Try.Seals = func(int) error { return unix.ENOSYS } }, Missing, false, nil},
		{"no future write", "F_SEAL_FUTURE_WRITE", func(_ *testing.T, m *Machine) {
			m.Try.Seals = func(seals int) error {
				if seals&unix.F_SEAL_FUTURE_WRITE != 0 {
					return unix.EINVAL
				}
				return nil
			}
		}, Missing, false, []string{"5.1"}},
		{"no passing", "passing memory by socket", func(_ *testing.T, m *Machine) { m.Try.Pass = func() error { return unix.EPROTONOSUPPORT } }, Missing, false, nil},

		{"no uverbs", "/dev/infiniband", build("dev/infiniband/uverbs0"), Missing, false, []string{"modprobe ib_uverbs"}},
		{"no rdma_cm", "/dev/infiniband", build("dev/infiniband/rdma_cm"), Missing, false, []string{"modprobe rdma_ucm"}},
		{"uverbs of others", "/dev/infiniband", func(_ *testing.T, m *Machine) { m.Try.Open = func(string) error { return unix.EACCES } }, Missing, false, []string{"/dev/infiniband/uverbs0 cannot be opened"}},
		{"modules to load", "kernel modules", func(t *testing.T, m *Machine) {
			build("sys/module/rdma_ucm")(t, m)
			build("lib/modules/6.1.0-42-amd64/modules.dep = kernel/drivers/infiniband/core/rdma_ucm.ko: x")(t, m)
		}, Warn, false, []string{"rdma_ucm not loaded", "modprobe rdma_ucm"}},
		{"modules not there", "kernel modules", func(t *testing.T, m *Machine) {
			build("sys/module/rdma_ucm")(t, m)
			build("lib/modules/6.1.0-42-amd64/modules.dep = kernel/net/x.ko:")(t, m)
		}, Missing, false, []string{"rdma_ucm not installed", "linux-image-amd64"}},
		{"modules of a host", "kernel modules", build("sys/module/rdma_ucm"), Unknown, false, []string{"look on its host"}},
		{"memlock", "locked memory (ulimit -l)", limit(8 << 20), Missing, false, []string{"8 MiB", "LimitMEMLOCK"}},
		{"memlock of root", "locked memory (ulimit -l)", limit(8<<20, `proc/self/status = CapEff:	000001ffffffffff`), OK, false, []string{"CAP_IPC_LOCK"}},
		{"memlock of root in a user namespace", "locked memory (ulimit -l)",
			limit(8<<20, `proc/self/status = CapEff:	000001ffffffffff`, `proc/self/uid_map = 0 100000 65536`), Missing, false, nil},
		{"no huge pages for shared memory", "huge pages", build("sys/kernel/mm/transparent_hugepage/shmem_enabled = always [never] force"), Warn, false, nil},
		{"no libfabric", "libfabric", build("opt/fabric/lib/libfabric.so.1"), Missing, false, []string{"libfabric1"}},
		{"no fi_info", "libfabric providers", output("", &exec.Error{Name: "fi_info", Err: exec.ErrNotFound}), Unknown, false, []string{"libfabric-bin"}},
		{"no verbs", "libfabric providers", output("provider: tcp;ofi_rxm\n", nil), Warn, false, []string{"none of them is RDMA"}},
		{"fi_info hangs", "libfabric providers", output("", context.DeadlineExceeded), Unknown, false, nil},
		{"fi_info babbles", "libfabric providers", output("hello\n", nil), Unknown, false, nil},
	}
	for _, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			m := machine(t, "roce")
			c.break_(t, m)
			r := Run(t.Context(), Options{Data: t.TempDir(), FabricInterface: "ens1f0", Machine: m})
			expect(t, r, c.check, c.status, c.words...)
			if r.Serve == c.broken {
				t.Errorf("serve works: %v", r.Serve)
			}
			var text bytes.Buffer
			if err := r.WriteText(&text, 80); err != nil || strings.Contains(text.String(), "does NOT work") != c.broken {
				t.Errorf("%v:\n%s", err, text.String())
			}
		})
	}
}

// TestNothingToRegister: without RDMA a low limit on locked memory is no fault.
func TestNothingToRegister(t *testing.T) {
	m := machine(t, "nothing")
	m.Rlimit = func(int) (uint64, error) { return 64 << 10, nil }
	r := Run(t.Context(), Options{Machine: m})
	expect(t, r, "locked memory (ulimit -l)", Warn, "of which there is none")
	expect(t, r, "data directory", Unknown, "--data")
}

// TestThisMachine runs the real tries. Whatever this machine is, every check
// says something, and the directory can hold a store.
func TestThisMachine(t *testing.T) {
	dir := t.TempDir()
	r := Run(t.Context(), Options{Data: dir})
	if c := find(t, r, "data directory"); !r.Serve || c.Status == Missing || c.Status == Unknown {
		t.Errorf("%+v", c)
	}
	for _, g := range r.Groups {
		for _, c := range g.Checks {
			if c.Name == "" || c.Finding == "" || (c.Status != OK && c.Status != Warn && c.Status != Missing && c.Status != Unknown) {
				t.Errorf("%+v", c)
			}
		}
	}
	// What the shared-memory transport's own tests do here, doctor must find possible.
	for _, name := range []string{"sealed memory (memfd)", "F_SEAL_FUTURE_WRITE", "passing memory by socket"} {
		expect(t, r, name, OK)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	b, err := json.Marshal(r)
	var back Report
	if err != nil || json.Unmarshal(b, &back) != nil || len(back.Groups) != len(r.Groups) || back.Devices == nil {
		t.Errorf("%s %v", b, err)
	}
}

func TestDataDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := Run(t.Context(), Options{Data: filepath.Join(dir, "a", "b"), Machine: machine(t, "nothing")})
	expect(t, r, "data directory", OK, "a/b does not exist yet; tried in "+dir)
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory was made")
	}
	for _, bad := range []string{file, filepath.Join(file, "below")} {
		r := Run(t.Context(), Options{Data: bad, Machine: machine(t, "nothing")})
		expect(t, r, "data directory", Missing)
		if r.Serve {
			t.Errorf("serve works in %s", bad)
		}
	}
	// The real tries, where nothing can be written.
	r = Run(t.Context(), Options{Data: "/proc/self"})
	expect(t, r, "data directory", Missing)
}

func TestWrap(t *testing.T) {
	r := Report{Serve: true, Groups: []Group{{"group", []Check{
		{Name: "long name", Status: Missing, Finding: strings.Repeat("word ", 30), Advice: "do this"}, {Name: "b", Status: OK, Finding: "fine"}}}}}
	var b strings.Builder
	if err := r.WriteText(&b, 60); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 61 {
			t.Errorf("%d columns: %q", len(line)-1, line)
		}
	}
	if strings.Count(b.String(), "word") != 30 || !strings.Contains(b.String(), "-> do this\n") || !strings.Contains(b.String(), "  ok       b          fine\n") {
		t.Errorf("%s", b.String())
	}
}
