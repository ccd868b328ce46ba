//go:build servers

package mysql

import (
	"database/sql"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/store/storetest"
)

// The program has a database of its own on the server.
func TestNotesInTransactionsOfPrograms(t *testing.T) {
	other, err := server.Database()
	if err != nil {
		t.Fatal(err)
	}
	user, rest, _ := strings.Cut(strings.TrimPrefix(other, "mysql://"), "@")
	address, name, _ := strings.Cut(rest, "/")
	c := driver.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = user, "tcp", address, name
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	storetest.Transactions(t, open(t, emptyDatabase(t), Options{}), false, func() storetest.Begun {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Begun{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
	})
}
