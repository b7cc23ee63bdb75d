package storagetest

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcached/objcached/checksum"
	"github.com/objcached/objcached/storage"
)

const minPart = 5 << 20

func (e *env) upload(t *testing.T, key string, alg checksum.Algorithm, typ checksum.Type) storage.Upload {
	t.Helper()
	u, err := e.CreateUpload(e.ctx, "b", key, storage.PutOptions{
		Headers:  map[string]string{"Content-Type": "x/y"},
		UserMeta: map[string]string{"k": "v"},
		Chain:    storage.Chain{Parent: "p", Index: 2},
	}, alg, typ)
	if err != nil {
		t.Fatalf("CreateUpload %q: %v", key, err)
	}
	return u
}

func (e *env) part(t *testing.T, u storage.Upload, number int, p []byte) storage.CompletedPart {
	t.Helper()
	got, err := e.PutPart(e.ctx, "b", u.Key, u.ID, number, bytes.NewReader(p), storage.PartOptions{Size: int64(len(p))})
	if err != nil {
		t.Fatalf("PutPart %d: %v", number, err)
	}
	if got.Number != number || got.Size != int64(len(p)) || got.ETag != md5Hex(p) || got.Modified.IsZero() {
		t.Fatalf("PutPart %d: %+v", number, got)
	}
	return storage.CompletedPart{Number: number, ETag: got.ETag}
}

// partsETag is the ETag of a multipart object by its definition.
func partsETag(parts ...[]byte) string {
	var all []byte
	for _, p := range parts {
		sum := md5.Sum(p)
		all = append(all, sum[:]...)
	}
	sum := md5.Sum(all)
	return hex.EncodeToString(sum[:]) + keyf("-%d", len(parts))
}

