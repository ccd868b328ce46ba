//go:build servers

package mysql

import (
	"context"
	"os"
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// server serves all tests of the package. It need not survive a power cut.
var server *servers.MariaDB

func TestMain(m *testing.M) {
	os.Exit(servers.Main(m, &server, func() (*servers.MariaDB, error) { return servers.NewMariaDB("--innodb-flush-log-at-trx-commit=0") }))
}

// The suite, with every other call made by another node. store/postgres runs it with one node; only the
// dialect differs.
func TestStoreOfTwoNodes(t *testing.T) {
	storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store {
		address := emptyDatabase(t)
		return storetest.Nodes(open(t, address, options(o)), open(t, address, options(o)))
	})
}

func options(o storetest.Options) Options {
	return Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions}
}

// open opens a store until the end of the test.
func open(t testing.TB, address string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newDatabase returns the address of a database without tables.
func newDatabase(t testing.TB) string {
	t.Helper()
	address, err := server.Database()
	if err != nil {
		t.Fatal(err)
	}
	return address + "?connect_timeout=60s" // a machine may stall
}

// databases are addresses of emptied databases: creating one takes a second.
var databases = make(chan string, 64)

// emptyDatabase returns the address of a database without rows, until the end of
// the test.
func emptyDatabase(t testing.TB) (address string) {
	t.Helper()
	select {
	case address = <-databases:
	default:
		address = newDatabase(t)
	}
	t.Cleanup(func() {
		if err := empty(address); err != nil {
			t.Error(err)
			return
		}
		select {
		case databases <- address:
		default:
		}
	})
	return address
}

// connection opens a database that a test uses beside the store.
func connection(ctx context.Context, text string) (*database, error) {
	a, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	return connect(ctx, a)
}

// empty removes all rows of a database.
func empty(address string) error {
	ctx := context.Background()
	d, err := connection(ctx, address)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	found, err := d.pool.QueryContext(ctx, `select table_name from information_schema.tables where table_schema = database()
		and table_type = 'BASE TABLE' and table_name not in ('counters', 'schema_versions')`)
	if err != nil {
		return err
	}
	defer found.Close()
	statements := "update counters set value = 0"
	for found.Next() {
		var name string
		if err := found.Scan(&name); err != nil {
			return err
		}
		statements += ";delete from " + name
	}
	if err := found.Err(); err != nil {
		return err
	}
	_, err = d.pool.ExecContext(ctx, statements)
	return err
}
