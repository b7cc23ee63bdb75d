package gateway

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// documented is the operation table of docs/s3.md: what it says of each.
func documented(t *testing.T) (status map[string]string, text string) {
	t.Helper()
	b, err := os.ReadFile("../docs/s3.md")
	if err != nil {
		t.Fatal(err)
	}
	status = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| (yes|no|501) \|`).FindAllStringSubmatch(string(b), -1) {
		if status[m[1]] != "" {
			t.Errorf("docs/s3.md has two rows for %s", m[1])
		}
		status[m[1]] = m[2]
	}
	return status, string(b)
}

// TestDocumentedOperations: what the server knows is in the document, and what
// the document says is served the server knows.
func TestDocumentedOperations(t *testing.T) {
	t.Parallel()
	status, _ := documented(t)
	inTable := map[string]bool{}
	for _, op := range operations {
		inTable[op.name] = true
		if s := status[op.name]; s != "yes" && s != "501" {
			t.Errorf("%s is in the operation table; docs/s3.md says %q", op.name, s)
		}
	}
	for name, s := range status {
		if (s == "no") == inTable[name] {
			t.Errorf("docs/s3.md says %q of %s; in the operation table: %v", s, name, inTable[name])
		}
	}
	// Of every operation that a current SDK has, the document says something.
	client := reflect.TypeFor[*s3.Client]()
	for i := range client.NumMethod() {
		if name := client.Method(i).Name; name != "Options" && status[name] == "" {
			t.Errorf("docs/s3.md says nothing of %s", name)
		}
	}
}

// TestDocumentedRefusals: what is marked 501 is.
func TestDocumentedRefusals(t *testing.T) {
	t.Parallel()
	status, _ := documented(t)
	h := newHarness(t)
	h.bucket(t, "box")
	h.put(t, "/box/k", []byte("hello"))
	for _, op := range operations {
		if status[op.name] != "501" {
			continue
		}
		target := map[level]string{onService: "/", onBucket: "/box", onObject: "/box/k"}[op.level] + "?" + strings.Join(op.query, "&")
		q := wireRequest{method: op.method, target: target, header: map[string]string{}}
		if op.header != "" {
			q.header[op.header] = "x"
		}
		h.wantCode(t, "NotImplemented", q)
	}
}

// TestDocumentedHeaders: the table of headers and that of the document are one.
func TestDocumentedHeaders(t *testing.T) {
	t.Parallel()
	_, text := documented(t)
	_, table, ok := strings.Cut(text, "## Request headers")
	table, _, ok2 := strings.Cut(table, "\n## ")
	if !ok || !ok2 {
		t.Fatal("no such section")
	}
	told := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`x-amz-[^|]*) \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile("`(x-amz-[a-z0-9-]+)`").FindAllStringSubmatch(row[1], -1) {
			told[m[1]] = row[2]
		}
	}
	for _, r := range amzHeaders {
		name := strings.ToLower(r.name)
		what, ok := told[name]
		if !ok {
			t.Errorf("docs/s3.md says nothing of %s", name)
		}
		for _, v := range r.values {
			if !strings.Contains(what, "`"+v+"`") {
				t.Errorf("docs/s3.md does not say that %s may be %s", name, v)
			}
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("docs/s3.md has %s, which is not honoured", name)
	}
}
