package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/objcached/objcached/gateway/payload"
	"github.com/objcached/objcached/storage"
)

const (
	maxKeyLength   = 1024    // bytes
	maxUserMeta    = 2 << 10 // bytes, names and values
	maxPartNumber  = 10000
	metaPrefix     = "X-Amz-Meta-"
	maxChainParent = maxKeyLength
)

// checkKey applies S3's rules for keys.
func checkKey(key string) error {
	if len(key) > maxKeyLength {
		return fail("KeyTooLongError", "Your key is too long").
			with("Size", strconv.Itoa(len(key))).with("MaxSizeAllowed", strconv.Itoa(maxKeyLength))
	}
	if !utf8.ValidString(key) {
		return fail("InvalidURI", "The key is not valid UTF-8.")
	}
	return nil
}

// systemHeaders are stored with an object and returned with it.
var systemHeaders = []string{
	"Content-Type", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires",
}

// describe reads what a request says about the object it writes.
func describe(h http.Header) (storage.PutOptions, error) {
	var o storage.PutOptions
	for _, name := range systemHeaders {
		v := h.Get(name)
		if name == "Content-Encoding" {
			v = payload.ContentEncoding(h)
		}
		if v != "" {
			if o.Headers == nil {
				o.Headers = make(map[string]string, 2)
			}
			o.Headers[name] = v
		}
	}
	total := 0
	for name, values := range h {
		if !strings.HasPrefix(name, metaPrefix) || len(name) == len(metaPrefix) {
			continue
		}
		if o.UserMeta == nil {
			o.UserMeta = map[string]string{}
		}
		key, v := strings.ToLower(name[len(metaPrefix):]), strings.Join(values, ",")
		total += len(key) + len(v)
		o.UserMeta[key] = v
	}
	if total > maxUserMeta {
		return o, fail("MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size").
			with("Size", strconv.Itoa(total)).with("MaxSizeAllowed", strconv.Itoa(maxUserMeta))
	}
	var err error
	if o.Tags, err = headerTags(h); err != nil {
		return o, err
	}
	o.Chain, err = chainOf(h)
	return o, err
}

// chainOf reads x-kv-parent and x-kv-index.
func chainOf(h http.Header) (storage.Chain, error) {
	c := storage.Chain{Index: -1}
	parent, index := h.Get("X-Kv-Parent"), h.Get("X-Kv-Index")
	if index == "" {
		if parent != "" {
			return c, invalidArgument("x-kv-index", "", "x-kv-parent needs x-kv-index")
		}
		return c, nil
	}
	n, err := strconv.ParseInt(index, 10, 64)
	if err != nil || n < 0 {
		return c, invalidArgument("x-kv-index", index, "x-kv-index must be an integer from 0")
	}
	if len(parent) > maxChainParent || !utf8.ValidString(parent) {
		return c, invalidArgument("x-kv-parent", parent, "x-kv-parent is not a valid key")
	}
	c.Parent, c.Index = parent, n
	return c, nil
}

// checkOwner honours x-amz-expected-bucket-owner: a sender who names an owner
// wants the request to fail on anyone else's bucket.
func checkOwner(h http.Header, name string, b storage.Bucket) error {
	if v := h.Get(name); v != "" && v != ownerOf(b.Tenant, b.Owner).ID {
		return errAccessDenied()
	}
	return nil
}

func errAccessDenied() error { return fail("AccessDenied", "Access Denied.") }
