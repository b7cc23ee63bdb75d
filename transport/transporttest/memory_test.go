package transporttest

import "testing"

func TestMemory(t *testing.T) {
	Run(t, func(_ *testing.T, size int) Target {
		m := NewMemory(size)
		return Target{Sink: m, Seen: m.Bytes, Ready: m.Layers}
	})
}
