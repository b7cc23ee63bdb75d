package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// memory says how much page cache reads can be served from: what the machine
// has, less what the cgroup does not grant. Pages of the cache count against
// the cgroup that read them.
func (m *Machine) memory() Check {
	const name = "memory for the page cache"
	total, avail := m.meminfo("MemTotal"), m.meminfo("MemAvailable")
	if total <= 0 || avail <= 0 {
		return unknown(name, "/proc/meminfo does not say how much memory there is", "")
	}
	finding := fmt.Sprintf("%s of %s available", bytesText(avail), bytesText(total))
	limit, used, known := m.cgroup()
	switch {
	case !known:
		return unknown(name, finding+"; the cgroup's limit cannot be found", "If a cgroup bounds this process, its limit bounds the page cache too.")
	case limit >= total:
		return ok(name, finding+", no lower limit by a cgroup")
	}
	left := max(0, min(avail, limit-used))
	return warn(name, fmt.Sprintf("%s; the cgroup grants %s, of which %s is left", finding, bytesText(limit), bytesText(left)),
		"The page cache counts against this limit, and memory that clients hand over too: raise it (MemoryMax=, docker --memory), or set --shm-bytes below half of it.")
}

// meminfo is a value in bytes, or 0.
func (m *Machine) meminfo(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(m.field("proc/meminfo", name), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// cgroup is the lowest memory limit on this process in bytes, and what of it is
// used by other things than file pages. Without a limit it is very large.
func (m *Machine) cgroup() (limit, used int64, known bool) {
	const none = int64(1) << 62
	limit = none
	for _, v := range []struct{ fstype, controller, limit, usage, prefix string }{
		{"cgroup2", "", "memory.max", "memory.current", ""},
		{"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
	} {
		mount, dir, found := m.cgroupDir(v.fstype, v.controller)
		if !found {
			continue
		}
		known = true
		for ; ; dir = path.Dir(dir) {
			here := path.Join(mount, dir)
			// The root of v2 has no limit file, and "max" is none.
			if n, err := strconv.ParseInt(m.read(path.Join(here, v.limit)), 10, 64); err == nil && n < limit {
				limit = n
				used, _ = strconv.ParseInt(m.read(path.Join(here, v.usage)), 10, 64) // 0: nothing is known to be used
				for _, f := range []string{"active_file", "inactive_file"} {
					n, _ := strconv.ParseInt(m.field(path.Join(here, "memory.stat"), v.prefix+f), 10, 64)
					used -= n
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, max(0, used), known
}

// cgroupDir is where a hierarchy is mounted and the folder of this process
// below it. A hierarchy of version 1 is known by its controller; version 2 has
// "".
func (m *Machine) cgroupDir(fstype, controller string) (mount, dir string, found bool) {
	for line := range strings.Lines(m.read("proc/self/cgroup")) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3) // 4:memory:/path
		if len(part) == 3 && (part[1] == controller || controller != "" && contains(part[1], controller)) {
			dir, found = part[2], true
			break
		}
	}
	if !found || !strings.HasPrefix(dir, "/") {
		return "", "", false
	}
	for line := range strings.Lines(m.read("proc/self/mountinfo")) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || r[0] != fstype || controller != "" && !contains(r[2], controller) {
			continue
		}
		root, mount := l[3], l[4]
		// What is mounted may be a folder of the hierarchy, as in containers.
		if rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(root, "/")); ok && (rest == "" || rest[0] == '/') {
			dir = rest
		}
		return mount, path.Join("/", dir), true
	}
	return "", "", false
}

// contains says whether a list with commas has a word.
func contains(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}