func testMultipart(t *testing.T, e *env) {
	u := e.upload(t, "k", checksum.None, "")
	if got, err := e.GetUpload(e.ctx, "b", "k", u.ID); err != nil || !reflect.DeepEqual(got, u) || got.Key != "k" || got.Initiated.IsZero() {
		t.Fatalf("GetUpload: %+v, %v; want %+v", got, err, u)
	}
	// Parts of odd sizes, out of order, one twice, one not listed.
	p := [][]byte{Pattern(1, minPart+3), Pattern(2, minPart), Pattern(3, 12345)}
	var parts [3]storage.CompletedPart
	parts[2] = e.part(t, u, 900, p[2])
	e.part(t, u, 7, Pattern(9, minPart))
	e.part(t, u, 2, Pattern(8, 100_000))
	parts[0] = e.part(t, u, 2, p[0])
	parts[1] = e.part(t, u, 3, p[1])
	_, err := e.Stat(e.ctx, "b", "k")
	wantErr(t, "not complete", err, storage.ErrNoSuchKey)
	e.put(t, "k", Pattern(4, 50_000)) // to be replaced

	want := slices.Concat(p...)
	info, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, parts[:], storage.CompleteOptions{Size: int64(len(want))})
	if err != nil {
		t.Fatal(err)
	}
	if info.ETag != partsETag(p...) || info.Parts != 3 || info.Size != int64(len(want)) || info.Key != "k" ||
		info.Headers["Content-Type"] != "x/y" || info.UserMeta["k"] != "v" || info.Chain != (storage.Chain{Parent: "p", Index: 2}) {
		t.Fatalf("CompleteUpload: %+v", info)
	}
	if got, err := e.Stat(e.ctx, "b", "k"); err != nil || !reflect.DeepEqual(got, info) {
		t.Fatalf("Stat: %+v, %v", got, err)
	}
	e.expect(t, "k", want)
	o := e.open(t, "k")
	defer o.Close()
	edge := len(p[0])
	for _, r := range [][2]int{{edge - 1, 2}, {edge, 1}, {edge - bs, 3 * bs}, {edge + minPart - 5, 10}, {len(want) - 1, 1}, {1, len(want) - 2}, {edge, bs}} {
		e.expectRange(t, o, want, r[0], r[1])
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			off := g * edge / 2
			got := make([]byte, len(want)-off)
			if err := o.ReadAt(e.ctx, got, int64(off), storage.ReadHint{}); err != nil || !bytes.Equal(got, want[off:]) {
				t.Errorf("concurrent read: %v", err)
			}
		})
	}
	wg.Wait()
	wantErr(t, "outside", o.ReadAt(e.ctx, make([]byte, 2), int64(len(want)-1), storage.ReadHint{}), storage.ErrInvalidRange)

	for i, size := range []int{len(p[0]), len(p[1]), len(p[2])} {
		want := storage.ObjectPart{Number: i + 1, Offset: int64(len(slices.Concat(p[:i]...))), Size: int64(size)}
		if got, ok := info.Part(i + 1); !ok || got != want {
			t.Fatalf("part %d: %+v, %v; want %+v", i+1, got, ok, want)
		}
	}
	for _, n := range []int{-1, 0, 4} {
		if got, ok := info.Part(n); ok {
			t.Fatalf("part %d: %+v", n, got)
		}
	}
	// Whose first answer was lost gets it again, as long as the object is that one.
	again := func(o storage.CompleteOptions, parts ...storage.CompletedPart) (storage.ObjectInfo, error) {
		return e.CompleteUpload(e.ctx, "b", "k", u.ID, parts, o)
	}
	if got, err := again(storage.CompleteOptions{Cond: storage.Condition{IfNoneMatch: "*"}}, parts[:]...); err != nil || !reflect.DeepEqual(got, info) {
		t.Fatalf("complete again: %+v, %v; want %+v", got, err, info)
	}
	_, err = again(storage.CompleteOptions{Size: 1}, parts[:]...)
	wantErr(t, "complete again with another size", err, storage.ErrInvalidRequest)
	_, err = again(storage.CompleteOptions{}, parts[:2]...)
	wantErr(t, "complete again with fewer parts", err, storage.ErrNoSuchUpload)
	renumbered := slices.Clone(parts[:])
	renumbered[1].Number = 4
	_, err = again(storage.CompleteOptions{}, renumbered...)
	wantErr(t, "complete again with another number", err, storage.ErrNoSuchUpload)
	_, err = e.CompleteUpload(e.ctx, "b", "other", u.ID, parts[:], storage.CompleteOptions{})
	wantErr(t, "complete another key", err, storage.ErrNoSuchUpload)
	wantErr(t, "abort after complete", e.AbortUpload(e.ctx, "b", "k", u.ID), storage.ErrNoSuchUpload)
	if err := e.Delete(e.ctx, "b", "k", storage.Condition{}); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		e.put(t, keyf("churn%d", i%2), Pattern(uint64(i), 7<<20))
	}
	e.expectObject(t, o, want) // opened before it was deleted
	_, err = again(storage.CompleteOptions{}, parts[:]...)
	wantErr(t, "complete again what is deleted", err, storage.ErrNoSuchUpload)

	// One small part alone is fine, an empty one too.
	for i, n := range []int{0, 10, 70_000} {
		u := e.upload(t, keyf("one%d", i), checksum.None, "")
		c := e.part(t, u, 10000, Pattern(1, n))
		info, err := e.CompleteUpload(e.ctx, "b", u.Key, u.ID, []storage.CompletedPart{c}, storage.CompleteOptions{})
		if err != nil || info.ETag != partsETag(Pattern(1, n)) {
			t.Fatalf("%d bytes: %+v, %v", n, info, err)
		}
		e.expect(t, u.Key, Pattern(1, n))
	}
}

