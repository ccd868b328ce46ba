package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// scripts returns the migrations in their order.
func scripts() (sqldb.Migrations, error) { return sqldb.ReadMigrations(migrations) }

// migrationLock is the advisory lock for changes of the schema: "belfry".
const migrationLock = 0x62656c667279

// partsLock guards changes of the parts of history: two processes that create the same part at once
// leave an error in the server's log.
const partsLock = migrationLock + 1

// migrateMax is how often running nodes may block a schema change: each time takes a
// second.
const migrateMax = 10

// migrate brings the schema of the database forward to the last script.
func (d *database) migrate(ctx context.Context) error {
	for n := 1; ; n++ {
		err := d.tryMigrate(ctx)
		if errors.Is(err, errUpgrading) {
			n = 0
			continue
		}
		if err == nil || n == migrateMax || d.Fault(err) != sqldb.Conflict {
			return err
		}
	}
}

// errUpgrading is the error of a migration while another node changes the schema.
var errUpgrading = errors.New("another node changes the schema")

// tryMigrate migrates in one transaction.
func (d *database) tryMigrate(ctx context.Context) error {
	list, err := scripts()
	if err != nil {
		return err
	}
	return d.transact(ctx, func(t pgx.Tx) error {
		within, cancel := context.WithTimeout(ctx, openMax)
		defer cancel()
		var server int
		if err := t.QueryRow(within, "select current_setting('server_version_num')::int / 10000").Scan(&server); err != nil {
			return err
		}
		if server < versionMin {
			return fmt.Errorf("the server is PostgreSQL %d, and must be %d or later", server, versionMin)
		}
		if _, err := t.Exec(within, "select pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			if d.Fault(err) == sqldb.Conflict { // the lock was not free within lock_timeout
				return errUpgrading
			}
			return err
		}
		if err := d.makeSchema(within, t); err != nil {
			return err
		}
		list, err := behind(within, t, list)
		if err != nil || len(list) == 0 {
			return err
		}
		// A long script must not time out.
		if _, err := t.Exec(within, "set local statement_timeout = 0; set local lock_timeout = 0", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		return forward(ctx, t, list)
	})
}

// makeSchema makes the schema that the address names. An existing schema is left alone: even "if
// not exists" needs the right to create schemas.
func (d *database) makeSchema(ctx context.Context, t pgx.Tx) error {
	if d.schema == "" {
		return nil
	}
	var there bool
	if err := t.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", d.schema).Scan(&there); err != nil || there {
		return err
	}
	if _, err := t.Exec(ctx, "create schema "+(pgx.Identifier{d.schema}).Sanitize()); err != nil {
		return fmt.Errorf("make the schema %s: %w", d.schema, err)
	}
	return nil
}

// createVersions creates the table that says which scripts have run.
const createVersions = `create table if not exists schema_versions (
		version integer primary key,
		oldest  integer not null,
		applied timestamptz not null default now()
	)`

// versions returns the version of the schema, and the oldest program that can use it; 0 without one.
func versions(ctx context.Context, a asker) (version, oldest int, there bool, err error) {
	err = a.QueryRow(ctx, "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = current_schema and c.relname = 'schema_versions')").Scan(&there)
	if err == nil && there {
		err = a.QueryRow(ctx, "select coalesce(max(version), 0), coalesce(max(oldest), 0) from schema_versions").Scan(&version, &oldest)
	}
	return version, oldest, there, err
}

// behind returns the scripts that the schema still needs.
func behind(ctx context.Context, t pgx.Tx, list sqldb.Migrations) (sqldb.Migrations, error) {
	version, oldest, there, err := versions(ctx, t)
	if err == nil && !there { // even "if not exists" needs the right to create tables
		_, err = t.Exec(ctx, createVersions)
	}
	if err != nil {
		return nil, err
	}
	return list.Behind(version, oldest)
}

