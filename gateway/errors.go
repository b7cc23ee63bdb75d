package gateway

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/gateway/payload"
	"github.com/objcached/objcached/gateway/sigv4"
	"github.com/objcached/objcached/storage"
)

// apiError is an error as a client sees it. Handlers return one with fail or
// any error of storage, descriptor or payload; toAPIError knows them all.
type apiError struct {
	Code    string
	Message string
	Extra   []errorField      // more elements of the document, in order
	Header  map[string]string // more headers of the answer
	Cause   error             // logged, never shown
	Status  int               // of the answer; 0: that of the code
}

// errorField is one more element of an error document, like ArgumentName.
type errorField struct{ Name, Value string }

func (e *apiError) Error() string {
	if e.Cause != nil {
		return e.Code + ": " + e.Message + ": " + e.Cause.Error()
	}
	return e.Code + ": " + e.Message
}

func (e *apiError) Unwrap() error { return e.Cause }

// with adds an element to the document.
func (e *apiError) with(name, value string) *apiError {
	e.Extra = append(e.Extra, errorField{name, value})
	return e
}

// header adds a header to the answer.
func (e *apiError) header(name, value string) *apiError {
	if e.Header == nil {
		e.Header = map[string]string{}
	}
	e.Header[name] = value
	return e
}

