package sqlite

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// File returns what opens the database file at a path, for belfry.New. See Open. Defaults
// that servers on the same store have filled in stay.
func File(path string) store.Opener {
	return func(ctx context.Context) (store.Store, error) {
		s, err := Open(ctx, path, Options{KeepDefaults: true})
		if err != nil {
			return nil, err // not s, which would be a store that is not nil
		}
		return s, nil
	}
}
