package bench

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a figure depends on and what may be published: no host name,
// no address, no path.
type Machine struct {
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	MemoryMiB int64  `json:"memory_mib"`
	OS        string `json:"os"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
}

// ThisMachine describes the machine the program runs on.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	m.CPU = field("/proc/cpuinfo", "model name")
	m.MemoryMiB = kib(field("/proc/meminfo", "MemTotal")) >> 10
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// RSSAnon is the resident memory of a process that is not file-backed, in
// bytes, or 0 if it cannot be told.
func RSSAnon(pid int) int64 {
	return kib(field("/proc/"+strconv.Itoa(pid)+"/status", "RssAnon")) << 10
}

// AvailableMemory is what programs may take without others being pushed out, in
// bytes, or 0 if it cannot be told.
func AvailableMemory() int64 { return kib(field("/proc/meminfo", "MemAvailable")) << 10 }

// field is the value of the first "name : value" line of a file of /proc.
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kib reads "123 kB".
func kib(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(s, " kB"), 10, 64) // 0 is "cannot be told"
	return n
}
