// Package reqid carries a request's id in its context, from the client's
// header to the log lines of the storage layer.
package reqid

import "context"

type key struct{}

// With returns a context that carries id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// From returns the id that ctx carries, or "".
func From(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
