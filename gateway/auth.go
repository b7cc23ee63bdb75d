package gateway

import (
	"github.com/objcached/objcached/gateway/sigv4"
	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/tenant"
)

// signatures authenticates by Signature Version 4.
type signatures struct {
	verifier sigv4.Verifier
	tenants  tenant.Registry
}

func newAuthenticator(cfg Config) authenticator {
	s := &signatures{tenants: cfg.Tenants}
	s.verifier.Region = cfg.Region
	s.verifier.Now = cfg.Now
	s.verifier.Lookup = func(accessKey string) (string, bool) {
		id, ok := cfg.Tenants.Lookup(accessKey)
		if !ok {
			return "", false
		}
		return id.SecretKey, true
	}
	return s
}

func (s *signatures) authenticate(r *request) error {
	res, err := s.verifier.Verify(r.Request)
	if err != nil {
		return err
	}
	if res.Anonymous {
		return errAccessDenied()
	}
	id, ok := s.tenants.Lookup(res.AccessKey)
	if !ok {
		// Taken from the registry since the signature was checked.
		return fail("InvalidAccessKeyId", "The access key ID you provided does not exist in our records.")
	}
	r.Identity, r.Auth = id, res
	return nil
}

// authorize checks that the sender may do what the operation does to its
// bucket, and loads the bucket.
func (g *Gateway) authorize(r *request) error {
	if r.op.action == actNone || r.op.action == actCreate {
		return nil
	}
	b, err := g.reachable(r, r.Bucket)
	if err != nil {
		return err
	}
	r.BucketInfo = b
	return checkOwner(r.Header, "X-Amz-Expected-Bucket-Owner", b)
}

// reachable loads a bucket the sender may use. One out of reach is denied in
// the same words whether or not it exists.
func (g *Gateway) reachable(r *request, name string) (storage.Bucket, error) {
	b, err := g.store.GetBucket(r.Context(), name)
	if err != nil {
		if !g.mayAccess(r, name, nil) {
			return b, errAccessDenied()
		}
		if !validBucketName(name) {
			return b, invalidBucketName(name)
		}
		return b, err
	}
	if !g.mayAccess(r, name, &b) {
		return b, errAccessDenied()
	}
	return b, nil
}

// mayAccess reports whether the sender may use a bucket; b is nil if it does
// not exist.
func (g *Gateway) mayAccess(r *request, name string, b *storage.Bucket) bool {
	if b == nil {
		b = &storage.Bucket{}
	}
	return tenant.MayAccess(r.Identity, name, b.Owner, b.Tenant)
}

// mayCreate reports whether the sender may make a bucket of that name.
func (g *Gateway) mayCreate(r *request, name string) bool { return tenant.MayCreate(r.Identity, name) }
