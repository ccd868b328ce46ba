//go:build servers

package postgres

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

func TestChangedDefaults(t *testing.T) {
	address := emptySchema(t)
	storetest.OtherDefaults(t, func(t *testing.T, d job.Defaults, most time.Duration, tell func(store.Refill)) store.Store {
		s, err := Open(t.Context(), address, Options{Defaults: d, RefillMax: most, Refill: tell})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
