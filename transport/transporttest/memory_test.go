package transporttest

import (
	"testing"

	"github.com/objcached/objcached/transport"
)

func TestMemory(t *testing.T) {
	Run(t, func(_ *testing.T, size int) Target {
		m := NewMemory(size)
		return Target{Sink: m, Seen: m.Bytes, Ready: m.Layers}
	})
}

func TestMemorySource(t *testing.T) {
	RunSource(t, func(_ *testing.T, content []byte) transport.Source {
		m := NewMemory(len(content))
		copy(m.Bytes(), content)
		return m
	})
}
