package postgres

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// URL returns what opens the database at an address, for belfry.New. See Open. Defaults
// that servers on the same store have filled in stay.
func URL(address string) store.Opener {
	return func(ctx context.Context) (store.Store, error) {
		s, err := Open(ctx, address, Options{KeepDefaults: true})
		if err != nil {
			return nil, err // not s, which would be a store that is not nil
		}
		return s, nil
	}
}
