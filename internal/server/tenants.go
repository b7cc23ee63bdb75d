package server

import (
	"crypto/rand"
	"fmt"
	"io"

	"github.com/objcached/objcached/tenant"
)

// openTenants puts the root pair and the users of the credentials file into
// one registry, and reads what tenants may have of the link. A root pair that
// was made just now is shown once.
func openTenants(o Options, notices io.Writer) (_ tenant.Registry, limits map[string]tenant.Limits, err error) {
	var ids []tenant.Identity
	if o.Credentials != "" {
		file, warning, err := tenant.LoadCredentials(o.Credentials)
		if err != nil {
			return nil, nil, err
		}
		if warning != "" {
			o.Logger.Warn(warning)
		}
		ids, limits = file.Users, file.Limits
	}
	root, err := openRoot(o, notices)
	if err != nil {
		return nil, nil, err
	}
	users, err := tenant.NewUsers(append(ids, root))
	return users, limits, err
}

func openRoot(o Options, notices io.Writer) (tenant.Identity, error) {
	if o.RootAccessKey != "" || o.RootSecretKey != "" {
		return tenant.NewRoot(o.RootAccessKey, o.RootSecretKey)
	}
	root, created, err := tenant.LoadOrCreateRoot(o.Dir, rand.Reader)
	if err != nil || !created {
		return root, err
	}
	_, err = fmt.Fprintf(notices, "A root pair was made and is kept in %s of the store. It is shown only now:\n"+
		"  OBJCACHED_ACCESS_KEY=%s\n  OBJCACHED_SECRET_KEY=%s\n", tenant.RootFile, root.AccessKey, root.SecretKey)
	return root, err
}
