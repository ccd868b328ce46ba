package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// About is the result of a check of a database.
type About = sqldb.About

// Check examines a database, and changes nothing.
func Check(ctx context.Context, address string) (a About, err error) {
	list, err := scripts()
	if err != nil {
		return About{}, err
	}
	d, err := connect(ctx, address)
	if err != nil {
		return About{}, err
	}
	defer d.pool.Close()
	if err := d.ask(ctx, func(q asker) error { return d.look(ctx, q, list, &a) }); err != nil {
		return About{}, fmt.Errorf("look at %s: %w", d.name, err)
	}
	if d.pooled {
		a.Server += " behind a connection pooler"
	}
	return a, nil
}

// look reads what a check reports.
func (d *database) look(ctx context.Context, q asker, list sqldb.Migrations, a *About) error {
	begun := time.Now()
	var clock time.Time
	if err := q.QueryRow(ctx, "select clock_timestamp()").Scan(&clock); err != nil {
		return err
	}
	took := time.Since(begun)
	a.Offset = clock.Sub(begun.Add(took / 2))
	var readable bool
	err := q.QueryRow(ctx, `select 'PostgreSQL ' || current_setting('server_version'), current_setting('synchronous_commit') <> 'off' and current_setting('fsync') = 'on',
		coalesce(has_table_privilege(to_regclass('schema_versions'), 'select'), false)`).Scan(&a.Server, &a.Durable, &readable)
	if err == nil && readable {
		var oldest int
		err = q.QueryRow(ctx, "select coalesce(max(version), 0), coalesce(max(oldest), 0) from schema_versions").Scan(&a.Schema, &oldest)
		_, a.Unusable = list.Behind(a.Schema, oldest)
	}
	if err == nil {
		err = d.denied(ctx, q, list.Tables(), a)
	}
	return err
}

// denied finds what the user may not do that servers do: they read and write rows, make
// and remove the parts of history, and change the tables when they are upgraded.
func (d *database) denied(ctx context.Context, q asker, tables []string, a *About) error {
	var schema string
	var readOnly, there, makesSchemas, uses, makes bool
	err := q.QueryRow(ctx, `select coalesce(s.name, ''), current_setting('transaction_read_only') = 'on', n.oid is not null, has_database_privilege(current_database(), 'create'),
			coalesce(has_schema_privilege(n.oid, 'usage'), false), coalesce(has_schema_privilege(n.oid, 'create'), false)
		from (select coalesce(nullif($1, ''), current_schema()) as name) s left join pg_namespace n on n.nspname = s.name`, d.schema).Scan(&schema, &readOnly, &there, &makesSchemas, &uses, &makes)
	if err != nil {
		return err
	}
	deny := func(is bool, what string) {
		if is {
			a.Denied = append(a.Denied, what)
		}
	}
	deny(readOnly, "write anything: transactions are read-only, as on a standby")
	deny(schema == "", "use any schema of the search_path")
	deny(schema != "" && !there && !makesSchemas, "make the schema "+schema)
	deny(there && !uses, "use the schema "+schema)
	deny(there && !makes, "make tables in the schema "+schema)
	for _, right := range []struct{ lacks, what string }{
		{"not has_table_privilege(c.oid, 'select')", "select from"},
		{"not has_table_privilege(c.oid, 'insert')", "insert into"},
		{"not has_table_privilege(c.oid, 'update')", "update"},
		{"not has_table_privilege(c.oid, 'delete')", "delete from"},
		{"not pg_has_role(c.relowner, 'usage')", "alter, as an owner may,"},
	} {
		rows, err := q.Query(ctx, "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any($2) and "+right.lacks, schema, tables)
		if err != nil {
			return err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		a.Deny(right.what, names)
	}
	return nil
}
