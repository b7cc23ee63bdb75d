package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// percentile is the nearest-rank percentile: the smallest value that at least
// p percent of the values do not exceed. The values must be sorted; of none it is 0.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if m := len(s) / 2; len(s)%2 == 1 {
		return s[m]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// Latency is a distribution in milliseconds.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func latencyOf(d []time.Duration) Latency {
	ms := make([]float64, len(d))
	for i := range d {
		ms[i] = millis(d[i])
	}
	slices.Sort(ms)
	return Latency{percentile(ms, 50), percentile(ms, 90), percentile(ms, 99), percentile(ms, 100)}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// gbps is 10^9 bytes per second; of no time it is 0.
func gbps(bytes int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(bytes) / d.Seconds() / 1e9
}

// byteSize is a size for people.
func byteSize(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 4 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.4g %ciB", f, "KMGTP"[i])
}
