package checksum

import (
	"fmt"
	"strings"
)

// The headers that say which checksum a request means, by canonical name.
const (
	HeaderAlgorithm    = "X-Amz-Checksum-Algorithm"     // CreateMultipartUpload, CopyObject
	HeaderSDKAlgorithm = "X-Amz-Sdk-Checksum-Algorithm" // requests that carry bytes
	HeaderType         = "X-Amz-Checksum-Type"
	HeaderMode         = "X-Amz-Checksum-Mode" // "ENABLED" on GET and HEAD
)

// Header is the canonical name of the header (or trailer) that carries a
// value of the algorithm, empty for None or an unknown one.
func (a Algorithm) Header() string {
	switch a {
	case CRC32:
		return "X-Amz-Checksum-Crc32"
	case CRC32C:
		return "X-Amz-Checksum-Crc32c"
	case CRC64NVME:
		return "X-Amz-Checksum-Crc64nvme"
	case SHA1:
		return "X-Amz-Checksum-Sha1"
	case SHA256:
		return "X-Amz-Checksum-Sha256"
	}
	return ""
}

// Element is the name of the XML element that carries a value of the algorithm.
func (a Algorithm) Element() string {
	if a.Size() == 0 {
		return ""
	}
	return "Checksum" + string(a)
}

// FromHeaderName finds the algorithm whose value the header carries, in any
// case; None if it is no such header.
func FromHeaderName(name string) Algorithm {
	for _, a := range Algorithms {
		if strings.EqualFold(name, a.Header()) {
			return a
		}
	}
	return None
}

// HeaderError is a bad value of a checksum header; S3 calls it InvalidRequest.
type HeaderError struct {
	Header string // canonical name
	Reason string
}

func (e *HeaderError) Error() string { return e.Header + ": " + e.Reason }

// Parse returns the algorithm that a header or form names, in any case.
func Parse(name string) (Algorithm, bool) {
	for _, a := range Algorithms {
		if strings.EqualFold(name, string(a)) {
			return a, true
		}
	}
	return None, false
}

// get returns the one value of a header, which is keyed by canonical name.
func get(h map[string][]string, name string) (value string, ok bool, err error) {
	v := h[name]
	switch len(v) {
	case 0:
		return "", false, nil
	case 1:
		return strings.TrimSpace(v[0]), true, nil
	}
	return "", false, &HeaderError{name, "given more than once"}
}

// FromHeaders returns the one checksum among the headers of a request that
// carries bytes, keyed by canonical name; the zero Sum if there is none. Two
// of them, or a value that is none of its algorithm, is a *HeaderError. The
// value of x-amz-sdk-checksum-algorithm must not contradict it.
func FromHeaders(h map[string][]string) (Sum, error) {
	var s Sum
	for name := range h {
		// Unknown algorithms are refused: storing the bytes unchecked would
		// let the client believe that they were checked.
		rest, ok := strings.CutPrefix(name, "X-Amz-Checksum-")
		if !ok || name == HeaderAlgorithm || name == HeaderType || name == HeaderMode {
			continue
		}
		a := FromHeaderName(name)
		if a == None {
			return Sum{}, &HeaderError{name, "unknown checksum " + strings.ToUpper(rest)}
		}
		v, _, err := get(h, name)
		if err != nil {
			return Sum{}, err
		}
		if !s.IsZero() {
			return Sum{}, &HeaderError{name, "more than one x-amz-checksum- header"}
		}
		if !Valid(a, v) {
			return Sum{}, &HeaderError{name, (&ValueError{a, v}).Error()}
		}
		s = Sum{Algorithm: a, Type: FullObject, Value: v}
	}
	sdk, err := SDKAlgorithm(h)
	if err != nil {
		return Sum{}, err
	}
	if !s.IsZero() && sdk != None && sdk != s.Algorithm {
		return Sum{}, &HeaderError{HeaderSDKAlgorithm, "does not match the checksum header " + s.Algorithm.Header()}
	}
	return s, nil
}

// SDKAlgorithm is what x-amz-sdk-checksum-algorithm announces, or None.
func SDKAlgorithm(h map[string][]string) (Algorithm, error) { return algorithm(h, HeaderSDKAlgorithm) }

func algorithm(h map[string][]string, name string) (Algorithm, error) {
	v, ok, err := get(h, name)
	if err != nil || !ok {
		return None, err
	}
	a, ok := Parse(v)
	if !ok {
		return None, &HeaderError{name, fmt.Sprintf("unknown checksum algorithm %q", v)}
	}
	return a, nil
}

// ForUpload reads what checksum a multipart upload asks for
// (x-amz-checksum-algorithm and x-amz-checksum-type of CreateMultipartUpload).
// Without an algorithm both results are empty.
func ForUpload(h map[string][]string) (Algorithm, Type, error) {
	a, err := algorithm(h, HeaderAlgorithm)
	if err != nil {
		return None, "", err
	}
	v, ok, err := get(h, HeaderType)
	if err != nil {
		return None, "", err
	}
	if a == None {
		if ok {
			return None, "", &HeaderError{HeaderType, "can only be used with " + HeaderAlgorithm}
		}
		return None, "", nil
	}
	if !ok {
		return a, a.DefaultType(), nil
	}
	t, ok := ParseType(v)
	if !ok {
		return None, "", &HeaderError{HeaderType, fmt.Sprintf("%q is neither FULL_OBJECT nor COMPOSITE", v)}
	}
	if !a.Allows(t) {
		return None, "", &HeaderError{HeaderType, fmt.Sprintf("%s cannot be %s in a multipart upload", a, t)}
	}
	return a, t, nil
}

// ParseType returns the type of that name, in any case.
func ParseType(v string) (Type, bool) {
	switch {
	case strings.EqualFold(v, string(FullObject)):
		return FullObject, true
	case strings.EqualFold(v, string(Composite)):
		return Composite, true
	}
	return "", false
}

// DefaultType is the type of a multipart upload's checksum when none is named.
func (a Algorithm) DefaultType() Type {
	switch a {
	case CRC64NVME:
		return FullObject
	case CRC32, CRC32C, SHA1, SHA256:
		return Composite
	}
	return ""
}

// Allows reports whether a multipart upload may have a checksum of that type:
// SHA digests of parts do not combine, and CRC64NVME is whole-object only.
func (a Algorithm) Allows(t Type) bool {
	switch a {
	case CRC64NVME:
		return t == FullObject
	case CRC32, CRC32C:
		return t == FullObject || t == Composite
	case SHA1, SHA256:
		return t == Composite
	}
	return false
}
