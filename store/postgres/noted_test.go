//go:build servers

package postgres

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/belfry-cron/belfry/store/storetest"
)

// The program's connections have another search_path than the store's.
func TestNotesInTransactionsOfPrograms(t *testing.T) {
	t.Run("pgx", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		storetest.Transactions(t, open(t, emptySchema(t), Options{}), true, func() storetest.Begun {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Begun{Tx: tx, Commit: func() error { return tx.Commit(t.Context()) }, Rollback: func() error { return tx.Rollback(t.Context()) }}
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		db, err := sql.Open("pgx", server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		storetest.Transactions(t, open(t, emptySchema(t), Options{}), true, func() storetest.Begun {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Begun{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
		})
	})
}
