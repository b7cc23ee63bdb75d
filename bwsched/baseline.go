package bwsched

// Equal gives every request the same rate (§5.7).
type Equal struct{}

// KVProp gives rates in proportion to the bytes of KV cache (§5.7).
type KVProp struct{}

// BWProp gives rates in proportion to the zero-stall rates (§5.7). A request
// whose compute window is unknown counts as one that could use the whole link.
type BWProp struct{}

// Name implements Policy.
func (Equal) Name() string { return "equal" }

// Name implements Policy.
func (KVProp) Name() string { return "kv-prop" }

// Name implements Policy.
func (BWProp) Name() string { return "bw-prop" }

// Rates implements Policy.
func (Equal) Rates(capacity float64, reqs []Request, rates []float64) {
	share(capacity, reqs, rates, func(float64, Request) float64 { return 1 })
}

// Rates implements Policy.
func (KVProp) Rates(capacity float64, reqs []Request, rates []float64) {
	share(capacity, reqs, rates, func(_ float64, r Request) float64 { return r.LayerBytes * float64(layers(r)) })
}

// Rates implements Policy.
func (BWProp) Rates(capacity float64, reqs []Request, rates []float64) {
	share(capacity, reqs, rates, func(capacity float64, r Request) float64 {
		if r.Compute <= 0 {
			return capacity
		}
		return ZeroStall(r)
	})
}

// share splits the capacity in proportion to weights.
func share(capacity float64, reqs []Request, rates []float64, weight func(float64, Request) float64) {
	capacity = usable(capacity)
	total := 0.0
	for i, r := range reqs {
		rates[i] = 0
		if sized(r) {
			rates[i] = weight(capacity, r)
			total += rates[i]
		}
	}
	for i := range reqs {
		if rates[i] > 0 {
			rates[i] = capacity * (rates[i] / total)
		}
	}
}

// usable is a capacity to compute with: 0 for what is none.
func usable(capacity float64) float64 {
	if !(capacity >= minAmount) {
		return 0
	}
	return min(capacity, maxAmount)
}

// sized reports whether a request has bytes to share a link for.
func sized(r Request) bool { return r.LayerBytes >= minAmount && r.LayerBytes <= maxAmount }

// Between these, products and quotients of rates and sizes have all their
// digits. No real one is near them.
const (
	minAmount = 1e-100
	maxAmount = 1e100
)
