package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/objcached/objcached/checksum"
)

// xmlNamespace is the name space of every S3 document but errors.
const xmlNamespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// writeXML answers with a document. v's XMLName carries the name space.
func writeXML(w http.ResponseWriter, status int, v any) error {
	body, err := xml.Marshal(v)
	if err != nil {
		return err
	}
	return writeDocument(w, status, body)
}

// writeDocument answers with a document that is marshalled already.
func writeDocument(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/xml")
	h.Set("Content-Length", strconv.Itoa(len(xml.Header)+len(body)))
	w.WriteHeader(status)
	_, err := w.Write(append([]byte(xml.Header), body...))
	return err
}

// noBody answers with a status alone.
func noBody(w http.ResponseWriter, status int) error {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(status)
	return nil
}

// decodeXML reads one document and nothing after it.
func decodeXML(body []byte, v any) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(v); err != nil {
		return malformedXML(err)
	}
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return malformedXML(err)
		}
		switch t := tok.(type) {
		case xml.CharData:
			if len(bytes.TrimSpace(t)) > 0 {
				return malformedXML(nil)
			}
		case xml.Comment, xml.ProcInst:
		default:
			return malformedXML(nil)
		}
	}
}

// errTooMany ends a document that has more entries than its kind may have.
var errTooMany = errors.New("too many entries")

// decodeEntry appends one element to a list of at most limit entries, so that
// a document of nothing but empty elements ends there and not in memory.
func decodeEntry[T any](list *[]T, limit int, d *xml.Decoder, start xml.StartElement) error {
	if len(*list) == limit {
		return errTooMany
	}
	*list = append(*list, *new(T))
	return d.DecodeElement(&(*list)[len(*list)-1], &start)
}

func malformedXML(cause error) error {
	return &apiError{Code: "MalformedXML", Cause: cause,
		Message: "The XML you provided was not well-formed or did not validate against our published schema."}
}

// xmlTime is a time as S3 writes it: UTC with milliseconds.
type xmlTime time.Time

func (t xmlTime) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z"), nil
}

// xmlOwner names an owner. The id has the shape of S3's canonical user ids.
type xmlOwner struct {
	ID          string
	DisplayName string
}

func ownerOf(tenant, user string) *xmlOwner {
	if user == "" {
		user = "root"
	}
	sum := sha256.Sum256([]byte(tenant + "\x00" + user))
	return &xmlOwner{ID: hex.EncodeToString(sum[:]), DisplayName: user}
}

// xmlChecksum is the checksum elements that several documents embed.
type xmlChecksum struct {
	ChecksumCRC32     string `xml:",omitempty"`
	ChecksumCRC32C    string `xml:",omitempty"`
	ChecksumCRC64NVME string `xml:",omitempty"`
	ChecksumSHA1      string `xml:",omitempty"`
	ChecksumSHA256    string `xml:",omitempty"`
}

// field is the element for an algorithm, nil for none.
func (c *xmlChecksum) field(a checksum.Algorithm) *string {
	switch a {
	case checksum.CRC32:
		return &c.ChecksumCRC32
	case checksum.CRC32C:
		return &c.ChecksumCRC32C
	case checksum.CRC64NVME:
		return &c.ChecksumCRC64NVME
	case checksum.SHA1:
		return &c.ChecksumSHA1
	case checksum.SHA256:
		return &c.ChecksumSHA256
	}
	return nil
}

func checksumElements(s checksum.Sum) (c xmlChecksum) {
	if f := c.field(s.Algorithm); f != nil {
		*f = s.Value
	}
	return c
}

// setChecksum puts a checksum on an answer.
func setChecksum(h http.Header, s checksum.Sum) {
	if !s.IsZero() {
		h.Set(s.Algorithm.Header(), s.Value)
		h.Set(checksum.HeaderType, string(s.Type))
	}
}

// quote is an ETag as S3 shows it.
func quote(etag string) string { return `"` + etag + `"` }

// unquote strips the quotes that clients send or leave out.
func unquote(etag string) string {
	etag = strings.TrimSpace(etag)
	if len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"' {
		return etag[1 : len(etag)-1]
	}
	return etag
}

// encoder returns how a listing shows keys: as they are, or URL-encoded with
// "/" kept, which is what encoding-type=url asks for. Keys with characters
// that XML 1.0 cannot carry come through whole only with the latter.
func encoder(encodingType string) (func(string) string, error) {
	switch encodingType {
	case "":
		return func(s string) string { return s }, nil
	case "url":
		return urlEncode, nil
	}
	return nil, invalidArgument("encoding-type", encodingType, "Invalid Encoding Method specified in Request")
}

func urlEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '_', c == '.', c == '~', c == '/':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}
