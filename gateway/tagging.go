package gateway

import (
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/objcached/objcached/storage"
)

// The limits of tags, as S3 has them; lengths are in characters.
const (
	maxObjectTags = 10
	maxBucketTags = 50
	maxTagKey     = 128
	maxTagValue   = 256
	// maxTagEntries is what a document may hold to be told that it has too many.
	maxTagEntries = 100
)

// bucketTagging is the name of the setting that holds a bucket's tags, as the
// document that a GET answers.
const bucketTagging = "tagging"

type tagging struct {
	XMLName xml.Name
	TagSet  *tagSet
}

type tagSet struct {
	Tags tagEntries `xml:"Tag"`
}

type tagEntries []xmlTag

// UnmarshalXML implements xml.Unmarshaler for one tag.
func (l *tagEntries) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	return decodeEntry((*[]xmlTag)(l), maxTagEntries, d, start)
}

type xmlTag struct{ Key, Value *string }

func taggingDocument(tags []storage.Tag) tagging {
	doc := tagging{XMLName: xml.Name{Space: xmlNamespace, Local: "Tagging"}, TagSet: &tagSet{}}
	for _, t := range tags {
		doc.TagSet.Tags = append(doc.TagSet.Tags, xmlTag{&t.Key, &t.Value})
	}
	return doc
}

// readTags reads the document of a PUT ?tagging.
func (g *Gateway) readTags(r *request, limit int) ([]storage.Tag, error) {
	body, err := g.readBody(r, maxConfigBody)
	if errors.Is(err, errBodyTooLarge) {
		return nil, malformedXML(err)
	}
	if err != nil {
		return nil, err
	}
	var doc tagging
	if err := decodeXML(body, &doc); err != nil {
		return nil, err
	}
	if doc.XMLName.Local != "Tagging" || doc.TagSet == nil {
		return nil, malformedXML(nil)
	}
	tags := make([]storage.Tag, 0, len(doc.TagSet.Tags))
	for _, t := range doc.TagSet.Tags {
		if t.Key == nil || t.Value == nil {
			return nil, malformedXML(nil)
		}
		tags = append(tags, storage.Tag{Key: *t.Key, Value: *t.Value})
	}
	return tags, checkTags(tags, limit)
}

// headerTags reads x-amz-tagging, whose form is that of a query string.
func headerTags(h http.Header) ([]storage.Tag, error) {
	v := h.Get("X-Amz-Tagging")
	if v == "" {
		return nil, nil
	}
	bad := invalidArgument("x-amz-tagging", v,
		"The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.")
	var tags []storage.Tag
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(v, "&") {
		k, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(k)
		if err == nil {
			value, err = url.QueryUnescape(value)
		}
		if err != nil || key == "" || seen[key] || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, bad
		}
		seen[key] = true
		tags = append(tags, storage.Tag{Key: key, Value: value})
	}
	return tags, checkTags(tags, maxObjectTags)
}

func invalidTag(t storage.Tag, why string) error {
	return fail("InvalidTag", "%s", why).with("TagKey", t.Key).with("TagValue", t.Value)
}

// checkTags applies S3's rules for tags.
func checkTags(tags []storage.Tag, limit int) error {
	if len(tags) > limit {
		return fail("InvalidTag", "There cannot be more than %d tags.", limit)
	}
	seen := make(map[string]bool, len(tags))
	for _, t := range tags {
		switch {
		case t.Key == "" || utf8.RuneCountInString(t.Key) > maxTagKey || !tagCharacters(t.Key):
			return invalidTag(t, "The TagKey you have provided is invalid")
		case utf8.RuneCountInString(t.Value) > maxTagValue || !tagCharacters(t.Value):
			return invalidTag(t, "The TagValue you have provided is invalid")
		case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
			return invalidTag(t, "System tags cannot be added/updated by requester")
		case seen[t.Key]:
			return invalidTag(t, "Cannot provide multiple Tags with the same key")
		}
		seen[t.Key] = true
	}
	return nil
}

// tagCharacters reports whether s has only what S3 allows in a tag.
func tagCharacters(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsNumber(c) && !unicode.IsMark(c) && !unicode.Is(unicode.Zs, c) &&
			!strings.ContainsRune("+-=._:/@", c)
	})
}

// setTagCount tells how many tags an object has, if any.
func setTagCount(h http.Header, oi *storage.ObjectInfo) {
	if n := len(oi.Tags); n > 0 {
		h.Set("X-Amz-Tagging-Count", strconv.Itoa(n))
	}
}

func (g *Gateway) putObjectTagging(w http.ResponseWriter, r *request) error {
	tags, err := g.readTags(r, maxObjectTags)
	if err != nil {
		return err
	}
	if err := g.store.SetTags(r.Context(), r.Bucket, r.Key, tags); err != nil {
		return err
	}
	return noBody(w, http.StatusOK)
}

func (g *Gateway) getObjectTagging(w http.ResponseWriter, r *request) error {
	oi, err := g.store.Stat(r.Context(), r.Bucket, r.Key)
	if err != nil {
		return err
	}
	return writeXML(w, http.StatusOK, taggingDocument(oi.Tags))
}

func (g *Gateway) deleteObjectTagging(w http.ResponseWriter, r *request) error {
	if err := g.store.SetTags(r.Context(), r.Bucket, r.Key, nil); err != nil {
		return err
	}
	return noBody(w, http.StatusNoContent)
}

func (g *Gateway) putBucketTagging(w http.ResponseWriter, r *request) error {
	tags, err := g.readTags(r, maxBucketTags)
	if err != nil {
		return err
	}
	doc, err := xml.Marshal(taggingDocument(tags))
	if err != nil {
		return err
	}
	if err := g.store.SetBucketConfig(r.Context(), r.Bucket, bucketTagging, doc); err != nil {
		return err
	}
	return noBody(w, http.StatusNoContent)
}

func (g *Gateway) getBucketTagging(w http.ResponseWriter, r *request) error {
	doc, err := g.store.BucketConfig(r.Context(), r.Bucket, bucketTagging)
	if errors.Is(err, storage.ErrNoSuchConfig) {
		return fail("NoSuchTagSet", "The TagSet does not exist").with("BucketName", r.Bucket)
	}
	if err != nil {
		return err
	}
	return writeDocument(w, http.StatusOK, doc)
}

func (g *Gateway) deleteBucketTagging(w http.ResponseWriter, r *request) error {
	if err := g.store.SetBucketConfig(r.Context(), r.Bucket, bucketTagging, nil); err != nil {
		return err
	}
	return noBody(w, http.StatusNoContent)
}
