package importrules

import (
	"fmt"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
)

// check parses the imports of every Go file under root, whatever its build
// tags, and returns what goes against the rules, sorted.
func check(root fs.FS) ([]string, error) {
	var bad []string
	report := func(file, format string, args ...any) {
		bad = append(bad, file+": "+fmt.Sprintf(format, args...))
	}
	unruled := map[string]bool{}
	err := walk(root, func(name string) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		r, ok := rules[folder]
		if !ok && !unruled[folder] {
			unruled[folder] = true
			report(folder, "no rule in internal/importrules says what this folder may import")
		}
		test := strings.HasSuffix(name, "_test.go")
		for _, spec := range f.Imports {
			imp := strings.Trim(spec.Path.Value, "`\"")
			if imp == "C" && builtByDefault(root, name) {
				report(name, "uses cgo in the default build")
			}
			if own, isOwn := strings.CutPrefix(imp, module+"/"); isOwn && ok && own != folder {
				if (!test || r.blackBox) && !within(own, r.own) {
					report(name, "imports %s, but %s may import %s: %s", own, folder, list(r.own), r.why)
				}
			}
			for _, x := range restrictions {
				if within(imp, []string{x.path}) && !within(folder, x.only) && (!test || !x.tests) {
					report(name, "imports %s, which only %s may: %s", imp, list(x.only), x.why)
				}
			}
			if !test && within(imp, pure[folder]) {
				report(name, "imports %s, but %s is pure", imp, folder)
			}
		}
		return nil
	})
	sort.Strings(bad)
	return bad, err
}

// builtByDefault reports whether a plain `go build` with cgo would take the file.
func builtByDefault(root fs.FS, name string) bool {
	ctx := build.Default
	ctx.CgoEnabled = true
	ctx.OpenFile = func(p string) (io.ReadCloser, error) { return root.Open(p) }
	ok, err := ctx.MatchFile(path.Dir(name), path.Base(name))
	return ok && err == nil
}

// walk calls fn for the files of the tree but for hidden folders, testdata,
// and what the Makefile leaves behind.
func walk(root fs.FS, fn func(name string) error) error {
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != "." && (strings.HasPrefix(base, ".") && base != ".ci" || base == "testdata" || name == "bin" || name == "data") {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return fn(name)
	})
}

// within reports whether name is one of pats or lies under a "p/..." of them.
func within(name string, pats []string) bool {
	for _, p := range pats {
		if p == "..." || p == name {
			return true
		}
		if base, ok := strings.CutSuffix(p, "/..."); ok && (name == base || strings.HasPrefix(name, base+"/")) {
			return true
		}
	}
	return false
}

func list(pats []string) string {
	if len(pats) == 0 {
		return "nothing of ours"
	}
	return strings.Join(pats, ", ")
}
