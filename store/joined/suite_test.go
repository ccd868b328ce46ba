package joined_test

import (
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
)

// TestStore runs the suite on two stores in memory: once with records left in the outbox until a
// read cannot examine them all, and once with all records shipped before they are read.
func TestStore(t *testing.T) {
	for name, shipped := range map[string]bool{"waiting": false, "shipped": true} {
		t.Run(name, func(t *testing.T) {
			storetest.Serial(storetest.RunJoined)(t, func(t *testing.T, opt storetest.Options) store.Store {
				options := memory.Options{Now: opt.Now, LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: opt.NewID, Revisions: opt.Revisions}
				s, err := joined.New(t.Context(), memory.NewControl(options), memory.New(options), joined.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return storetest.Shipping(s, shipped)
			})
		})
	}
}
