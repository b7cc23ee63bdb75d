// Package agg is wrong: planning reaches for a backend, the clock and storage.
package agg

import (
	_ "time"

	_ "github.com/objcached/objcached/storage"
)
