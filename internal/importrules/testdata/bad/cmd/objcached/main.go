// Command objcached may import everything.
package main

import (
	_ "github.com/objcached/objcached/storage/local"
	_ "github.com/objcached/objcached/storage/volume"
	_ "github.com/spf13/cobra"
)

func main() {}
