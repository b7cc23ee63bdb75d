package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"hash/crc32"
	"net/http"
	"strconv"

	"github.com/objcached/objcached/storage"
)

// maxPage is the most entries one page of any listing holds.
const maxPage = 1000

type listResult struct {
	XMLName        xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name           string
	Prefix         string
	Marker         *string `xml:",omitempty"` // version 1
	NextMarker     string  `xml:",omitempty"` // version 1
	StartAfter     string  `xml:",omitempty"` // version 2
	KeyCount       *int    `xml:",omitempty"` // version 2
	MaxKeys        int
	Delimiter      string `xml:",omitempty"`
	EncodingType   string `xml:",omitempty"`
	IsTruncated    bool
	Continuation   *string `xml:"ContinuationToken,omitempty"`     // version 2
	NextToken      string  `xml:"NextContinuationToken,omitempty"` // version 2
	Contents       []xmlObject
	CommonPrefixes []xmlPrefix
}

type xmlObject struct {
	Key               string
	LastModified      xmlTime
	ETag              string
	ChecksumAlgorithm string `xml:",omitempty"`
	ChecksumType      string `xml:",omitempty"`
	Size              int64
	Owner             *xmlOwner `xml:",omitempty"`
	StorageClass      string
}

type xmlPrefix struct{ Prefix string }

// pageSize reads a max-keys parameter: at most maxPage, maxPage if it is not given.
func pageSize(r *request, name string) (int, error) { return pageLimit(name, r.Query.Get(name)) }

func pageLimit(name, v string) (int, error) {
	if v == "" {
		return maxPage, nil
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < 0 {
		return 0, invalidArgument(name, v, "Argument %s must be an integer between 0 and 2147483647", name)
	}
	return int(min(n, maxPage)), nil
}

// listObjects is version 1: the marker is a key.
func (g *Gateway) listObjects(w http.ResponseWriter, r *request) error {
	marker := r.Query.Get("marker")
	res, page, encode, err := g.listPage(r, marker)
	if err != nil {
		return err
	}
	m := encode(marker)
	res.Marker = &m
	if page.Truncated && res.Delimiter != "" {
		// Without a delimiter the last key is the marker; S3 leaves it out.
		res.NextMarker = encode(page.Next)
	}
	owner := ownerOf(r.BucketInfo.Tenant, r.BucketInfo.Owner)
	for i := range res.Contents {
		res.Contents[i].Owner = owner
	}
	return writeXML(w, http.StatusOK, res)
}

// listObjectsV2 is version 2: the continuation token is opaque.
func (g *Gateway) listObjectsV2(w http.ResponseWriter, r *request) error {
	if v := r.Query.Get("list-type"); v != "2" {
		return invalidArgument("list-type", v, "Invalid list type")
	}
	after := r.Query.Get("start-after")
	if r.has("continuation-token") {
		key, err := decodeToken(r.Query.Get("continuation-token"))
		if err != nil {
			return err
		}
		after = key
	}
	owners := false
	if v := r.Query.Get("fetch-owner"); v != "" {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return invalidArgument("fetch-owner", v, "fetch-owner must be true or false")
		}
		owners = b
	}
	res, page, encode, err := g.listPage(r, after)
	if err != nil {
		return err
	}
	count := len(res.Contents) + len(res.CommonPrefixes)
	res.KeyCount = &count
	res.StartAfter = encode(r.Query.Get("start-after"))
	if r.has("continuation-token") {
		t := r.Query.Get("continuation-token")
		res.Continuation = &t
	}
	if page.Truncated {
		res.NextToken = encodeToken(page.Next)
	}
	if owners {
		owner := ownerOf(r.BucketInfo.Tenant, r.BucketInfo.Owner)
		for i := range res.Contents {
			res.Contents[i].Owner = owner
		}
	}
	return writeXML(w, http.StatusOK, res)
}

// listPage fetches one page and fills in what both versions share.
func (g *Gateway) listPage(r *request, after string) (*listResult, storage.ListPage, func(string) string, error) {
	var page storage.ListPage
	encode, err := encoder(r.Query.Get("encoding-type"))
	if err != nil {
		return nil, page, nil, err
	}
	n, err := pageSize(r, "max-keys")
	if err != nil {
		return nil, page, nil, err
	}
	o := storage.ListOptions{Prefix: r.Query.Get("prefix"), Delimiter: r.Query.Get("delimiter"), After: after, Max: n}
	if n > 0 {
		if page, err = g.store.List(r.Context(), r.Bucket, o); err != nil {
			return nil, page, nil, err
		}
	}
	res := &listResult{
		Name: r.Bucket, Prefix: encode(o.Prefix), Delimiter: encode(o.Delimiter), MaxKeys: n,
		EncodingType: r.Query.Get("encoding-type"), IsTruncated: page.Truncated,
	}
	res.Contents = make([]xmlObject, len(page.Objects))
	for i, oi := range page.Objects {
		res.Contents[i] = xmlObject{
			Key: encode(oi.Key), LastModified: xmlTime(oi.Modified), ETag: quote(oi.ETag), Size: oi.Size,
			ChecksumAlgorithm: string(oi.Checksum.Algorithm), ChecksumType: string(oi.Checksum.Type),
			StorageClass: "STANDARD",
		}
	}
	for _, p := range page.Prefixes {
		res.CommonPrefixes = append(res.CommonPrefixes, xmlPrefix{encode(p)})
	}
	return res, page, encode, nil
}

// Continuation tokens are base64url of a version byte, a CRC32 of the key and
// the key: opaque to clients, and a damaged one is refused, not obeyed.
const tokenVersion = 1

func encodeToken(key string) string {
	b := make([]byte, 5, 5+len(key))
	b[0] = tokenVersion
	binary.LittleEndian.PutUint32(b[1:], crc32.ChecksumIEEE([]byte(key)))
	return base64.RawURLEncoding.EncodeToString(append(b, key...))
}

func decodeToken(token string) (string, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 6 || b[0] != tokenVersion ||
		binary.LittleEndian.Uint32(b[1:]) != crc32.ChecksumIEEE(b[5:]) {
		return "", invalidArgument("continuation-token", token, "The continuation token provided is incorrect")
	}
	return string(b[5:]), nil
}
