package rate

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "0Gbps": 0, "10Gbps": 1.25e9, "1.25GB/s": 1.25e9, "100 MiB/s": 100 << 20, "8bps": 1, "3B/s": 3, "1e3Mbit/s": 125e6,
		" 400Gbit/s ": 50e9, "1kB/s": 1000, "1KB/s": 1000, "2TiB/s": 2 << 40, "16Kbps": 2000, "0.5Tbps": 62.5e9,
	} {
		if got, err := Parse(text); err != nil || float64(got) != want {
			t.Errorf("%q: %v %v, want %v", text, float64(got), err, want)
		}
	}
	for _, text := range []string{"", "1", "10", "-1Gbps", "NaNGbps", "InfGB/s", "1e308TB/s", "10GBps", "10gbps", "GB/s", "1 2GB/s", "10Gb", "10GB", "0x"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestStringReadsBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	rates := []Rate{0, 1, 999, 1000, 1.25e9, 50e9, 1e12, 1e15, 0.125, 1 << 30, 1e300, 5e-324}
	for range 10000 {
		rates = append(rates, Rate(math.Exp(r.Float64()*40)), Rate(r.Int64N(1e12)))
	}
	for _, want := range rates {
		var got Rate
		if err := got.Set(want.String()); err != nil || got != want {
			t.Fatalf("%v reads back as %v: %v", want, got, err)
		}
	}
	if got := Rate(1.25e9).String(); got != "1.25GB/s" {
		t.Errorf("%q", got)
	}
}
