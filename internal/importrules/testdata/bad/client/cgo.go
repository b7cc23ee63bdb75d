// Package client is wrong: it needs a C compiler.
package client

import "C"
