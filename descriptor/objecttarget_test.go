package descriptor

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestObjectTarget(t *testing.T) {
	b64 := base64.RawURLEncoding.EncodeToString
	for text, want := range map[string]ObjectTarget{
		`{"handle":"h","offset":0,"length":1,"tag":0}`:                                       {"h", 0, 1, 0, Direct},
		`{"tag":7,"path":"buffer","length":4096,"offset":64,"handle":"a b"}`:                 {"a b", 64, 4096, 7, Buffer},
		` {"handle":"h","offset":1,"length":9223372036854775806,"tag":3,"path" : "direct"} `: {"h", 1, math.MaxInt64 - 1, 3, Direct},
	} {
		got, err := ParseObjectTarget(b64([]byte(text)))
		if err != nil || *got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
			continue
		}
		v, err := got.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseObjectTarget(v); err != nil || *again != want {
			t.Errorf("%s comes back as %+v, %v", text, again, err)
		}
	}
	const good = `{"handle":"h","offset":0,"length":1,"tag":0`
	for text, field := range map[string]string{
		``: "x-kv-rdma-target", `[]`: "x-kv-rdma-target", `{`: "x-kv-rdma-target", good + `}}`: "x-kv-rdma-target", `"x"`: "x-kv-rdma-target",
		`{}`: "rdma_target.handle", `{"handle":"h","offset":0,"length":1}`: "rdma_target.tag",
		`{"handle":"","offset":0,"length":1,"tag":0}`:                                 "rdma_target.handle",
		`{"handle":"` + strings.Repeat("h", 129) + `","offset":0,"length":1,"tag":0}`: "rdma_target.handle",
		`{"handle":7,"offset":0,"length":1,"tag":0}`:                                  "rdma_target.handle",
		`{"handle":"h","offset":-1,"length":1,"tag":0}`:                               "rdma_target.offset",
		`{"handle":"h","offset":0,"length":0,"tag":0}`:                                "rdma_target.length",
		`{"handle":"h","offset":1,"length":9223372036854775807,"tag":0}`:              "rdma_target.length",
		`{"handle":"h","offset":0,"length":1,"tag":-1}`:                               "rdma_target.tag",
		`{"handle":"h","offset":0,"length":1,"tag":1.5}`:                              "rdma_target.tag",
		good + `,"path":"carrier pigeon"}`:                                            "rdma_target.path",
		good + `,"path":""}`:                                                          "rdma_target.path",
		good + `,"layer_stride":1}`:                                                   "rdma_target.layer_stride",
		good + `,"tag":0}`:                                                            "rdma_target.tag",
	} {
		var f *FieldError
		if got, err := ParseObjectTarget(b64([]byte(text))); !errors.As(err, &f) || f.Field != field {
			t.Errorf("%s: %+v, %v, want an error of %s", text, got, err, field)
		}
	}
	for _, v := range []string{"*", "e30\n", strings.Repeat("A", MaxHeaderBytes+1)} {
		var f *FieldError
		if _, err := ParseObjectTarget(v); !errors.As(err, &f) || f.Field != "x-kv-rdma-target" {
			t.Errorf("%.10q: %v", v, err)
		}
	}
	for _, bad := range []ObjectTarget{{}, {Handle: "h"}, {Handle: "h", Length: 1, Path: "x"}, {Handle: "h", Length: 1, Offset: -1}, {Handle: "h", Length: 1, Tag: -1}} {
		if v, err := bad.Encode(); err == nil {
			t.Errorf("%+v was encoded: %s", bad, v)
		}
	}
}

// FuzzObjectTarget: whatever is taken means the same when it is sent on.
func FuzzObjectTarget(f *testing.F) {
	f.Add(`{"handle":"h","offset":0,"length":1,"tag":0,"path":"buffer"}`)
	f.Fuzz(func(t *testing.T, doc string) {
		got, err := ParseObjectTarget(base64.RawURLEncoding.EncodeToString([]byte(doc)))
		if err != nil {
			var fe *FieldError
			if !errors.As(err, &fe) {
				t.Fatalf("%q: %v", doc, err)
			}
			return
		}
		v, err := got.Encode()
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		if again, err := ParseObjectTarget(v); err != nil || *again != *got {
			t.Fatalf("%q: %+v, then %+v, %v", doc, got, again, err)
		}
	})
}
