package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcached/objcached/internal/doctor"
)

func TestDoctor(t *testing.T) {
	out, _, err := run(t, t.Context(), "doctor", "--data", filepath.Join(t.TempDir(), "store"))
	if err != nil || !strings.Contains(out, "O_DIRECT") || !strings.HasSuffix(out, "objcached serve works here.\n") {
		t.Errorf("%v\n%s", err, out)
	}
	// No machine has such an interface: the status is 1, in both forms.
	for _, form := range [][]string{nil, {"--json"}} {
		out, _, err = run(t, t.Context(), append([]string{"doctor", "--fabric-interface", "no such interface"}, form...)...)
		if !errors.Is(err, errFound) || !strings.Contains(out, "no such interface") {
			t.Errorf("%v: %v\n%s", form, err, out)
		}
	}
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Serve || len(r.Groups) == 0 {
		t.Errorf("%v: %s", err, out)
	}
	if _, _, err := run(t, t.Context(), "doctor", "extra"); err == nil || errors.Is(err, errFound) {
		t.Errorf("an argument: %v", err)
	}
}
