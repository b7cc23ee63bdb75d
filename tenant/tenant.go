// Package tenant holds identities: who a key belongs to and which buckets it
// may touch.
package tenant

// Identity is an authenticated user. Values are immutable.
type Identity struct {
	Name      string
	Tenant    string
	AccessKey string
	SecretKey string   `json:"-"`
	Buckets   []string // wildcard patterns ('*' any run, '?' one character) of bucket names
	Root      bool     // may do everything
}

// Registry finds identities by access key. Lookup may be called concurrently.
type Registry interface {
	Lookup(accessKey string) (*Identity, bool)
}
