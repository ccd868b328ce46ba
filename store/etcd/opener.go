package etcd

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// URL returns an opener for the store at an address, for belfry.New. See [Open]. Defaults that
// servers on the same store have filled in stay.
func URL(address string) store.Opener {
	return store.Opening(func(ctx context.Context) (*Store, error) { return Open(ctx, address, Options{KeepDefaults: true}) })
}
