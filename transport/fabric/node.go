//go:build fabric && cgo

package fabric

import (
	"fmt"
	"strings"

	hardware "github.com/objcached/objcached/transport/fabric/device"
)

// nodeOf is the address of the device to use; empty if the provider chooses.
func nodeOf(cfg *Config) (string, error) {
	switch {
	case cfg.Node != "":
		return cfg.Node, nil
	case strings.HasPrefix(cfg.Provider, "verbs"): // asked without an address it takes the first device, up or down
		d, err := hardware.Choose(cfg.Interface)
		if err != nil {
			return "", fmt.Errorf("fabric: %w", err)
		}
		return d.Address.String(), nil
	case cfg.Interface == "":
		return "", nil
	}
	a, err := hardware.Address(cfg.Interface)
	if err != nil {
		return "", fmt.Errorf("fabric: %w", err)
	}
	return a.String(), nil
}
