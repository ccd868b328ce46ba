package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/belfry-cron/belfry/store/storetest"
)

func TestNotesInTransactionsOfPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	storetest.Transactions(t, s, false, func() storetest.Begun {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Begun{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
	})
}
