package conformance

import _ "github.com/objcached/objcached/gateway"
