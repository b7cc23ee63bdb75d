package client

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
)

// Error is what every call returns, possibly joined or wrapped: an error the
// store answered, or one found on the way (StatusCode 0).
type Error struct {
	Code       string // S3's code: NoSuchKey, InvalidArgument, SlowDown, ...; "ShortBody" and "Network" are ours
	Message    string
	Field      string // for InvalidArgument: the field, header or limit it names
	Key        string // the object it is about, if it is about one
	RequestID  string
	StatusCode int
	// Matched is the number of chunks before the first missing one (Code
	// NoSuchKey of GetLayers), or -1.
	Matched int
	// LayersReady is how many layers of a GetLayers were whole before the error.
	LayersReady int
	Err         error // what lies beneath: io.ErrUnexpectedEOF, context.Canceled, ...

	stores bool // it is the store's own answer, and not of a proxy in between
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("client: ")
	b.WriteString(e.Code)
	if e.StatusCode != 0 {
		fmt.Fprintf(&b, " (%d)", e.StatusCode)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, ": key %q", e.Key)
	}
	if e.Matched >= 0 {
		fmt.Fprintf(&b, ": %d chunks matched", e.Matched)
	}
	if e.LayersReady > 0 {
		fmt.Fprintf(&b, ": %d layers ready", e.LayersReady)
	}
	if e.RequestID != "" {
		b.WriteString(": request " + e.RequestID)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// IsNoSuchKey reports whether err says that an object does not exist.
func IsNoSuchKey(err error) bool { return hasCode(err, "NoSuchKey") }

func hasCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

func invalid(field, format string, args ...any) *Error {
	return &Error{Code: "InvalidArgument", Field: field, Message: fmt.Sprintf(format, args...), Matched: -1}
}

// maxErrorBody is as much of an error document as is read.
const maxErrorBody = 64 << 10

// answerError makes an Error of an answer and closes its body.
func answerError(resp *http.Response) *Error {
	e := &Error{StatusCode: resp.StatusCode, RequestID: resp.Header.Get("X-Amz-Request-Id"), Matched: -1}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a cut document is no worse than none
	_ = resp.Body.Close()
	var doc struct {
		XMLName      xml.Name `xml:"Error"`
		Code         string
		Message      string
		Key          string
		ArgumentName string
		RequestID    string `xml:"RequestId"`
	}
	if xml.Unmarshal(body, &doc) == nil {
		e.Code, e.Message, e.Field, e.Key = doc.Code, doc.Message, doc.ArgumentName, doc.Key
		if e.RequestID == "" {
			e.RequestID = doc.RequestID
		}
	}
	e.stores = e.RequestID != "" || e.Code != ""
	if e.Code == "" {
		e.Code = statusCode(resp.StatusCode)
	}
	if m, err := strconv.Atoi(resp.Header.Get("X-Kv-Matched")); err == nil && m >= 0 {
		e.Matched = m
	}
	if l, err := strconv.Atoi(resp.Header.Get("X-Kv-Layers-Ready")); err == nil && l >= 0 {
		e.LayersReady = l
	}
	return e
}

// statusCode names an answer that came without a document (HEAD, proxies).
func statusCode(status int) string {
	switch status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return "AccessDenied"
	case http.StatusNotFound:
		return "NotFound"
	case http.StatusMethodNotAllowed:
		return "MethodNotAllowed"
	case http.StatusPreconditionFailed:
		return "PreconditionFailed"
	case http.StatusNotImplemented:
		return "NotImplemented"
	case http.StatusServiceUnavailable:
		return "SlowDown"
	}
	return "HTTP" + strconv.Itoa(status)
}

func networkError(err error) *Error {
	return &Error{Code: "Network", Matched: -1, Err: err}
}

// fromMinio makes an Error of one of minio-go's.
func fromMinio(err error, key string) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var r minio.ErrorResponse
	if errors.As(err, &r) && r.StatusCode != 0 {
		e := &Error{Code: r.Code, Message: r.Message, Key: key, RequestID: r.RequestID, StatusCode: r.StatusCode, Matched: -1}
		if r.StatusCode == http.StatusNotFound && r.Code != "NoSuchBucket" {
			e.Code = "NoSuchKey"
		}
		return e
	}
	e := networkError(err)
	e.Key = key
	return e
}
