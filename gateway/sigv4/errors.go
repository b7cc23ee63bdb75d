package sigv4

import (
	"errors"
	"net/http"
)

// Error is a refusal, with the S3 error code to answer. The optional fields
// are those S3 shows beside it; none holds a secret or a valid signature.
type Error struct {
	Code    string
	Message string
	Status  int // HTTP

	Header            string // the header at fault, lower case
	Region            string // the region to sign for
	AccessKey         string
	SignatureProvided string
	StringToSign      string // of SignatureDoesNotMatch: what the server signed
	CanonicalRequest  string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

var errNoDate = errors.New("no date")

func fail(code, message string) *Error {
	e := &Error{Code: code, Message: message, Status: http.StatusBadRequest}
	switch code {
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed":
		e.Status = http.StatusForbidden
	}
	return e
}

func malformed(message string) *Error { return fail("AuthorizationHeaderMalformed", message) }

func badQuery(message string) *Error { return fail("AuthorizationQueryParametersError", message) }

func errV2() *Error {
	return fail("InvalidRequest", "Signature Version 2 is not supported. Please use AWS4-HMAC-SHA256 (Signature Version 4; "+
		"in boto3 set signature_version='s3v4').")
}

func errToken() *Error {
	return fail("InvalidToken", "Session tokens are not supported; sign with a permanent access key.")
}
