// Package rate reads and writes rates the way people do: 10Gbps, 1.25GB/s.
package rate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is a rate in bytes per second. It is a flag value.
type Rate float64

// units are looked for in this order: what ends like another comes first.
// Upper and lower case matter, as they do between bits and bytes.
var units = []struct {
	suffix string
	factor float64 // bytes per second
}{
	{"KiB/s", 1 << 10}, {"MiB/s", 1 << 20}, {"GiB/s", 1 << 30}, {"TiB/s", 1 << 40},
	{"kB/s", 1e3}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}, {"B/s", 1},
	{"kbps", 1e3 / 8}, {"Kbps", 1e3 / 8}, {"Mbps", 1e6 / 8}, {"Gbps", 1e9 / 8}, {"Tbps", 1e12 / 8},
	{"kbit/s", 1e3 / 8}, {"Kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8},
	{"bps", 1.0 / 8}, {"bit/s", 1.0 / 8},
}

// Parse reads a number with a unit: bits per second (10Gbps, 10Gbit/s) or
// bytes per second (1.25GB/s; 1GiB/s is 2^30). 0 needs no unit.
func Parse(text string) (Rate, error) {
	number, factor := strings.TrimSpace(text), 0.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if r := x * factor; err == nil && x >= 0 && (factor > 0 || x == 0) && !math.IsInf(r, 0) {
		return Rate(r), nil
	}
	return 0, fmt.Errorf("%q is not a rate; write it like 10Gbps, 1.25GB/s or 100MiB/s", text)
}

// Set implements pflag.Value.
func (r *Rate) Set(text string) error {
	x, err := Parse(text)
	if err == nil {
		*r = x
	}
	return err
}

// String gives the rate in bytes per second, such that Parse reads the same back.
func (r Rate) String() string {
	x := float64(r)
	for _, unit := range []string{"TB/s", "GB/s", "MB/s", "kB/s"} {
		for _, u := range units {
			if n := x / u.factor; u.suffix == unit && n >= 1 && n*u.factor == x {
				return strconv.FormatFloat(n, 'g', -1, 64) + unit
			}
		}
	}
	if x == 0 {
		return "0"
	}
	return strconv.FormatFloat(x, 'g', -1, 64) + "B/s"
}

// Type implements pflag.Value.
func (r Rate) Type() string { return "rate" }
