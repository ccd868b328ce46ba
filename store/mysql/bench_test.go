//go:build servers

package mysql

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// Runs on a server with its default durability.
func BenchmarkLife(b *testing.B) {
	m := servers.StartMariaDB(b)
	storetest.Life(b, func(b testing.TB) store.Store {
		address, err := m.Database()
		if err != nil {
			b.Fatal(err)
		}
		return open(b, address, Options{LookAhead: time.Hour})
	}, m.CPU)
}
