//go:build servers

package postgres

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// Runs on a server with its default durability.
func BenchmarkLife(b *testing.B) {
	p := servers.StartPostgres(b)
	storetest.Life(b, func(b testing.TB) store.Store {
		return open(b, p.Schema(), Options{LookAhead: time.Hour})
	}, p.CPU)
}

// The same behind PgBouncer in transaction mode.
func BenchmarkLifeBehindAPooler(b *testing.B) {
	p := servers.StartPostgres(b)
	pooler := p.StartPgbouncer(b, "transaction")
	storetest.Life(b, func(b testing.TB) store.Store {
		return open(b, pooler.Through(p.Schema()), Options{LookAhead: time.Hour})
	}, p.CPU)
}
