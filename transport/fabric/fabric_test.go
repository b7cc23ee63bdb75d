package fabric

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
)

func TestAddressIP(t *testing.T) {
	v4 := make([]byte, 16)
	binary.NativeEndian.PutUint16(v4, 2)
	copy(v4[4:], []byte{192, 0, 2, 7})
	v6 := make([]byte, 28)
	binary.NativeEndian.PutUint16(v6, 10)
	want6 := netip.MustParseAddr("2001:db8::7").As16()
	copy(v6[8:], want6[:])
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"v4": {v4, "192.0.2.7"}, "v6": {v6, "2001:db8::7"},
		"cut short": {v4[:15], ""}, "v6 said to be v4": {append([]byte{v4[0], v4[1]}, v6[2:]...), ""},
		"a text": {[]byte("fi_shm://1234:0"), ""}, "nothing": {nil, ""},
	} {
		got, ok := Address{Address: c.b}.IP()
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
}

// TestAddressInLogs: what an address prints as gives nobody the memory.
func TestAddressInLogs(t *testing.T) {
	a := Address{Provider: "p", Address: []byte{201, 202}, Key: 987654321, Base: 123456789, Length: 4096}
	outputs := map[string]string{}
	for _, f := range []string{"%v", "%+v", "%s", "%#v", "%d"} {
		outputs[f] = fmt.Sprintf(f, a)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // its digits are no secret
		}
		return a
	}})).Info("memory", "address", a)
	outputs["slog"] = log.String()
	for how, got := range outputs {
		if !strings.Contains(got, "4096 bytes") {
			t.Errorf("%s says nothing: %s", how, got)
		}
		for _, secret := range []string{"987654321", "123456789", "3ade68b1", "75bcd15", "201"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s: %s", how, got)
			}
		}
	}
}
