package agg

import (
	_ "time" // fine in a test

	_ "github.com/objcached/objcached/cmd/objcached"
	_ "github.com/objcached/objcached/storage/volume" // fine in a test
)
