package auth

import (
	"context"
	"time"
)

// StrangerTime bounds the time for the body of a sender without a valid token. Such bodies have a
// few KB.
const StrangerTime = 5 * time.Second

// shownKey is the context key of [OnShown].
type shownKey struct{}

// OnShown returns a context for a request that calls f, maybe repeatedly, when its caller has shown
// a valid token, session, ping key or secret.
func OnShown(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, shownKey{}, f)
}

// Shown reports that the caller of a request has shown a valid token.
func Shown(ctx context.Context) {
	if f, ok := ctx.Value(shownKey{}).(func()); ok {
		f()
	}
}
