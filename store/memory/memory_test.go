package memory_test

import (
	"math/rand/v2"
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Serial(storetest.Run)(t, func(t *testing.T, opt storetest.Options) store.Store { return memory.New(options(opt)) })
}

func options(opt storetest.Options) memory.Options {
	return memory.Options{Now: opt.Now, LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: opt.NewID, Revisions: opt.Revisions}
}

// TestStoreThatCompares runs the suite on steps that lock nothing and compare when they commit;
// some lose the race and are repeated.
func TestStoreThatCompares(t *testing.T) {
	storetest.Serial(storetest.Run)(t, func(t *testing.T, opt storetest.Options) store.Store {
		o := options(opt)
		random := rand.New(rand.NewPCG(1, 2)) // called with the store locked
		o.Fate = func(part, parts int) memory.Fate {
			if part == 0 && random.IntN(10) == 0 {
				return memory.Again
			}
			return memory.Done
		}
		return memory.New(o)
	})
}
