//go:build servers

package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
	"github.com/belfry-cron/belfry/store/storetest"
)

// upTo brings a schema to the last of some scripts.
func upTo(ctx context.Context, t pgx.Tx, list sqldb.Migrations) error {
	list, err := behind(ctx, t, list)
	if err != nil {
		return err
	}
	return forward(ctx, t, list)
}

// An upgraded schema of version 7 keeps all its data.
func TestSchemaOfVersion7IsUpgraded(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), server.Schema()
	data, err := os.ReadFile("testdata/version7.sql")
	if err != nil {
		t.Fatal(err)
	}
	d, err := connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if err := d.makeSchema(ctx, tx); err != nil {
			return err
		}
		if err := upTo(ctx, tx, list[:7]); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, string(data), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Upgraded(t, open(t, address, Options{Now: func() time.Time { return storetest.UpgradedAt }}))
}
