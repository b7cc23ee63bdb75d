package importrules

import (
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's folder.
var root = os.DirFS("../..")

func TestImports(t *testing.T) {
	bad, err := check(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bad {
		t.Error(b)
	}
}

// TestImportsFound shows that each kind of violation is found, and nothing else.
func TestImportsFound(t *testing.T) {
	got, err := check(os.DirFS("testdata/bad"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"agg/plan.go: imports storage, but agg may import descriptor: ",
		"agg/plan.go: imports time, but agg is pure",
		"agg/plan_test.go: imports " + module + "/cmd/objcached, which only nothing of ours may: ",
		"client/cgo.go: uses cgo in the default build",
		"conformance/run_test.go: imports gateway, but conformance may import ",
		"deliver/deliver.go: imports " + module + "/storage/volume, which only ",
		"deliver/deliver.go: imports net/http, which only ",
		"deliver/deliver.go: imports storage/volume, but deliver may import ",
		"gateway/gateway.go: imports github.com/spf13/cobra, which only ",
		"nowhere: no rule",
	}
	if len(got) != len(want) {
		t.Fatalf("found %d violations, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("violation %d is %q, want %q", i, got[i], want[i])
		}
	}
}

// tableFolder matches a folder in the first column of ARCHITECTURE.md's table.
var tableFolder = regexp.MustCompile("`([a-z0-9/]+)`")

// folders returns the folders that the table of ARCHITECTURE.md names.
func folders(page string) []string {
	_, table, _ := strings.Cut(page, "| folder |")
	table, _, _ = strings.Cut(table, "\n\n")
	var names []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range tableFolder.FindAllStringSubmatch(cells[1], -1) {
			names = append(names, strings.TrimSuffix(m[1], "/"))
		}
	}
	return names
}

// TestRulesFollowArchitecture keeps the page and the rules about the same folders.
func TestRulesFollowArchitecture(t *testing.T) {
	page, err := fs.ReadFile(root, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := folders(string(page))
	if len(named) < 10 {
		t.Fatalf("found only %d folders in the table of ARCHITECTURE.md: %q", len(named), named)
	}
	for _, f := range named {
		if _, ok := rules[f]; !ok {
			t.Errorf("ARCHITECTURE.md names %s, but no rule does", f)
		}
	}
	for f, r := range rules {
		if r.why == "" {
			t.Errorf("the rule of %s lacks its reason", f)
		}
		top, _, _ := strings.Cut(f, "/")
		if top != "internal" && !slices.Contains(named, f) && !slices.Contains(named, top) {
			t.Errorf("a rule names %s, but ARCHITECTURE.md does not", f)
		}
	}
	for _, r := range restrictions {
		if r.why == "" {
			t.Errorf("the restriction of %s lacks its reason", r.path)
		}
	}
}

// outside returns the files that name the folder beside the repository, which
// a clone does not have.
func outside(tree fs.FS) ([]string, error) {
	needle := []byte("../" + "shared")
	var found []string
	err := walk(tree, func(name string) error {
		b, err := fs.ReadFile(tree, name)
		if err == nil && bytes.Contains(b, needle) {
			found = append(found, name)
		}
		return err
	})
	return found, err
}

func TestNothingOutsideTheTree(t *testing.T) {
	found, err := outside(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("%s refers to a folder outside the repository", f)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/read.go", []byte(`os.Open("../`+`shared/x")`), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := outside(os.DirFS(dir)); err != nil || len(found) != 1 {
		t.Errorf("a bad file was not found: %q, %v", found, err)
	}
}
