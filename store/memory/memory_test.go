package memory_test

import (
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, opt storetest.Options) store.Store {
		return memory.New(memory.Options{Now: opt.Now, LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: opt.NewID, Revisions: opt.Revisions})
	})
}