// Script returns the statements that bring the schema of a database up to date, for a person who
// runs them with psql; "" if it is. It changes nothing.
func Script(ctx context.Context, address string) (string, error) {
	list, err := scripts()
	if err != nil {
		return "", err
	}
	d, err := connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer d.pool.Close()
	var b strings.Builder
	err = d.ask(ctx, func(a asker) error {
		var schema *string
		var exists bool
		if err := a.QueryRow(ctx, "select s.name, exists (select from pg_namespace where nspname = s.name) from (select coalesce(nullif($1, ''), current_schema) as name) s", d.schema).Scan(&schema, &exists); err != nil {
			return err
		}
		if schema == nil {
			return errors.New("no schema of the search_path exists: name one with the parameter schema")
		}
		version, oldest, _, err := versions(ctx, a)
		if err != nil {
			return err
		}
		if list, err = list.Behind(version, oldest); err != nil || len(list) == 0 {
			return err
		}
		name := pgx.Identifier{*schema}.Sanitize()
		b.WriteString("begin;\n")
		if !exists {
			fmt.Fprintf(&b, "create schema %s;\n", name)
		}
		fmt.Fprintf(&b, "set local search_path = %s;\n%s;\n", name, createVersions)
		for _, m := range list {
			fmt.Fprintf(&b, "\n%s\ninsert into schema_versions (version, oldest) values (%d, %d);\n", strings.TrimSpace(m.Script), m.Version, m.Oldest)
		}
		b.WriteString("commit;\n")
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", d.name, err)
	}
	return b.String(), nil
}

func forward(ctx context.Context, t pgx.Tx, list sqldb.Migrations) error {
	for _, m := range list {
		if _, err := t.Exec(ctx, m.Script, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("bring the schema to version %d: %w", m.Version, err)
		}
		if _, err := t.Exec(ctx, "insert into schema_versions (version, oldest) values ($1, $2)", m.Version, m.Oldest); err != nil {
			return err
		}
	}
	return nil
}

const (
	day = 24 * time.Hour
	// daysAhead is the number of coming days with partitions of history: nodes that cannot
	// create any for so long continue to work.
	daysAhead = 3
	// partMax bounds how long creating or removing a part waits for transactions on the table, and
	// so how long others wait behind it.
	partMax = "200ms"
)

// Partition implements [sqldb.DB]. Usually it does nothing.
func (d *database) Partition(ctx context.Context, now, before int64) error {
	parts, err := d.parts(ctx)
	if err != nil {
		return fault(err)
	}
	today := now - now%int64(day)
	for i := -1; i <= daysAhead; i++ {
		from := today + int64(i)*int64(day)
		if name := partName(from); !parts[name] {
			// The default part may already have rows that belong into the new one.
			err := d.inTable(ctx, fmt.Sprintf("create table if not exists %s partition of history for values from (%d) to (%d)", name, from, from+int64(day)))
			if err != nil {
				return nil //nolint:nilerr // history goes to the other part, and this is tried again
			}
		}
	}
	for name := range parts {
		at, err := time.Parse("history_20060102", name)
		if err != nil || at.Add(day).UnixNano() > before {
			continue
		}
		_ = d.dropPart(ctx, name) // a later call tries again
	}
	return nil
}

// dropPart removes a part of history. A part with rows that stay is emptied row by row instead, and
// another node may have removed it.
func (d *database) dropPart(ctx context.Context, name string) error {
	return d.inTable(ctx, fmt.Sprintf(`do $$ begin
		if to_regclass('%[1]s') is not null then
			if not exists (select 1 from %[1]s h where exists (select 1 from jobs j where j.uid = h.job and j.keep_for <> 0)
					or exists (select 1 from active a where a.id = h.run) or exists (select 1 from output o where o.run = h.run)) then
				drop table %[1]s;
			end if;
		end if;
	end $$`, name))
}

// inTable runs a statement that changes the parts of history. It gives up rather than block others.
func (d *database) inTable(ctx context.Context, statement string) error {
	return d.transact(ctx, func(t pgx.Tx) error {
		if _, err := t.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(partsLock)); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, "set local lock_timeout = '"+partMax+"'"); err != nil {
			return err
		}
		_, err := t.Exec(ctx, statement, pgx.QueryExecModeExec)
		return err
	})
}

func partName(from int64) string { return time.Unix(0, from).UTC().Format("history_20060102") }

// parts returns the names of the parts of history.
func (d *database) parts(ctx context.Context) (map[string]bool, error) {
	var names []string
	err := d.ask(ctx, func(a asker) error {
		found, err := a.Query(ctx, "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'history'::regclass")
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(found, pgx.RowTo[string])
		return err
	})
	parts := map[string]bool{}
	for _, name := range names {
		parts[name] = true
	}
	return parts, err
}
