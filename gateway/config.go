package gateway

import (
	"encoding/xml"
	"errors"
	"net/http"
)

// What tools ask of a bucket before they use it. An answer is given only where
// it is true of every bucket here: "there is no such configuration", or how
// this server always behaves. Setting anything else is 501.

type handler = func(*Gateway, http.ResponseWriter, *request) error

// unset answers that the bucket has no configuration of a kind.
func unset(code, message string) handler {
	return func(_ *Gateway, _ http.ResponseWriter, r *request) error {
		return fail(code, "%s", message).with("BucketName", r.Bucket)
	}
}

// always answers with a document that is the same for every bucket.
func always(doc any) handler {
	return func(_ *Gateway, w http.ResponseWriter, _ *request) error { return writeXML(w, http.StatusOK, doc) }
}

// nothingToDelete deletes a configuration that no bucket has.
func nothingToDelete(_ *Gateway, w http.ResponseWriter, _ *request) error {
	return noBody(w, http.StatusNoContent)
}

func root(local string) xml.Name { return xml.Name{Space: xmlNamespace, Local: local} }

// emptyConfig is the document of a configuration that says nothing.
type emptyConfig struct{ XMLName xml.Name }

type requestPayment struct {
	XMLName xml.Name
	Payer   string
}

type ownershipControls struct {
	XMLName xml.Name
	Rules   []ownershipRule `xml:"Rule"`
}

type ownershipRule struct{ ObjectOwnership string }

// ownerEnforced is how every bucket is: what is in it belongs to its owner, and
// there are no other grants.
const ownerEnforced = "BucketOwnerEnforced"

// publicAccess is the public access block. Nothing is public here, so that all
// of it is always on.
type publicAccess struct {
	XMLName               xml.Name
	BlockPublicAcls       bool
	IgnorePublicAcls      bool
	BlockPublicPolicy     bool
	RestrictPublicBuckets bool
}

var (
	enforced = ownershipControls{root("OwnershipControls"), []ownershipRule{{ownerEnforced}}}
	private  = publicAccess{root("PublicAccessBlockConfiguration"), true, true, true, true}
)

// readConfig reads the small document of a PUT of a configuration.
func (g *Gateway) readConfig(r *request, local string, v any, name *xml.Name) error {
	body, err := g.readBody(r, maxConfigBody)
	if errors.Is(err, errBodyTooLarge) {
		return malformedXML(err)
	}
	if err != nil {
		return err
	}
	if err := decodeXML(body, v); err != nil {
		return err
	}
	if name.Local != local {
		return malformedXML(nil)
	}
	return nil
}

// putOwnership accepts the one setting there is.
func (g *Gateway) putOwnership(w http.ResponseWriter, r *request) error {
	var c ownershipControls
	if err := g.readConfig(r, "OwnershipControls", &c, &c.XMLName); err != nil {
		return err
	}
	if len(c.Rules) != 1 {
		return malformedXML(nil)
	}
	if o := c.Rules[0].ObjectOwnership; o != ownerEnforced {
		return notImplemented("ObjectOwnership %s", o)
	}
	return noBody(w, http.StatusOK)
}

// putPublicAccess accepts the one setting there is.
func (g *Gateway) putPublicAccess(w http.ResponseWriter, r *request) error {
	var c publicAccess
	if err := g.readConfig(r, "PublicAccessBlockConfiguration", &c, &c.XMLName); err != nil {
		return err
	}
	if !c.BlockPublicAcls || !c.IgnorePublicAcls || !c.BlockPublicPolicy || !c.RestrictPublicBuckets {
		return notImplemented("a public access block that is not wholly on")
	}
	return noBody(w, http.StatusOK)
}

type accessControlPolicy struct {
	XMLName xml.Name
	Owner   *xmlOwner
	Grants  aclGrants `xml:"AccessControlList>Grant"`
}

type aclGrants []aclGrant

// maxGrants is S3's limit of grants in one list.
const maxGrants = 100

// UnmarshalXML implements xml.Unmarshaler for one grant.
func (l *aclGrants) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	return decodeEntry((*[]aclGrant)(l), maxGrants, d, start)
}

type aclGrant struct {
	Grantee    aclGrantee
	Permission string
}

type aclGrantee struct {
	XSI  string `xml:"xmlns:xsi,attr"`
	Type string `xml:"xsi:type,attr"`
	xmlOwner
}

// getACL answers for a bucket or an object: the bucket's owner may do all, by
// grant nobody else anything.
func (g *Gateway) getACL(w http.ResponseWriter, r *request) error {
	if err := g.exists(r); err != nil {
		return err
	}
	owner := ownerOf(r.BucketInfo.Tenant, r.BucketInfo.Owner)
	return writeXML(w, http.StatusOK, accessControlPolicy{
		XMLName: root("AccessControlPolicy"), Owner: owner,
		Grants: aclGrants{{aclGrantee{"http://www.w3.org/2001/XMLSchema-instance", "CanonicalUser", *owner}, "FULL_CONTROL"}},
	})
}

// putACL accepts what getACL answers, as a canned ACL (which checkHeaders has
// looked at) or as a document.
func (g *Gateway) putACL(w http.ResponseWriter, r *request) error {
	if err := g.exists(r); err != nil {
		return err
	}
	canned := r.Header.Get("X-Amz-Acl") != ""
	switch {
	case canned && r.ContentLength != 0:
		return fail("UnexpectedContent", "This request does not support content.")
	case canned:
		return noBody(w, http.StatusOK)
	case r.ContentLength == 0:
		return fail("MissingSecurityHeader", "Your request was missing a required header: x-amz-acl, or a document in its place.")
	}
	var p accessControlPolicy
	if err := g.readConfig(r, "AccessControlPolicy", &p, &p.XMLName); err != nil {
		return err
	}
	owner := ownerOf(r.BucketInfo.Tenant, r.BucketInfo.Owner).ID
	if len(p.Grants) != 1 || p.Grants[0].Permission != "FULL_CONTROL" || p.Grants[0].Grantee.ID != owner || p.Owner != nil && p.Owner.ID != owner {
		return notImplemented("an access control list with more than full control for the bucket's owner")
	}
	return noBody(w, http.StatusOK)
}

// exists checks that the object a request addresses is there, if it addresses one.
func (g *Gateway) exists(r *request) error {
	if r.Key == "" {
		return nil
	}
	_, err := g.store.Stat(r.Context(), r.Bucket, r.Key)
	return err
}
