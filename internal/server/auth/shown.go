package auth

import (
	"context"
	"time"
)

// StrangerTime is how long a body may take whose sender has shown no valid token. Such bodies have a
// few KB.
const StrangerTime = 5 * time.Second

// shownKey is the key of what a valid token in a request causes.
type shownKey struct{}

// OnShown returns a context for a request in which f is called when its caller has shown a valid
// token, session, ping key or secret. f may be called more than once.
func OnShown(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, shownKey{}, f)
}

// Shown reports that the caller of a request has shown a valid token.
func Shown(ctx context.Context) {
	if f, ok := ctx.Value(shownKey{}).(func()); ok {
		f()
	}
}
