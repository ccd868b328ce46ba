package memory

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// recordsMax is how many finished attempts a program keeps at least: some megabytes, and enough
// to see what has just happened.
const recordsMax = 10_000

// lookAhead is how far ahead runs of a program without another store are planned: no other
// node takes over its planning, and planned runs take memory.
const lookAhead = 5 * time.Second

// Empty returns what makes an empty store, for belfry.New. It lasts as long as the
// program, and keeps the 10,000 latest finished attempts, or up to twice as many.
func Empty() store.Opener {
	return func(context.Context) (store.Store, error) {
		return New(Options{Records: recordsMax, LookAhead: lookAhead}), nil //nolint:contextcheck // it is open at once
	}
}
