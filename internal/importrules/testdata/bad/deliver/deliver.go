// Package deliver is wrong: it names a concrete backend, and HTTP.
package deliver

import (
	_ "net/http"

	_ "github.com/objcached/objcached/descriptor"
	_ "github.com/objcached/objcached/storage/volume"
	_ "github.com/objcached/objcached/transport/stream"
)