// fail makes an error with one of the codes of errorStatus.
func fail(code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// invalidArgument names the argument that is wrong and what it was.
func invalidArgument(name, value, format string, args ...any) *apiError {
	return fail("InvalidArgument", format, args...).with("ArgumentName", name).with("ArgumentValue", value)
}

// notImplemented says what a request asked for that this server lacks.
func notImplemented(format string, args ...any) *apiError {
	return fail("NotImplemented", "This server does not implement %s.", fmt.Sprintf(format, args...))
}

// slowDown says that a limit is reached and the client should come back.
func slowDown(limit string) *apiError {
	return fail("SlowDown", "Please reduce your request rate: %s.", limit).header("Retry-After", "1")
}

// errorStatus is every code the server answers, with its HTTP status.
var errorStatus = map[string]int{
	"AccessDenied":                          403,
	"AuthorizationHeaderMalformed":          400,
	"AuthorizationQueryParametersError":     400,
	"BadDigest":                             400,
	"BucketAlreadyExists":                   409,
	"BucketAlreadyOwnedByYou":               409,
	"BucketNotEmpty":                        409,
	"ConditionalRequestConflict":            409,
	"EntityTooLarge":                        400,
	"EntityTooSmall":                        400,
	"IncompleteBody":                        400,
	"InternalError":                         500,
	"InvalidAccessKeyId":                    403,
	"InsufficientStorage":                   507, // not S3's, which is never full; its SlowDown would be tried again for ever
	"InvalidArgument":                       400,
	"InvalidBucketName":                     400,
	"InvalidDigest":                         400,
	"InvalidLocationConstraint":             400,
	"InvalidPartNumber":                     416,
	"InvalidPart":                           400,
	"InvalidPartOrder":                      400,
	"InvalidRange":                          416,
	"InvalidRequest":                        400,
	"InvalidTag":                            400,
	"InvalidURI":                            400,
	"KeyTooLongError":                       400,
	"MalformedXML":                          400,
	"MetadataTooLarge":                      400,
	"MethodNotAllowed":                      405,
	"MissingContentLength":                  411,
	"MissingSecurityHeader":                 400,
	"NoSuchBucket":                          404,
	"NoSuchKey":                             404,
	"NoSuchTagSet":                          404,
	"NoSuchUpload":                          404,
	"NotImplemented":                        501,
	"PreconditionFailed":                    412,
	"RequestTimeTooSkewed":                  403,
	"RequestTimeout":                        400,
	"ServiceUnavailable":                    503,
	"SignatureDoesNotMatch":                 403,
	"SlowDown":                              503,
	"NoSuchBucketPolicy":                    404,
	"NoSuchCORSConfiguration":               404,
	"NoSuchLifecycleConfiguration":          404,
	"NoSuchWebsiteConfiguration":            404,
	"ObjectLockConfigurationNotFoundError":  404,
	"ReplicationConfigurationNotFoundError": 404,
	"ServerSideEncryptionConfigurationNotFoundError": 404,
	"TooManyBuckets":            400,
	"TooManyMultipartUploads":   400, // not S3's, which has no such limit
	"UnexpectedContent":         400,
	"XAmzContentSHA256Mismatch": 400,
}

// status is the HTTP status of the error. An unknown code is a bug in the
// server, and is answered as one.
func (e *apiError) status() int {
	if e.Status != 0 {
		return e.Status
	}
	if s, ok := errorStatus[e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// toAPIError maps every error a handler may return.
func toAPIError(r *request, err error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	for _, m := range storageErrors {
		if errors.Is(err, m.err) {
			e := fail(m.code, "%s", m.message)
			e.Cause = err
			if why := (*storage.InvalidError)(nil); errors.As(err, &why) {
				e.Message = why.Reason
			}
			switch m.code {
			case "NoSuchKey":
				e.with("Key", r.Key)
			case "NoSuchBucket", "BucketAlreadyExists", "BucketNotEmpty":
				e.with("BucketName", r.Bucket)
			case "NoSuchUpload":
				e.with("UploadId", r.Query.Get("uploadId"))
			case "SlowDown", "ConditionalRequestConflict":
				e.header("Retry-After", "1")
			}
			return e
		}
	}
	if e := descriptorError(err); e != nil {
		return e
	}
	var header *checksum.HeaderError
	if errors.As(err, &header) {
		return fail("InvalidRequest", "%s", header.Error()).with("ArgumentName", strings.ToLower(header.Header))
	}
	var body *payload.Error
	if errors.As(err, &body) {
		e := fail(body.Code, "%s", body.Message)
		e.Status = body.Status
		if body.Header != "" {
			e.with("HeaderName", body.Header)
		}
		return e
	}
	var sig *sigv4.Error
	if errors.As(err, &sig) {
		return signatureError(sig)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err) {
		return &apiError{Code: "RequestTimeout", Cause: err,
			Message: "Your socket connection to the server was not read from or written to within the timeout period."}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &apiError{Code: "IncompleteBody", Cause: err, Message: "The request body ended early."}
	}
	if errors.Is(err, context.Canceled) {
		return &apiError{Code: "RequestTimeout", Cause: err, Message: "The client went away."}
	}
	return &apiError{Code: "InternalError", Cause: err, Message: "We encountered an internal error. Please try again."}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// storageErrors maps the errors of package storage.
var storageErrors = []struct {
	err           error
	code, message string
}{
	{storage.ErrNoSuchBucket, "NoSuchBucket", "The specified bucket does not exist."},
	{storage.ErrBucketExists, "BucketAlreadyExists", "The requested bucket name is not available."},
	{storage.ErrBucketNotEmpty, "BucketNotEmpty", "The bucket you tried to delete is not empty."},
	{storage.ErrNoSuchKey, "NoSuchKey", "The specified key does not exist."},
	{storage.ErrNoSuchUpload, "NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."},
	{storage.ErrInvalidPart, "InvalidPart", "One or more of the specified parts could not be found, or its entity tag or checksum did not match."},
	{storage.ErrInvalidPartOrder, "InvalidPartOrder", "The list of parts was not in ascending order."},
	{storage.ErrEntityTooSmall, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size."},
	{storage.ErrPrecondition, "PreconditionFailed", "At least one of the preconditions you specified did not hold."},
	{storage.ErrConflict, "ConditionalRequestConflict", "A conflicting operation is under way on this key. Please try again."},
	{storage.ErrIncompleteBody, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length header."},
	{storage.ErrInvalidRange, "InvalidRange", "The requested range is not satisfiable."},
	{storage.ErrInvalidRequest, "InvalidRequest", "The request is not valid."},
	{storage.ErrBadDigest, "BadDigest", "The checksum you specified did not match what we received."},
	{storage.ErrTooManyBuckets, "TooManyBuckets", "You have attempted to create more buckets than allowed."},
	{storage.ErrTooManyUploads, "TooManyMultipartUploads", "The bucket has as many unfinished uploads as it may have. Complete or abort some."},
	{storage.ErrNoSpace, "InsufficientStorage", "The store has no space left for this object."},
	{storage.ErrClosed, "ServiceUnavailable", "The server is shutting down."},
}

// descriptorError maps the errors of package descriptor, or returns nil.
func descriptorError(err error) *apiError {
	var field *descriptor.FieldError
	if errors.As(err, &field) {
		return fail("InvalidArgument", "%s", field.Error()).with("ArgumentName", field.Field)
	}
	var missing *descriptor.MissingError
	if errors.As(err, &missing) {
		return fail("NoSuchKey", "The specified key does not exist.").
			with("Key", missing.Key).header("X-Kv-Matched", strconv.Itoa(missing.Matched))
	}
	var size *descriptor.ChunkSizeError
	if errors.As(err, &size) {
		return fail("InvalidArgument", "%s", size.Error()).with("ArgumentName", "chunk_keys").with("Key", size.Key)
	}
	var busy *descriptor.BusyError
	if errors.As(err, &busy) {
		return slowDown(busy.Limit)
	}
	return nil
}

// signatureError shows a client what the server made of its request, as S3
// does: it is how signing is debugged. Nothing in it is secret.
func signatureError(sig *sigv4.Error) *apiError {
	e := fail(sig.Code, "%s", sig.Message)
	e.Status = sig.Status
	for _, f := range [...]errorField{
		{"HeaderName", sig.Header}, {"Region", sig.Region}, {"AWSAccessKeyId", sig.AccessKey},
		{"StringToSign", sig.StringToSign}, {"SignatureProvided", sig.SignatureProvided},
		{"CanonicalRequest", sig.CanonicalRequest},
	} {
		if f.Value != "" {
			e.with(f.Name, f.Value)
		}
	}
	return e
}

// renderError answers a request that failed. If the status line is already
// out, the only honest answer left is to break the connection.
func (g *Gateway) renderError(w http.ResponseWriter, r *request, err error) {
	e := toAPIError(r, err)
	r.err = e
	rw := responseOf(w)
	if rw.status != 0 {
		panic(http.ErrAbortHandler)
	}
	if r.in {
		r.body.drain(r.Header.Get("Expect") != "")
	}
	h := w.Header()
	clearObjectHeaders(h)
	if r.body.open {
		// Otherwise the server would wait for the rest before it answers.
		h.Set("Connection", "close")
	}
	for k, v := range e.Header {
		h.Set(k, v)
	}
	status := e.status()
	if r.Method == http.MethodHead {
		// No body can say what went wrong; clients show the code if they get it.
		h.Set("X-Amz-Error-Code", e.Code)
		w.WriteHeader(status)
		return
	}
	body := errorDocument(r, e)
	h.Set("Content-Type", "application/xml")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody is left to tell
}

// clearObjectHeaders drops what a handler had already said about an object: an
// error answer must not carry it.
func clearObjectHeaders(h http.Header) {
	for name := range h {
		switch name {
		case "X-Amz-Request-Id", "Server", "X-Amz-Rdma-Reply", "X-Kv-Matched", "X-Kv-Layers-Ready":
		default:
			delete(h, name)
		}
	}
}

// errorDocument renders S3's error XML.
func errorDocument(r *request, e *apiError) []byte {
	var b strings.Builder
	b.WriteString(xml.Header)
	b.WriteString("<Error>")
	element := func(name, value string) {
		b.WriteString("<" + name + ">")
		_ = xml.EscapeText(&b, []byte(value)) // a Builder does not fail
		b.WriteString("</" + name + ">")
	}
	element("Code", e.Code)
	element("Message", e.Message)
	for _, f := range e.Extra {
		element(f.Name, f.Value)
	}
	element("Resource", r.resource())
	element("RequestId", r.ID)
	b.WriteString("</Error>")
	return []byte(b.String())
}