func testMultipartErrors(t *testing.T, e *env) {
	u := e.upload(t, "k", checksum.None, "")
	small, big := Pattern(1, 6000), Pattern(2, minPart)
	c1, c2, c3 := e.part(t, u, 1, small), e.part(t, u, 2, big), e.part(t, u, 3, small)
	complete := func(o storage.CompleteOptions, parts ...storage.CompletedPart) error {
		_, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, parts, o)
		return err
	}
	none := storage.CompleteOptions{}
	wantErr(t, "no parts", complete(none), storage.ErrInvalidRequest)
	wantErr(t, "order", complete(none, c3, c2), storage.ErrInvalidPartOrder)
	wantErr(t, "twice", complete(none, c2, c2), storage.ErrInvalidPartOrder)
	wantErr(t, "missing", complete(none, c2, storage.CompletedPart{Number: 4, ETag: c2.ETag}), storage.ErrInvalidPart)
	wantErr(t, "ETag", complete(none, storage.CompletedPart{Number: 2, ETag: c1.ETag}), storage.ErrInvalidPart)
	wantErr(t, "checksum", complete(none, storage.CompletedPart{Number: 2, ETag: c2.ETag, Checksum: checksum.Sum{Algorithm: checksum.CRC32, Value: "AAAAAA=="}}), storage.ErrInvalidPart)
	wantErr(t, "small", complete(none, c1, c2), storage.ErrEntityTooSmall)
	wantErr(t, "size", complete(storage.CompleteOptions{Size: 1}, c2, c3), storage.ErrInvalidRequest)
	wantErr(t, "If-Match", complete(storage.CompleteOptions{Cond: storage.Condition{IfMatch: "*"}}, c2, c3), storage.ErrNoSuchKey)
	e.put(t, "k", small)
	wantErr(t, "If-None-Match", complete(storage.CompleteOptions{Cond: storage.Condition{IfNoneMatch: "*"}}, c2, c3), storage.ErrPrecondition)
	e.expect(t, "k", small)

	put := func(key, id string, number int) error {
		_, err := e.PutPart(e.ctx, "b", key, id, number, bytes.NewReader(small), storage.PartOptions{Size: int64(len(small))})
		return err
	}
	wantErr(t, "part 0", put("k", u.ID, 0), storage.ErrInvalidRequest)
	wantErr(t, "part 10001", put("k", u.ID, 10001), storage.ErrInvalidRequest)
	for _, id := range []string{"", "x", strings.Repeat("0", 32), strings.ToUpper(u.ID) + "0"} {
		wantErr(t, "bad id", put("k", id, 1), storage.ErrNoSuchUpload)
		wantErr(t, "bad id", e.AbortUpload(e.ctx, "b", "k", id), storage.ErrNoSuchUpload)
		_, err := e.GetUpload(e.ctx, "b", "k", id)
		wantErr(t, "bad id", err, storage.ErrNoSuchUpload)
		_, err = e.ListParts(e.ctx, "b", "k", id, 0, 10)
		wantErr(t, "bad id", err, storage.ErrNoSuchUpload)
	}
	wantErr(t, "other key", put("other", u.ID, 1), storage.ErrNoSuchUpload)
	_, err := e.PutPart(e.ctx, "b", "k", u.ID, 3, &oddReader{p: big[:100]}, storage.PartOptions{Size: 101})
	wantErr(t, "short", err, storage.ErrIncompleteBody)
	bad := errors.New("bad trailer")
	_, err = e.PutPart(e.ctx, "b", "k", u.ID, 3, &oddReader{p: big, end: bad}, storage.PartOptions{Size: minPart})
	wantErr(t, "error at the end", err, bad)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err = e.PutPart(ctx, "b", "k", u.ID, 3, bytes.NewReader(big), storage.PartOptions{Size: minPart})
	wantErr(t, "cancelled", err, context.Canceled)

	// Part 3 is as it was.
	if err := complete(none, c2, c3); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "k", slices.Concat(big, small))

	u = e.upload(t, "k", checksum.None, "")
	e.part(t, u, 1, big)
	if err := e.AbortUpload(e.ctx, "b", "k", u.ID); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "after abort", put("k", u.ID, 1), storage.ErrNoSuchUpload)
	wantErr(t, "abort again", e.AbortUpload(e.ctx, "b", "k", u.ID), storage.ErrNoSuchUpload)
	for _, c := range []struct {
		alg checksum.Algorithm
		typ checksum.Type
	}{{checksum.SHA256, checksum.FullObject}, {checksum.CRC64NVME, checksum.Composite}, {"MD4", ""}, {"", checksum.FullObject}, {checksum.CRC32, "HALF"}} {
		_, err := e.CreateUpload(e.ctx, "b", "k", storage.PutOptions{}, c.alg, c.typ)
		wantErr(t, keyf("%s %s", c.alg, c.typ), err, storage.ErrInvalidRequest)
	}
}

