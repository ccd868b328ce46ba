//go:build servers

package postgres

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// server serves all tests of the package. It need not survive a power cut.
var server *servers.Postgres

func TestMain(m *testing.M) {
	os.Exit(servers.Main(m, &server, func() (*servers.Postgres, error) { return servers.NewPostgres("fsync = off", "full_page_writes = off") }))
}

// Half of the time of a suite is waiting for the server, so that two run at once.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store {
		return open(t, emptySchema(t), Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true})
	})
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

// schemas are addresses of emptied schemas: creating one takes half a second.
var schemas = make(chan string, 64)

// patient keeps transactions open while their client waits for a processor: on a busy machine the
// race detector turns a long batch into seconds.
const patient = "&idle_in_transaction_session_timeout=60s"

// emptySchema returns the address of a schema without rows, until the end of the
// test.
func emptySchema(t testing.TB) (address string) {
	t.Helper()
	select {
	case address = <-schemas:
	default:
		address = server.Schema() + patient
	}
	t.Cleanup(func() {
		if err := clear(address); err != nil {
			t.Error(err)
			return
		}
		select {
		case schemas <- address:
		default:
		}
	})
	return address
}

// clear removes all rows of a schema.
func clear(address string) error {
	ctx := context.Background()
	d, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	_, err = d.pool.Exec(ctx, `do $$ declare name text; begin
		for name in select tablename from pg_tables where schemaname = current_schema
			and tablename not in ('counters', 'schema_versions') and tablename not like 'history\_%' loop
			execute format('delete from %I', name);
		end loop;
		update counters set value = 0;
	end $$`, pgx.QueryExecModeExec)
	return err
}
