package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a flag value in bytes: a number with an optional unit, powers of
// 1024 for KiB, MiB, GiB, TiB (or K, M, G, T) and of 1000 for KB, MB, GB, TB.
type size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40}, {"b", 1},
}

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	number, factor := strings.ToLower(strings.TrimSpace(text)), int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f*float64(factor) >= math.MaxInt64 {
		return fmt.Errorf("%q is not a size; write it like 64KiB, 512MiB or 2TB", text)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		*s = size(n * factor) // exact where floating point is not
		return nil
	}
	*s = size(f * float64(factor))
	return nil
}

// String implements pflag.Value: the largest unit that divides the value.
func (s size) String() string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	n, i := int64(s), 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// Type implements pflag.Value.
func (s size) Type() string { return "size" }