func testMultipartChecksums(t *testing.T, e *env) {
	p := [][]byte{Pattern(1, minPart+1), Pattern(2, 777)}
	b64 := base64.StdEncoding.EncodeToString
	crc := func(p []byte) []byte {
		v := crc32.ChecksumIEEE(p)
		return []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
	}
	for _, c := range []struct {
		typ  checksum.Type
		want string
	}{
		{checksum.FullObject, b64(crc(slices.Concat(p...)))},
		{checksum.Composite, b64(crc(slices.Concat(crc(p[0]), crc(p[1])))) + "-2"},
	} {
		u := e.upload(t, "k", checksum.CRC32, c.typ)
		if u.Algorithm != checksum.CRC32 || u.Type != c.typ {
			t.Fatalf("%+v", u)
		}
		var parts []storage.CompletedPart
		for i := range p {
			value := b64(crc(p[i]))
			got, err := e.PutPart(e.ctx, "b", "k", u.ID, i+1, bytes.NewReader(p[i]), storage.PartOptions{Size: int64(len(p[i])),
				Checksum: func() checksum.Sum {
					return checksum.Sum{Algorithm: checksum.CRC32, Type: checksum.FullObject, Value: value}
				}})
			if err != nil || got.Checksum.Value != value {
				t.Fatalf("PutPart: %+v, %v", got, err)
			}
			parts = append(parts, storage.CompletedPart{Number: i + 1, ETag: got.ETag, Checksum: checksum.Sum{Algorithm: checksum.CRC32, Value: value}})
		}
		sum := checksum.Sum{Algorithm: checksum.CRC32, Type: c.typ, Value: c.want}
		wrong := sum
		wrong.Value = "AAAAAA=="
		_, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, parts, storage.CompleteOptions{Checksum: wrong})
		wantErr(t, "wrong checksum", err, storage.ErrBadDigest)
		bad := slices.Clone(parts)
		bad[1].Checksum = bad[0].Checksum
		_, err = e.CompleteUpload(e.ctx, "b", "k", u.ID, bad, storage.CompleteOptions{})
		wantErr(t, "wrong checksum of a part", err, storage.ErrInvalidPart)
		info, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, parts, storage.CompleteOptions{Checksum: sum})
		if err != nil || info.Checksum != sum {
			t.Fatalf("CompleteUpload: %+v, %v; want %+v", info, err, sum)
		}
		got, err := e.Stat(e.ctx, "b", "k")
		if err != nil || got.Checksum != sum {
			t.Fatalf("Stat: %+v, %v", got, err)
		}
		for i := range p {
			want := checksum.Sum{Algorithm: checksum.CRC32, Type: c.typ, Value: parts[i].Checksum.Value}
			if x, ok := got.Part(i + 1); !ok || x.Checksum != want {
				t.Fatalf("part %d: %+v, want %+v", i+1, x, want)
			}
		}
	}

	// An upload that asks for none: CRC64NVME of the whole, if the parts have it.
	nvme := func(p []byte) checksum.Sum {
		h := checksum.New(checksum.CRC64NVME)
		h.Write(p)
		return checksum.Of(checksum.CRC64NVME, h)
	}
	for _, with := range []int{2, 1} {
		u := e.upload(t, "k", checksum.None, "")
		var parts []storage.CompletedPart
		for i := range p {
			o := storage.PartOptions{Size: int64(len(p[i]))}
			if i < with {
				o.Checksum = func() checksum.Sum { return nvme(p[i]) }
			}
			got, err := e.PutPart(e.ctx, "b", "k", u.ID, i+1, bytes.NewReader(p[i]), o)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, storage.CompletedPart{Number: i + 1, ETag: got.ETag, Checksum: got.Checksum})
		}
		var want checksum.Sum
		if with == 2 {
			want = nvme(slices.Concat(p...))
		}
		info, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, parts, storage.CompleteOptions{})
		if err != nil || info.Checksum != want {
			t.Fatalf("%d parts with a checksum: %+v, %v; want %+v", with, info, err, want)
		}
		x, _ := info.Part(2)
		if with == 2 && x.Checksum != nvme(p[1]) || with == 1 && !x.Checksum.IsZero() {
			t.Fatalf("%d parts with a checksum: %+v", with, x)
		}
	}
	u := e.upload(t, "k", checksum.CRC32, checksum.Composite)
	c := e.part(t, u, 1, p[1])
	for _, o := range []storage.CompleteOptions{
		{Checksum: checksum.Sum{Type: checksum.FullObject}},
		{Checksum: checksum.Sum{Algorithm: checksum.SHA1, Value: "x"}},
	} {
		_, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, []storage.CompletedPart{c}, o)
		wantErr(t, keyf("%+v", o), err, storage.ErrInvalidRequest)
	}
	c.Checksum = checksum.Sum{Algorithm: checksum.SHA1, Value: "x"}
	_, err := e.CompleteUpload(e.ctx, "b", "k", u.ID, []storage.CompletedPart{c}, storage.CompleteOptions{})
	wantErr(t, "a part with another algorithm", err, storage.ErrInvalidRequest)
}

