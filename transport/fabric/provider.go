package fabric

import "slices"

// Providers are those that this package is made for, as libfabric calls them.
var Providers = []string{"verbs;ofi_rxm", "efa", "tcp;ofi_rxm", "shm", "net", "sockets"}

// wireShm is libfabric's shm on the wire, where "shm" is memory shared without it.
const wireShm = "libfabric-shm"

// WireName is what kv-register calls one of Providers.
func WireName(provider string) string {
	if provider == "shm" {
		return wireShm
	}
	return provider
}

// FromWire is WireName's inverse; ok is false for what is no provider of a fabric.
func FromWire(name string) (provider string, ok bool) {
	provider = name
	if name == wireShm {
		provider = "shm"
	}
	return provider, slices.Contains(Providers, provider) && WireName(provider) == name
}
