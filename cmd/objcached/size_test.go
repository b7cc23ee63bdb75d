package main

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "4096": 4096, "64KiB": 64 << 10, "64k": 64 << 10, "1.5 GiB": 3 << 29, "2TB": 2e12, "512MiB": 512 << 20,
		"7b": 7, "10 MB": 1e7, "9007199254740993": 9007199254740993,
	} {
		var s size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%q: %d %v, want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1XB", "1 2", "NaN", "1e30", "8388608TiB", "inf"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q: %d, want an error", text, s)
		}
	}
	for _, n := range []int64{0, 1, 1023, 1024, 1 << 20, 3 << 30, 5 << 40, 1 << 50, 1025} {
		var back size
		if err := back.Set(size(n).String()); err != nil || int64(back) != n {
			t.Errorf("%d: %q reads back as %d %v", n, size(n).String(), back, err)
		}
	}
}
