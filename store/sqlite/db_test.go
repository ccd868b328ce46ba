package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

// program opens a database as a program does that uses it together with the store.
func program(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestAStoreIsInTheFileOfAProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	db := program(t, "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if _, err := db.ExecContext(t.Context(), "create table orders (customer text); insert into orders values ('ann')"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it has the tables of Belfry
		opened, err := DB(db)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		storetest.Transactions(t, opened, false, func() storetest.Begun {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Begun{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
		})
		for _, name := range []string{"b", "c"} {
			if _, err := opened.PutNote(t.Context(), store.Note{Name: "request/" + name, Version: 1}); err != nil && !errors.Is(err, store.ErrConflict) {
				t.Fatal(err)
			}
		}
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}
		var customer string
		if err := db.QueryRowContext(t.Context(), "select customer from orders").Scan(&customer); err != nil || customer != "ann" {
			t.Errorf("the program reads %q, %v", customer, err)
		}
	}
}

// other is the driver of another copy of SQLite, and its connector.
type other struct{}

var errUnused = errors.New("unused")

func (other) Open(string) (driver.Conn, error)             { return nil, errUnused }
func (other) Connect(context.Context) (driver.Conn, error) { return nil, errUnused }
func (other) Driver() driver.Driver                        { return other{} }

func TestADatabaseThatIsNoFileOfThisSQLiteIsRefused(t *testing.T) {
	foreign := sql.OpenDB(other{})
	defer foreign.Close()
	taken := program(t, filepath.Join(t.TempDir(), "taken.db"))
	if _, err := taken.ExecContext(t.Context(), "create table Jobs (title text)"); err != nil {
		t.Fatal(err)
	}
	marked := program(t, filepath.Join(t.TempDir(), "marked.db"))
	if _, err := marked.ExecContext(t.Context(), "pragma application_id = 7; create table a (b)"); err != nil {
		t.Fatal(err)
	}
	for want, db := range map[string]*sql.DB{
		"the database is nil": nil,
		"the driver is sqlite.other, and must be modernc.org/sqlite": foreign,
		"the database is in memory":                                  program(t, ":memory:"),
		"with the names of belfry's (Jobs)":                          taken,
		"is a database of another program":                           marked,
	} {
		if s, err := DB(db)(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want an error that says %q", s, err, want)
		}
	}
	var tables int
	if err := taken.QueryRowContext(t.Context(), "select count(*) from sqlite_schema").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("a refused file has %d tables, %v", tables, err)
	}
}
