package clienttest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// checkSignature verifies a Signature V4 in headers and the payload's hash,
// and says what is wrong. Every x-amz-* and x-kv-* header must be signed.
func checkSignature(r *http.Request, body []byte) string {
	auth, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return "no signature"
	}
	var credential, signed, signature string
	for _, f := range strings.Split(auth, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		switch k {
		case "Credential":
			credential = v
		case "SignedHeaders":
			signed = v
		case "Signature":
			signature = v
		}
	}
	access, scope, _ := strings.Cut(credential, "/")
	if access != AccessKey {
		return "unknown access key"
	}
	names := strings.Split(signed, ";")
	for h := range r.Header {
		h = strings.ToLower(h)
		if (strings.HasPrefix(h, "x-amz-") || strings.HasPrefix(h, "x-kv-")) && !slices.Contains(names, h) {
			return h + " is not signed"
		}
	}
	if !slices.Contains(names, "host") {
		return "host is not signed"
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if sum := sha256.Sum256(body); hash != "UNSIGNED-PAYLOAD" && hash != hex.EncodeToString(sum[:]) {
		return "the payload's hash is wrong"
	}

	var query []string
	for k, vs := range r.URL.Query() {
		for _, v := range vs {
			query = append(query, escape(k)+"="+escape(v))
		}
	}
	slices.Sort(query)
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + strings.Join(query, "&") + "\n"
	for _, n := range names {
		v := strings.Join(r.Header.Values(n), ",")
		if n == "host" {
			v = r.Host
		}
		canonical += n + ":" + strings.TrimSpace(v) + "\n"
	}
	canonical += "\n" + signed + "\n" + hash

	sum := sha256.Sum256([]byte(canonical))
	toSign := "AWS4-HMAC-SHA256\n" + r.Header.Get("X-Amz-Date") + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + SecretKey)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	if hex.EncodeToString(mac(key, toSign)) != signature {
		return "the signature is wrong"
	}
	return ""
}

func mac(key []byte, s string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(s))
	return m.Sum(nil)
}

func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
