// Package tenant holds identities: who a key belongs to and which buckets it
// may touch.
package tenant

import (
	"fmt"
	"io"
	"log/slog"
)

// Identity is an authenticated user. Values are immutable.
//
// Whatever prints, logs or encodes an Identity leaves its secret out.
type Identity struct {
	Name      string // empty for root, as is Tenant
	Tenant    string
	AccessKey string
	SecretKey string   `json:"-" yaml:"-"`
	Buckets   []string // wildcard patterns ('*' any run, '?' one character) of bucket names
	Root      bool     // may do everything
}

// String names the identity: tenant/name, or root.
func (id Identity) String() string {
	if id.Root {
		return "root"
	}
	return id.Tenant + "/" + id.Name
}

// Format prints String whatever the verb and its flags, so that no verb
// prints the fields.
func (id Identity) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, id.String()) // fmt.State reports errors to the caller of fmt
}

// LogValue gives a log the identity without its secret.
func (id Identity) LogValue() slog.Value {
	return slog.GroupValue(slog.String("user", id.String()), slog.String("access_key", id.AccessKey))
}

// Registry finds identities by access key. Lookup may be called concurrently.
type Registry interface {
	Lookup(accessKey string) (*Identity, bool)
}

// Users is a fixed Registry. The zero value knows nobody.
type Users struct{ byKey map[string]*Identity }

var _ Registry = (*Users)(nil)

// NewUsers makes a registry of identities. Two with the same access key are an
// error. The slice is not kept.
func NewUsers(ids []Identity) (*Users, error) {
	u := &Users{byKey: make(map[string]*Identity, len(ids))}
	for _, id := range ids {
		if other, ok := u.byKey[id.AccessKey]; ok {
			return nil, fmt.Errorf("access key %q belongs to both %v and %v", id.AccessKey, other, id)
		}
		id.Buckets = append([]string(nil), id.Buckets...)
		u.byKey[id.AccessKey] = &id
	}
	return u, nil
}

// Lookup implements Registry.
func (u *Users) Lookup(accessKey string) (*Identity, bool) {
	id, ok := u.byKey[accessKey]
	return id, ok
}

// Secret is Lookup for a verifier of signatures.
func (u *Users) Secret(accessKey string) (secret string, ok bool) {
	id, ok := u.byKey[accessKey]
	if !ok {
		return "", false
	}
	return id.SecretKey, true
}

// Len is the number of identities.
func (u *Users) Len() int { return len(u.byKey) }
