package gateway

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/objcached/objcached/storage"
)

// maxConfigBody bounds the small documents of bucket requests, in bytes.
const maxConfigBody = 64 << 10

type listBucketsResult struct {
	XMLName           xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
	Owner             *xmlOwner
	Buckets           []xmlBucket `xml:"Buckets>Bucket"`
	ContinuationToken string      `xml:",omitempty"`
	Prefix            string      `xml:",omitempty"`
}

type xmlBucket struct {
	Name         string
	CreationDate xmlTime
	BucketRegion string `xml:",omitempty"`
}

// listBuckets shows the buckets that the sender may reach, and no others.
func (g *Gateway) listBuckets(w http.ResponseWriter, r *request) error {
	limit, paged := 10000, r.has("max-buckets")
	if paged {
		n, err := strconv.Atoi(r.Query.Get("max-buckets"))
		if err != nil || n < 1 || n > 10000 {
			return invalidArgument("max-buckets", r.Query.Get("max-buckets"), "max-buckets must be between 1 and 10000")
		}
		limit = n
	}
	after := ""
	if r.has("continuation-token") {
		var err error
		if after, err = decodeToken(r.Query.Get("continuation-token")); err != nil {
			return err
		}
	}
	res := listBucketsResult{Owner: ownerOf(r.Identity.Tenant, r.Identity.Name), Prefix: r.Query.Get("prefix")}
	if region := r.Query.Get("bucket-region"); region != "" && region != g.cfg.Region {
		return writeXML(w, http.StatusOK, res) // there is one region
	}
	o := storage.ListBucketsOptions{Prefix: res.Prefix, After: after, Max: maxPage}
	for res.ContinuationToken == "" {
		page, err := g.store.ListBuckets(r.Context(), o)
		if err != nil {
			return err
		}
		for _, b := range page {
			if !g.mayAccess(r, b.Name, &b) {
				continue
			}
			if len(res.Buckets) == limit {
				res.ContinuationToken = encodeToken(res.Buckets[limit-1].Name)
				break
			}
			x := xmlBucket{Name: b.Name, CreationDate: xmlTime(b.Created)}
			if paged {
				x.BucketRegion = g.cfg.Region
			}
			res.Buckets = append(res.Buckets, x)
		}
		if len(page) < o.Max {
			break
		}
		o.After = page[len(page)-1].Name
	}
	return writeXML(w, http.StatusOK, res)
}

type createBucketConfiguration struct {
	XMLName            xml.Name
	LocationConstraint string
	Other              []xmlAny `xml:",any"`
}

type xmlAny struct{ XMLName xml.Name }

// createBucket makes a bucket that belongs to the sender.
func (g *Gateway) createBucket(w http.ResponseWriter, r *request) error {
	if !g.mayCreate(r, r.Bucket) {
		return errAccessDenied()
	}
	if !validBucketName(r.Bucket) {
		return invalidBucketName(r.Bucket)
	}
	if err := bucketHeaders(r); err != nil {
		return err
	}
	body, err := g.readBody(r, maxConfigBody)
	if errors.Is(err, errBodyTooLarge) {
		return malformedXML(err)
	}
	if err != nil {
		return err
	}
	if len(body) > 0 {
		var c createBucketConfiguration
		if err := decodeXML(body, &c); err != nil {
			return err
		}
		if c.XMLName.Local != "CreateBucketConfiguration" {
			return malformedXML(nil)
		}
		if len(c.Other) > 0 {
			return notImplemented("%s in CreateBucketConfiguration", c.Other[0].XMLName.Local)
		}
		if l := strings.TrimSpace(c.LocationConstraint); l != "" && l != g.cfg.Region {
			return fail("InvalidLocationConstraint", "The specified location-constraint is not valid: this server's region is %s.", g.cfg.Region).
				with("LocationConstraint", l)
		}
	}
	b := storage.Bucket{Name: r.Bucket, Owner: r.Identity.Name, Tenant: r.Identity.Tenant, Created: g.now()}
	if r.Identity.Root {
		b.Owner, b.Tenant = "", ""
	}
	err = g.store.CreateBucket(r.Context(), b)
	if errors.Is(err, storage.ErrBucketExists) {
		if old, e := g.store.GetBucket(r.Context(), r.Bucket); e == nil && old.Owner == b.Owner && old.Tenant == b.Tenant {
			return fail("BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded and you already own it.").
				with("BucketName", r.Bucket)
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/"+r.Bucket)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

// bucketHeaders refuses what a new bucket cannot have here.
func bucketHeaders(r *request) error {
	if v := r.Header.Get("X-Amz-Bucket-Object-Lock-Enabled"); v != "" && !strings.EqualFold(v, "false") {
		return notImplemented("x-amz-bucket-object-lock-enabled")
	}
	if v := r.Header.Get("X-Amz-Object-Ownership"); v != "" && v != "BucketOwnerEnforced" {
		return notImplemented("x-amz-object-ownership %s", v)
	}
	return nil
}

func (g *Gateway) headBucket(w http.ResponseWriter, r *request) error {
	w.Header().Set("X-Amz-Bucket-Region", g.cfg.Region)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (g *Gateway) deleteBucket(w http.ResponseWriter, r *request) error {
	if err := g.store.DeleteBucket(r.Context(), r.Bucket); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type locationResult struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ LocationConstraint"`
	Region  string   `xml:",chardata"`
}

// getBucketLocation answers an empty document for us-east-1, as S3 does.
func (g *Gateway) getBucketLocation(w http.ResponseWriter, _ *request) error {
	var res locationResult
	if g.cfg.Region != "us-east-1" {
		res.Region = g.cfg.Region
	}
	return writeXML(w, http.StatusOK, res)
}

func invalidBucketName(name string) error {
	return fail("InvalidBucketName", "The specified bucket is not valid.").with("BucketName", name)
}

// validBucketName checks S3's rules: 3 to 63 of a-z, 0-9, "-" and ".", with a
// letter or digit at each end of every label, and not an IPv4 address.
func validBucketName(name string) bool {
	if len(name) < 3 || len(name) > 63 {
		return false
	}
	if strings.Trim(name, "0123456789.") == "" && strings.Count(name, ".") == 3 {
		return false // clients refuse all that look like an address, 999.1.1.1 too
	}
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || !alnum(label[0]) || !alnum(label[len(label)-1]) {
			return false
		}
		for i := range len(label) {
			if !alnum(label[i]) && label[i] != '-' {
				return false
			}
		}
	}
	return true
}
