//go:build !fabric || !cgo

package fabric

import (
	"errors"
	"testing"
)

// TestNotBuilt: a binary without libfabric says how to get one with it.
func TestNotBuilt(t *testing.T) {
	if d, err := Open(Config{}); d != nil || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Open: %v, %v", d, err)
	}
	if m, err := NewMemory(Config{}, 1); m != nil || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("NewMemory: %v, %v", m, err)
	}
}