// testMultipartRaces runs completions, an abort and an overwriting part against each other.
func testMultipartRaces(t *testing.T, e *env) {
	for round := range 20 {
		key := keyf("k%d", round)
		u := e.upload(t, key, checksum.None, "")
		a, b := Pattern(uint64(round), 9000), Pattern(uint64(round)+500, 9000)
		c := e.part(t, u, 1, a)
		var completed, aborted, late atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := e.CompleteUpload(e.ctx, "b", key, u.ID, []storage.CompletedPart{c}, storage.CompleteOptions{})
				switch {
				case err == nil:
					completed.Add(1)
				case !errors.Is(err, storage.ErrNoSuchUpload) && !errors.Is(err, storage.ErrInvalidPart) && !errors.Is(err, storage.ErrConflict):
					t.Error(err)
				}
			})
		}
		if round%2 == 0 {
			wg.Go(func() {
				err := e.AbortUpload(e.ctx, "b", key, u.ID)
				if err == nil {
					aborted.Add(1)
				} else if !errors.Is(err, storage.ErrNoSuchUpload) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			_, err := e.PutPart(e.ctx, "b", key, u.ID, 1+round%3/2, bytes.NewReader(b), storage.PartOptions{Size: int64(len(b))})
			if err == nil {
				late.Add(1)
			} else if !errors.Is(err, storage.ErrNoSuchUpload) {
				t.Error(err)
			}
		})
		wg.Wait()
		if completed.Load() > 0 && aborted.Load() > 0 {
			t.Fatalf("%d completions and %d aborts won", completed.Load(), aborted.Load())
		}
		if completed.Load() > 0 { // the second as a repetition of the first
			e.expect(t, key, a)
		} else {
			_, err := e.Stat(e.ctx, "b", key)
			wantErr(t, "no completion won", err, storage.ErrNoSuchKey)
		}
		_, err := e.GetUpload(e.ctx, "b", key, u.ID)
		if completed.Load()+aborted.Load() > 0 {
			wantErr(t, "the upload has ended", err, storage.ErrNoSuchUpload)
		} else if err != nil || late.Load() == 0 {
			t.Fatalf("nothing ended the upload: %v, %d late parts", err, late.Load())
		}
	}
}

