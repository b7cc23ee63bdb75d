package fabric

import "testing"

// TestWireNames: every provider has a name of its own on the wire, and none is
// that of memory shared without libfabric.
func TestWireNames(t *testing.T) {
	for _, p := range Providers {
		if back, ok := FromWire(WireName(p)); !ok || back != p || WireName(p) == "shm" {
			t.Errorf("%s is %s on the wire, which is %s, %v", p, WireName(p), back, ok)
		}
	}
	for _, name := range []string{"", "shm", "pigeon", "verbs"} {
		if p, ok := FromWire(name); ok {
			t.Errorf("%q is taken for %s", name, p)
		}
	}
	if key, ok := Key(WireKey(1<<63 + 5)); !ok || key != 1<<63+5 || WireKey(258)[0] != 2 {
		t.Errorf("%d, %v", key, ok)
	}
	if _, ok := Key(make([]byte, 7)); ok {
		t.Error("a key of 7 bytes was taken")
	}
}
