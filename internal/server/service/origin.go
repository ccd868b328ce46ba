package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The kinds of clients, as the audit names them.
const (
	ByCLI = "cli"
	ByUI  = "ui"
	ByAPI = "api"
	ByMCP = "mcp" // an assistant
)

// From returns a context whose changes come from a client at an address.
func From(ctx context.Context, client, address string) context.Context {
	o := store.OriginOf(ctx)
	o.Client, o.Address = client, address
	return store.WithOrigin(ctx, o)
}

// grouped returns a context whose changes form one group in the audit.
func grouped(ctx context.Context) (context.Context, error) {
	id, err := job.NewID(time.Now(), rand.Reader)
	o := store.OriginOf(ctx)
	o.Group = cmp.Or(o.Group, id.String())
	return store.WithOrigin(ctx, o), err
}
