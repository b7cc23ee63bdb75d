package gateway

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"testing"

	"github.com/objcached/objcached/storage"
)

var bucketName = regexp.MustCompile(`<Name>([^<]*)</Name>`)

// buckets lists a user's buckets page by page.
func (h *harness) buckets(t *testing.T, user, query string) (names []string, pages int) {
	t.Helper()
	token := ""
	for {
		target := "/?" + query
		if token != "" {
			target += "&continuation-token=" + url.QueryEscape(token)
		}
		a := h.want(t, 200, wireRequest{method: "GET", target: target, user: user})
		for _, m := range bucketName.FindAllSubmatch(a.body, -1) {
			names = append(names, string(m[1]))
		}
		pages++
		if token = element(a.body, "ContinuationToken"); token == "" {
			return names, pages
		}
	}
}

// TestListBucketsPages: pages hold what the sender may see, over any number of
// buckets of others.
func TestListBucketsPages(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var all, alices []string
	for i := range maxPage + 7 {
		name, b := fmt.Sprintf("mallory-%04d", i), storage.Bucket{Tenant: "red", Owner: "mallory"}
		if i%400 == 3 {
			name, b = fmt.Sprintf("alice-%04d", i), storage.Bucket{Tenant: "blue", Owner: "alice"}
			alices = append(alices, name)
		}
		b.Name = name
		if err := h.store.CreateBucket(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	slices.Sort(all)
	for _, c := range []struct {
		user, query string
		want        []string
		pages       int
	}{
		{aliceKey, "", alices, 1}, {aliceKey, "max-buckets=2", alices, 2}, {aliceKey, "max-buckets=1", alices, 3}, {aliceKey, "max-buckets=3", alices, 1},
		{aliceKey, "prefix=mallory", nil, 1}, {aliceKey, "prefix=alice-04", alices[1:2], 1},
		{"", "", all, 1}, {"", "max-buckets=500", all, 3}, {"", "max-buckets=1000&prefix=mallory-", all[len(alices):], 2},
		{"", "bucket-region=us-east-1&prefix=alice", alices, 1}, {"", "bucket-region=mars", nil, 1},
	} {
		got, pages := h.buckets(t, c.user, c.query)
		if !slices.Equal(got, c.want) || pages != c.pages {
			t.Errorf("%s?%s: %d buckets in %d pages, want %d in %d", c.user, c.query, len(got), pages, len(c.want), c.pages)
		}
	}
	for _, q := range []string{"max-buckets=0", "max-buckets=10001", "max-buckets=x", "continuation-token=x"} {
		h.wantCode(t, "InvalidArgument", wireRequest{method: "GET", target: "/?" + q})
	}
}
