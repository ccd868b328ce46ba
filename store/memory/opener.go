package memory

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// recordsMax is how many finished attempts a program keeps at least: some megabytes, enough to see
// recent runs.
const recordsMax = 10_000

// lookAhead is how far ahead a program without another store plans: no other node takes over, and
// planned runs need memory.
const lookAhead = 5 * time.Second

// Empty returns an opener of an empty store, for belfry.New. The store lasts as long as the
// program, and keeps the 10,000 latest finished attempts, or up to twice as many.
func Empty() store.Opener {
	return func(context.Context) (store.Store, error) {
		return New(Options{Records: recordsMax, LookAhead: lookAhead, unguarded: true}), nil //nolint:contextcheck // it is open at once
	}
}
