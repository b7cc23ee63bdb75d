package gateway

import (
	"encoding/xml"
	"net/http"
	"slices"
	"strings"

	"github.com/objcached/objcached/storage"
)

type attributesResult struct {
	XMLName      xml.Name            `xml:"http://s3.amazonaws.com/doc/2006-03-01/ GetObjectAttributesResponse"`
	ETag         string              `xml:",omitempty"` // without quotes, unlike everywhere else
	Checksum     *attributesChecksum `xml:",omitempty"`
	ObjectParts  *attributesParts    `xml:",omitempty"`
	StorageClass string              `xml:",omitempty"`
	ObjectSize   *int64              `xml:",omitempty"`
}

type attributesChecksum struct {
	xmlChecksum
	ChecksumType string
}

type attributesParts struct {
	PartsCount           int
	PartNumberMarker     int
	NextPartNumberMarker int
	MaxParts             int
	IsTruncated          bool
	Parts                []attributesPart `xml:"Part"`
}

type attributesPart struct {
	PartNumber int
	Size       int64
	xmlChecksum
}

// attributeNames are what x-amz-object-attributes may list.
var attributeNames = []string{"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"}

// getObjectAttributes shows what the request asks to see of an object.
func (g *Gateway) getObjectAttributes(w http.ResponseWriter, r *request) error {
	const header = "X-Amz-Object-Attributes"
	asked := map[string]bool{}
	for _, v := range r.Header[header] {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); !slices.Contains(attributeNames, name) {
				return invalidArgument(strings.ToLower(header), name, "Invalid attribute name specified.")
			}
			asked[name] = true
		}
	}
	if len(asked) == 0 {
		return invalidArgument(strings.ToLower(header), "", "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty")
	}
	limit, err := pageLimit("x-amz-max-parts", r.Header.Get("X-Amz-Max-Parts"))
	if err != nil {
		return err
	}
	after, err := partMarker("x-amz-part-number-marker", r.Header.Get("X-Amz-Part-Number-Marker"))
	if err != nil {
		return err
	}
	oi, err := g.store.Stat(r.Context(), r.Bucket, r.Key)
	if err != nil {
		return err
	}
	var res attributesResult
	if asked["ETag"] {
		res.ETag = oi.ETag
	}
	if asked["Checksum"] && !oi.Checksum.IsZero() {
		res.Checksum = &attributesChecksum{checksumElements(oi.Checksum), string(oi.Checksum.Type)}
	}
	if asked["ObjectParts"] && oi.Parts > 0 {
		res.ObjectParts = objectParts(&oi, after, limit)
	}
	if asked["StorageClass"] {
		res.StorageClass = "STANDARD"
	}
	if asked["ObjectSize"] {
		res.ObjectSize = &oi.Size
	}
	w.Header().Set("Last-Modified", oi.Modified.UTC().Format(http.TimeFormat))
	return writeXML(w, http.StatusOK, res)
}

// objectParts is a page of an object's parts. Like S3 it names the parts only
// of an object that has a checksum, and their number of any.
func objectParts(oi *storage.ObjectInfo, after, limit int) *attributesParts {
	p := &attributesParts{PartsCount: oi.Parts, PartNumberMarker: after, MaxParts: limit}
	if oi.Checksum.IsZero() {
		return p
	}
	last := min(oi.Parts, after+limit)
	for n := after + 1; n <= last; n++ {
		x, ok := oi.Part(n)
		if !ok {
			break
		}
		p.Parts = append(p.Parts, attributesPart{n, x.Size, checksumElements(x.Checksum)})
		p.NextPartNumberMarker = n
	}
	p.IsTruncated = limit > 0 && last < oi.Parts
	return p
}
