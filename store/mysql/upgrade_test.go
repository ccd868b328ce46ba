//go:build servers

package mysql

import (
	"os"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store/storetest"
)

// An upgraded database of version 6 keeps all its data.
func TestDatabaseOfVersion6IsUpgraded(t *testing.T) {
	t.Parallel()
	ctx, text := t.Context(), newDatabase(t)
	data, err := os.ReadFile("testdata/version6.sql")
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := a.open(unbounded)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := scripts()
	if err == nil {
		if _, err = conn.ExecContext(ctx, createVersions); err == nil {
			err = forward(ctx, conn, list[:6])
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, string(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	storetest.Upgraded(t, open(t, text, Options{Now: func() time.Time { return storetest.UpgradedAt }}))
}
