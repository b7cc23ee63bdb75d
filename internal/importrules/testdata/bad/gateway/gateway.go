// Package gateway is wrong: flags belong to commands.
package gateway

import (
	_ "net/http"

	_ "github.com/objcached/objcached/gateway/sigv4"
	_ "github.com/spf13/cobra"
)
