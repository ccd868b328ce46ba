package sqlite

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// File returns an opener for the database file at a path, for belfry.New. See [Open]. Defaults that
// servers on the same store have applied stay.
func File(path string) store.Opener {
	return store.Opening(func(ctx context.Context) (*Store, error) { return Open(ctx, path, Options{KeepDefaults: true}) })
}
