//go:build !linux

package client

import (
	"fmt"

	"github.com/objcached/objcached/descriptor"
)

func openShm(_ *Client, p descriptor.Provider, _ int64) (memory, error) {
	if p.Provider != descriptor.ProviderShm {
		return nil, errAnother
	}
	return nil, fmt.Errorf("%w: shared memory needs Linux", errNotHere)
}