func testListParts(t *testing.T, e *env) {
	u := e.upload(t, "k", checksum.None, "")
	numbers := []int{1, 2, 5, 255, 256, 257, 9999, 10000}
	for _, n := range []int{10000, 257, 1, 9999, 2, 256, 255, 5} {
		e.part(t, u, n, Pattern(uint64(n), n))
	}
	for after := range 12 {
		if after > 5 {
			after = numbers[after%8]
		}
		for limit := range 10 {
			page, err := e.ListParts(e.ctx, "b", "k", u.ID, after, limit)
			if err != nil || !reflect.DeepEqual(page.Upload, u) {
				t.Fatalf("%+v, %v", page, err)
			}
			var want []int
			for _, n := range numbers {
				if n > after {
					want = append(want, n)
				}
			}
			truncated := limit > 0 && len(want) > limit
			want = want[:min(limit, len(want))]
			var got []int
			for _, p := range page.Parts {
				got = append(got, p.Number)
				if p.Size != int64(p.Number) || p.ETag != md5Hex(Pattern(uint64(p.Number), p.Number)) {
					t.Fatalf("%+v", p)
				}
			}
			if !slices.Equal(got, want) || page.Truncated != truncated {
				t.Fatalf("after %d, %d: %v %v, want %v %v", after, limit, got, page.Truncated, want, truncated)
			}
		}
	}
}

func testListUploads(t *testing.T, e *env) {
	type id struct{ key, id string }
	var all []id
	for _, k := range []string{"a", "a", "a", "a\x00", "a\x00b", "a\x01", "a/b", "a/c", "a/c", "b/", "b/x", "ü", "\xff"} {
		all = append(all, id{k, e.upload(t, k, checksum.None, "").ID})
	}
	// Those of one key stay in the order of their creation.
	slices.SortStableFunc(all, func(x, y id) int { return strings.Compare(x.key, y.key) })
	for _, o := range []storage.ListOptions{{}, {Prefix: "a"}, {Prefix: "a/"}, {Delimiter: "/"}, {Prefix: "a", Delimiter: "/"}, {Prefix: "b/", Delimiter: "/"}, {Delimiter: "\x00"}} {
		// The entries there should be, each with the markers that follow it.
		type entry struct {
			id     id
			prefix string
		}
		var want []entry
		for _, u := range all {
			if !strings.HasPrefix(u.key, o.Prefix) {
				continue
			}
			x := entry{id: u}
			if i := strings.Index(u.key[len(o.Prefix):], o.Delimiter); o.Delimiter != "" && i >= 0 {
				x = entry{prefix: u.key[:len(o.Prefix)+i+len(o.Delimiter)]}
			}
			if n := len(want); n == 0 || x.prefix == "" || want[n-1] != x {
				want = append(want, x)
			}
		}
		for _, max := range []int{1, 2, 3, 100} {
			var got []entry
			o := o
			o.Max = max
			marker := ""
			for {
				page, err := e.ListUploads(e.ctx, "b", o, marker)
				if err != nil {
					t.Fatal(err)
				}
				var here []entry
				for _, u := range page.Uploads {
					here = append(here, entry{id: id{u.Key, u.ID}})
				}
				for _, p := range page.Prefixes {
					here = append(here, entry{prefix: p})
				}
				slices.SortStableFunc(here, func(x, y entry) int {
					return strings.Compare(x.id.key+x.prefix, y.id.key+y.prefix)
				})
				if len(here) > max || page.Truncated && len(here) != max {
					t.Fatalf("a page of %d has %d entries", max, len(here))
				}
				got = append(got, here...)
				if !page.Truncated {
					break
				}
				o.After, marker = page.NextKey, page.NextUpload
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%#v, pages of %d:\n got %q\nwant %q", o, max, got, want)
			}
		}
	}
	// A key marker alone passes over all uploads of the key.
	page, err := e.ListUploads(e.ctx, "b", storage.ListOptions{After: "a", Max: 1}, "")
	if err != nil || len(page.Uploads) != 1 || page.Uploads[0].Key != "a\x00" {
		t.Fatalf("after key a: %+v, %v", page, err)
	}
	if page, err := e.ListUploads(e.ctx, "b", storage.ListOptions{}, ""); err != nil || len(page.Uploads) != 0 || page.Truncated {
		t.Fatalf("Max 0: %+v, %v", page, err)
	}
	_, err = e.ListUploads(e.ctx, "none", storage.ListOptions{Max: 1}, "")
	wantErr(t, "no bucket", err, storage.ErrNoSuchBucket)
}
