//go:build fabric && cgo

package fabric

import (
	"testing"

	hardware "github.com/objcached/objcached/transport/fabric/device"
)

func TestInterface(t *testing.T) {
	d, err := Open(Config{Provider: "tcp;ofi_rxm", Interface: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if d, err := Open(Config{Provider: "tcp;ofi_rxm", Interface: "no such interface"}); err == nil {
		t.Error("an interface that does not exist is taken", d.Close())
	}
	// verbs takes the device behind the interface, and lo never has one.
	if d, err := Open(Config{Provider: "verbs;ofi_rxm", Interface: "lo"}); err == nil {
		t.Error("verbs on lo", d.Close())
	}
	// Without an interface it takes the fastest, if there is one.
	want, none := hardware.Choose("")
	got, err := nodeOf(&Config{Provider: "verbs;ofi_rxm"})
	if none != nil {
		if err == nil || err.Error() != "fabric: "+none.Error() {
			t.Errorf("%q %v, want %v", got, err, none)
		}
	} else if got != want.Address.String() || err != nil {
		t.Errorf("%q %v, want %v", got, err, want)
	}
}
