package storagetest

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/objcached/objcached/storage"
)

// model lists keys by the words of ListOptions, with no care for speed.
func model(keys []string, o storage.ListOptions) (objects, prefixes []string, truncated bool, next string) {
	common := func(key string) string {
		if o.Delimiter == "" {
			return ""
		}
		rest := key[len(o.Prefix):]
		if i := strings.Index(rest, o.Delimiter); i >= 0 {
			return o.Prefix + rest[:i] + o.Delimiter
		}
		return ""
	}
	afterIsCommon := o.After != "" && strings.HasPrefix(o.After, o.Prefix) && common(o.After) == o.After
	seen := make(map[string]bool)
	type entry struct {
		name   string
		prefix bool
	}
	var all []entry
	for _, k := range slices.Sorted(slices.Values(keys)) {
		if !strings.HasPrefix(k, o.Prefix) || k <= o.After || afterIsCommon && strings.HasPrefix(k, o.After) {
			continue
		}
		if cp := common(k); cp == "" {
			all = append(all, entry{k, false})
		} else if !seen[cp] {
			seen[cp] = true
			all = append(all, entry{cp, true})
		}
	}
	if o.Max <= 0 {
		return nil, nil, false, ""
	}
	if len(all) > o.Max {
		all, truncated = all[:o.Max], true
		next = all[o.Max-1].name
	}
	for _, e := range all {
		if e.prefix {
			prefixes = append(prefixes, e.name)
		} else {
			objects = append(objects, e.name)
		}
	}
	return objects, prefixes, truncated, next
}

func names(infos []storage.ObjectInfo) (out []string) {
	for _, i := range infos {
		out = append(out, i.Key)
	}
	return out
}

func (e *env) compareList(t *testing.T, keys []string, o storage.ListOptions) storage.ListPage {
	t.Helper()
	page, err := e.List(e.ctx, "b", o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	objects, prefixes, truncated, next := model(keys, o)
	if !slices.Equal(names(page.Objects), objects) || !slices.Equal(page.Prefixes, prefixes) || page.Truncated != truncated {
		t.Fatalf("%#v:\n got %q %q %v\nwant %q %q %v", o, names(page.Objects), page.Prefixes, page.Truncated, objects, prefixes, truncated)
	}
	if truncated && page.Next != next {
		t.Fatalf("%#v: next %q, want %q", o, page.Next, next)
	}
	return page
}

func testListModel(t *testing.T, e *env) {
	r := rand.New(rand.NewPCG(5, 6))
	letters := []string{"a", "b", "/", "/", "ü", "\x00", "\xff", "-", "日", "//", "a/b/"}
	word := func(n int) string {
		var s strings.Builder
		for range n {
			s.WriteString(letters[r.IntN(len(letters))])
		}
		return s.String()
	}
	set := make(map[string]bool)
	for len(set) < 300 {
		if k := word(1 + r.IntN(6)); !set[k] {
			set[k] = true
			p := Pattern(uint64(len(k)), len(k)*700)
			e.put(t, k, p)
		}
	}
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	prefixes := []string{"", "", "a", "a/", "/", "ü", "\xff", "\xff\xff", "nothing"}
	delimiters := []string{"", "/", "/", "b", "//", "ü", "\x00", "\xff"}
	for range 1500 {
		o := storage.ListOptions{
			Prefix:    prefixes[r.IntN(len(prefixes))],
			Delimiter: delimiters[r.IntN(len(delimiters))],
			Max:       []int{0, 1, 2, 3, 7, 50, 1000}[r.IntN(7)],
		}
		switch r.IntN(4) {
		case 0:
			o.After = word(r.IntN(5))
		case 1:
			o.After = keys[r.IntN(len(keys))]
		case 2:
			_, cps, _, _ := model(keys, storage.ListOptions{Prefix: o.Prefix, Delimiter: o.Delimiter, Max: 1000})
			if len(cps) > 0 {
				o.After = cps[r.IntN(len(cps))]
			}
		}
		e.compareList(t, keys, o)
	}
	// Page by page gives the same as at once.
	for _, o := range []storage.ListOptions{{}, {Delimiter: "/"}, {Prefix: "a", Delimiter: "/"}, {Delimiter: "\xff"}} {
		o.Max = 1000
		whole := e.compareList(t, keys, o)
		var objects, cps []string
		for o.Max = 3; ; {
			page := e.compareList(t, keys, o)
			objects, cps = append(objects, names(page.Objects)...), append(cps, page.Prefixes...)
			if !page.Truncated {
				break
			}
			o.After = page.Next
		}
		if !slices.Equal(objects, names(whole.Objects)) || !slices.Equal(cps, whole.Prefixes) {
			t.Fatalf("%+v: pages differ from the whole", o)
		}
	}
	for _, info := range e.compareList(t, keys, storage.ListOptions{Max: 1000}).Objects {
		stat, err := e.Stat(e.ctx, "b", info.Key)
		if err != nil {
			t.Fatal(err)
		}
		stat.Headers, stat.UserMeta, stat.Chain, stat.Parts = info.Headers, info.UserMeta, info.Chain, info.Parts
		if !reflect.DeepEqual(stat, info) {
			t.Fatalf("listed as %+v, is %+v", info, stat)
		}
	}
}

// testListDeep has many keys below few common prefixes.
func testListDeep(t *testing.T, e *env) {
	var keys []string
	for i := range 1000 {
		k := keyf("p%d/%04d", i%4, i)
		if i%100 == 0 {
			k = keyf("p%d", i)
		}
		keys = append(keys, k)
		if _, err := e.Put(e.ctx, "b", k, bytes.NewReader(nil), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{1, 2, 3, 4, 5, 1000} {
		e.compareList(t, keys, storage.ListOptions{Delimiter: "/", Max: n})
		e.compareList(t, keys, storage.ListOptions{Delimiter: "/", Max: n, After: "p1/0500"})
		e.compareList(t, keys, storage.ListOptions{Delimiter: "/", Max: n, Prefix: "p2/"})
	}
}
