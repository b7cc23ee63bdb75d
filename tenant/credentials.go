package tenant

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// MinSecret is the shortest secret key taken, in bytes.
	MinSecret = 8
	// maxFile bounds a credentials file, in bytes.
	maxFile = 1 << 20
	// maxText bounds names and keys, in bytes.
	maxText = 128
)

// SyntaxError is a mistake in a credentials file. It never shows a secret.
type SyntaxError struct {
	Line   int // from 1
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

func badLine(n *yaml.Node, format string, args ...any) error {
	return &SyntaxError{Line: n.Line, Reason: fmt.Sprintf(format, args...)}
}

// Credentials is what a credentials file holds.
type Credentials struct {
	Users  []Identity
	Limits map[string]Limits // by tenant; nil: none are given
}

// LoadCredentials reads a credentials file (see ParseCredentials). A warning,
// if not empty, says that others on the machine can read the file.
func LoadCredentials(path string) (c Credentials, warning string, err error) {
	data, mode, err := readFile(path)
	if err != nil {
		return c, "", err
	}
	if c, err = ParseCredentials(data); err != nil {
		return c, "", fmt.Errorf("%s: %w", path, err)
	}
	if mode.Perm()&0o077 != 0 {
		warning = fmt.Sprintf("%s holds secrets and others can read or change it (mode %04o); run chmod 600 on it", path, mode.Perm())
	}
	return c, warning, nil
}

func readFile(path string) ([]byte, os.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() // only read
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, 0, err
	}
	if len(data) > maxFile {
		return nil, 0, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return data, st.Mode(), nil
}

// ParseCredentials reads users from YAML, and what their tenants may have of a
// paced link:
//
//	users:
//	  - name: alice            # unique in its tenant
//	    tenant: research
//	    access_key: ALICEKEY   # unique
//	    secret_key: "at least 8 characters"
//	    buckets: ["kv-*"]      # optional
//	tenants:                   # optional
//	  - name: research         # the tenant of a user
//	    weight: 2              # optional, as are the rates
//	    min_rate: 1Gbps
//	    max_rate: 1.25GB/s
//
// Of a user everything but buckets must be given. Unknown and repeated fields, repeated
// keys and names, anchors and further documents are errors, mostly a
// *SyntaxError with the line.
func ParseCredentials(data []byte) (Credentials, error) {
	root, err := document(data)
	if err != nil {
		return Credentials{}, err
	}
	fields, err := mapping(root, "the file", "users", "tenants")
	if err != nil {
		return Credentials{}, err
	}
	if fields["users"] == nil {
		return Credentials{}, badLine(root, "users is missing")
	}
	var c Credentials
	if c.Users, err = parseUsers(fields["users"]); err != nil {
		return Credentials{}, err
	}
	if list := fields["tenants"]; list != nil {
		if c.Limits, err = limits(list, c.Users); err != nil {
			return Credentials{}, err
		}
	}
	return c, nil
}

func parseUsers(users *yaml.Node) ([]Identity, error) {
	if users.Kind != yaml.SequenceNode {
		return nil, badLine(users, "users must be a list")
	}
	ids := make([]Identity, 0, len(users.Content))
	keys, names := map[string]int{}, map[[2]string]int{}
	for _, n := range users.Content {
		id, err := user(n)
		if err != nil {
			return nil, err
		}
		if line, ok := keys[id.AccessKey]; ok {
			return nil, badLine(n, "access_key %q is already that of the user on line %d", id.AccessKey, line)
		}
		name := [2]string{id.Tenant, id.Name}
		if line, ok := names[name]; ok {
			return nil, badLine(n, "tenant %q already has a user %q on line %d", id.Tenant, id.Name, line)
		}
		keys[id.AccessKey], names[name] = n.Line, n.Line
		ids = append(ids, id)
	}
	return ids, nil
}

// document parses one YAML document into nodes. Nodes keep lines, and nothing
// is expanded.
func document(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &SyntaxError{Line: 1, Reason: "the file is empty"}
	} else if err != nil {
		return nil, hideAlias(err)
	}
	if err := d.Decode(&more); err == nil {
		return nil, badLine(&more, "only one YAML document is taken")
	} else if !errors.Is(err, io.EOF) {
		return nil, hideAlias(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &SyntaxError{Line: 1, Reason: "the file is empty"}
	}
	return doc.Content[0], nil
}

// hideAlias keeps a secret that starts with a star, and has no quotes, out of
// the error that YAML has for it.
func hideAlias(err error) error {
	if strings.Contains(err.Error(), "anchor") {
		return errors.New("anchors and aliases are not taken; put values that start with * or & in quotes")
	}
	return err
}

// mapping takes a mapping apart into its fields, which must be among known.
func mapping(n *yaml.Node, what string, known ...string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, badLine(n, "%s must be a mapping with the fields %s", what, strings.Join(known, ", "))
	}
	fields := make(map[string]*yaml.Node, len(known))
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		ok := false
		for _, name := range known {
			ok = ok || k.Kind == yaml.ScalarNode && k.Value == name
		}
		switch {
		case !ok:
			return nil, badLine(k, "unknown field %q; the fields are %s", clip(k.Value), strings.Join(known, ", "))
		case fields[k.Value] != nil:
			return nil, badLine(k, "%s is given twice", k.Value)
		case v.Kind == yaml.AliasNode || v.Anchor != "":
			return nil, badLine(v, "anchors and aliases are not taken")
		}
		fields[k.Value] = v
	}
	return fields, nil
}

