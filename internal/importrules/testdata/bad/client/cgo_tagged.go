//go:build fabric

package client

import "C"
