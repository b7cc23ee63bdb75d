package reqid

import (
	"context"
	"testing"
)

func TestFrom(t *testing.T) {
	if got := From(context.Background()); got != "" {
		t.Fatalf("empty context carries %q", got)
	}
	ctx := With(With(context.Background(), "a"), "b")
	if got := From(ctx); got != "b" {
		t.Fatalf("got %q, want b", got)
	}
}