func user(n *yaml.Node) (id Identity, err error) {
	f, err := mapping(n, "a user", "name", "tenant", "access_key", "secret_key", "buckets")
	if err != nil {
		return id, err
	}
	for _, t := range []struct {
		name  string
		dst   *string
		check func(string) string
	}{
		{"name", &id.Name, checkName}, {"tenant", &id.Tenant, checkName},
		{"access_key", &id.AccessKey, checkAccessKey}, {"secret_key", &id.SecretKey, checkSecret},
	} {
		if *t.dst, err = text(n, f[t.name], t.name, t.check); err != nil {
			return id, err
		}
	}
	b := f["buckets"]
	if b == nil {
		return id, nil
	}
	if b.Kind != yaml.SequenceNode {
		return id, badLine(b, "buckets must be a list of patterns")
	}
	for _, p := range b.Content {
		s, err := text(b, p, "a pattern of buckets", checkPattern)
		if err != nil {
			return id, err
		}
		id.Buckets = append(id.Buckets, s)
	}
	return id, nil
}

// text is the value of a field of parent. Only strings are taken: YAML reads
// 0123 and true as something else.
func text(parent, n *yaml.Node, what string, check func(string) string) (string, error) {
	switch {
	case n == nil:
		return "", badLine(parent, "%s is missing", what)
	case n.Kind != yaml.ScalarNode || n.Anchor != "":
		return "", badLine(n, "%s must be a string", what)
	case n.ShortTag() == "!!null" || n.Value == "":
		return "", badLine(n, "%s is empty", what)
	case n.ShortTag() != "!!str":
		return "", badLine(n, "%s must be a string: put it in quotes", what)
	}
	if reason := check(n.Value); reason != "" {
		return "", badLine(n, "%s %s", what, reason)
	}
	return n.Value, nil
}

func clip(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

// The checks say what is wrong with a value, without showing it.

func checkName(s string) string {
	switch {
	case len(s) > maxText:
		return fmt.Sprintf("is longer than %d bytes", maxText)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "holds control characters"
	case strings.TrimSpace(s) != s:
		return "starts or ends with a space"
	case strings.Contains(s, "/"):
		return "holds a slash"
	}
	return ""
}

func checkAccessKey(s string) string {
	if len(s) < 3 || len(s) > maxText {
		return fmt.Sprintf("must have 3 to %d characters", maxText)
	}
	for i := range len(s) {
		// Comma and equals sign end the field of a signature's header.
		if c := s[i]; c <= ' ' || c >= 0x7f || c == ',' || c == '=' {
			return "must be of printable ASCII without spaces, commas and equals signs"
		}
	}
	return ""
}

func checkSecret(s string) string {
	switch {
	case len(s) < MinSecret:
		return fmt.Sprintf("is too short: at least %d characters", MinSecret)
	case len(s) > maxText:
		return fmt.Sprintf("is longer than %d bytes", maxText)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "holds control characters"
	}
	return ""
}

func checkPattern(s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("is longer than %d bytes", maxText)
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._*?", c) >= 0) {
			return "holds a character that no bucket name has"
		}
	}
	return ""
}
