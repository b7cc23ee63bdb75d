// Package devicetest makes trees that stand for the /sys of other machines.
//
// A tree is a text of lines "path = content" and "path -> target of a link".
// Two folders are not the kernel's: answers/rdmamap/IFACE is the device that
// rdmamap would name for an interface there, answers/addresses/IFACE the
// interface's addresses.
package devicetest

import (
	"embed"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcached/objcached/transport/fabric/device"
)

//go:embed testdata
var texts embed.FS

// Machines are the names that Machine takes.
var Machines = []string{"roce", "infiniband", "efa", "nothing", "softroce"}

// Machine builds the tree of one of Machines and returns its root.
func Machine(t testing.TB, name string) string {
	t.Helper()
	b, err := texts.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	Build(t, root, string(b))
	return root
}

// Build adds a tree below root.
func Build(t testing.TB, root, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		if name, target, ok := strings.Cut(line, " -> "); ok {
			path := filepath.Join(root, name)
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.Symlink(target, path)
			}
		} else if name, content, ok := strings.Cut(line, " = "); ok {
			path := filepath.Join(root, name)
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, []byte(strings.ReplaceAll(content, `\n`, "\n")+"\n"), 0o644)
			}
		} else {
			err = errors.New("not a line of a tree")
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// System looks at a tree, and at nothing of this machine.
func System(root string) device.System {
	answer := func(kind, iface string) (string, error) {
		b, err := os.ReadFile(filepath.Join(root, "answers", kind, iface))
		return strings.TrimSpace(string(b)), err
	}
	return device.System{
		Root:     root,
		DeviceOf: func(iface string) (string, error) { return answer("rdmamap", iface) },
		Addresses: func(iface string) ([]netip.Addr, error) {
			text, err := answer("addresses", iface)
			if err != nil {
				return nil, err
			}
			var list []netip.Addr
			for a := range strings.FieldsSeq(text) {
				addr, err := netip.ParseAddr(a)
				if err != nil {
					return nil, err
				}
				list = append(list, addr)
			}
			return list, nil
		},
	}
}
