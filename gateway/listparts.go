package gateway

import (
	"encoding/xml"
	"net/http"

	"github.com/objcached/objcached/storage"
)

type listPartsResult struct {
	XMLName              xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListPartsResult"`
	Bucket               string
	Key                  string
	UploadID             string `xml:"UploadId"`
	Initiator            *xmlOwner
	Owner                *xmlOwner
	StorageClass         string
	PartNumberMarker     int
	NextPartNumberMarker int `xml:",omitempty"`
	MaxParts             int
	IsTruncated          bool
	ChecksumAlgorithm    string    `xml:",omitempty"`
	ChecksumType         string    `xml:",omitempty"`
	EncodingType         string    `xml:",omitempty"`
	Parts                []xmlPart `xml:"Part"`
}

type xmlPart struct {
	PartNumber   int
	LastModified xmlTime
	ETag         string
	Size         int64
	xmlChecksum
}

// partMarker reads the number of the part that a page of parts comes after.
func partMarker(name, v string) (int, error) {
	if v == "" {
		return 0, nil
	}
	n, ok := digits(v)
	if !ok || n > 1<<31-1 {
		return 0, invalidArgument(name, v, "%s must be an integer between 0 and 2147483647", name)
	}
	return int(n), nil
}

func (g *Gateway) listParts(w http.ResponseWriter, r *request) error {
	encode, err := encoder(r.Query.Get("encoding-type"))
	if err != nil {
		return err
	}
	limit, err := pageSize(r, "max-parts")
	if err != nil {
		return err
	}
	after, err := partMarker("part-number-marker", r.Query.Get("part-number-marker"))
	if err != nil {
		return err
	}
	id := r.Query.Get("uploadId")
	page, err := g.store.ListParts(r.Context(), r.Bucket, r.Key, id, after, limit)
	if err != nil {
		return err
	}
	owner := ownerOf(r.BucketInfo.Tenant, r.BucketInfo.Owner)
	res := listPartsResult{
		Bucket: r.Bucket, Key: encode(r.Key), UploadID: id, Initiator: owner, Owner: owner, StorageClass: "STANDARD",
		PartNumberMarker: after, MaxParts: limit, IsTruncated: page.Truncated,
		ChecksumAlgorithm: string(page.Upload.Algorithm), ChecksumType: string(page.Upload.Type),
		EncodingType: r.Query.Get("encoding-type"),
	}
	for _, p := range page.Parts {
		res.Parts = append(res.Parts, xmlPart{p.Number, xmlTime(p.Modified), quote(p.ETag), p.Size, checksumElements(p.Checksum)})
	}
	if n := len(page.Parts); n > 0 {
		res.NextPartNumberMarker = page.Parts[n-1].Number
	}
	return writeXML(w, http.StatusOK, res)
}

type listUploadsResult struct {
	XMLName            xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListMultipartUploadsResult"`
	Bucket             string
	KeyMarker          string
	UploadIDMarker     string `xml:"UploadIdMarker"`
	NextKeyMarker      string `xml:",omitempty"`
	NextUploadIDMarker string `xml:"NextUploadIdMarker,omitempty"`
	Prefix             string `xml:",omitempty"`
	Delimiter          string `xml:",omitempty"`
	EncodingType       string `xml:",omitempty"`
	MaxUploads         int
	IsTruncated        bool
	Uploads            []xmlUpload `xml:"Upload"`
	CommonPrefixes     []xmlPrefix
}

type xmlUpload struct {
	Key               string
	UploadID          string `xml:"UploadId"`
	Initiator         *xmlOwner
	Owner             *xmlOwner
	StorageClass      string
	Initiated         xmlTime
	ChecksumAlgorithm string `xml:",omitempty"`
	ChecksumType      string `xml:",omitempty"`
}

func (g *Gateway) listUploads(w http.ResponseWriter, r *request) error {
	q := r.Query
	encode, err := encoder(q.Get("encoding-type"))
	if err != nil {
		return err
	}
	limit, err := pageSize(r, "max-uploads")
	if err != nil {
		return err
	}
	o := storage.ListOptions{Prefix: q.Get("prefix"), Delimiter: q.Get("delimiter"), After: q.Get("key-marker"), Max: limit}
	idMarker := q.Get("upload-id-marker")
	if o.After == "" {
		idMarker = "" // S3 ignores it without a key marker
	}
	var page storage.UploadPage
	if limit > 0 {
		if page, err = g.store.ListUploads(r.Context(), r.Bucket, o, idMarker); err != nil {
			return err
		}
	}
	res := listUploadsResult{
		Bucket: r.Bucket, KeyMarker: encode(o.After), UploadIDMarker: idMarker,
		Prefix: encode(o.Prefix), Delimiter: encode(o.Delimiter), EncodingType: q.Get("encoding-type"),
		MaxUploads: limit, IsTruncated: page.Truncated,
	}
	if page.Truncated {
		res.NextKeyMarker, res.NextUploadIDMarker = encode(page.NextKey), page.NextUpload
	}
	owner := ownerOf(r.BucketInfo.Tenant, r.BucketInfo.Owner)
	for _, u := range page.Uploads {
		res.Uploads = append(res.Uploads, xmlUpload{
			Key: encode(u.Key), UploadID: u.ID, Initiator: owner, Owner: owner, StorageClass: "STANDARD",
			Initiated: xmlTime(u.Initiated), ChecksumAlgorithm: string(u.Algorithm), ChecksumType: string(u.Type),
		})
	}
	for _, p := range page.Prefixes {
		res.CommonPrefixes = append(res.CommonPrefixes, xmlPrefix{encode(p)})
	}
	return writeXML(w, http.StatusOK, res)
}
