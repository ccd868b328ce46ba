package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// About is the result of a check of a database.
type About = sqldb.About

// Check examines a database, and changes nothing.
func Check(ctx context.Context, text string) (About, error) {
	a, err := parseAddress(text)
	if err != nil {
		return About{}, &AddressError{Cause: err}
	}
	about, err := look(ctx, a)
	if err != nil {
		return About{}, fmt.Errorf("look at %s: %w", a.name, err)
	}
	return about, nil
}

func look(ctx context.Context, address *address) (a About, err error) {
	list, err := scripts()
	if err != nil {
		return About{}, err
	}
	d, err := connect(ctx, address)
	if err != nil {
		return About{}, err
	}
	defer d.pool.Close()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return About{}, err
	}
	defer conn.Close()
	var exists bool
	if a.Server, exists, err = known(ctx, conn); err != nil {
		return About{}, err
	}
	begun := time.Now()
	var clock int64
	if err := conn.QueryRowContext(ctx, "select "+d.Clock()).Scan(&clock); err != nil {
		return About{}, err
	}
	took := time.Since(begun)
	a.Offset = time.Unix(0, clock).Sub(begun.Add(took / 2))
	// After a crash the server keeps the last transactions that are in its binary log, if it has
	// one.
	err = conn.QueryRowContext(ctx, "select @@global.innodb_flush_log_at_trx_commit = 1 and (not @@global.log_bin or @@global.sync_binlog = 1)").Scan(&a.Durable)
	if err == nil && exists {
		var oldest int
		err = conn.QueryRowContext(ctx, "select coalesce(max(version), 0), coalesce(max(oldest), 0) from schema_versions").Scan(&a.Schema, &oldest)
		_, a.Unusable = list.Behind(a.Schema, oldest)
	}
	if err == nil {
		err = denied(ctx, conn, list.Tables(), &a)
	}
	return a, err
}

// denied finds what the user may not do that servers do: they read and write rows, and
// change the tables when they are upgraded.
func denied(ctx context.Context, conn *sql.Conn, tables []string, a *About) error {
	there, err := texts(ctx, conn, "select table_name from information_schema.tables where table_schema = database() and table_type = 'BASE TABLE'")
	if err != nil {
		return err
	}
	t, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback() // nothing was done
	for _, right := range []struct{ try, what string }{
		{"select 1 from TABLE limit 0", "select from"},
		{"insert into TABLE (COLUMNS) select COLUMNS from TABLE where false", "insert into"},
		{"update TABLE set COLUMN = COLUMN where false", "update"},
		{"delete from TABLE where false", "delete from"},
	} {
		var names []string
		for _, name := range tables {
			if !slices.Contains(there, name) {
				continue
			}
			var columns string // without computed ones
			err := t.QueryRowContext(ctx, `select group_concat(column_name order by ordinal_position) from information_schema.columns
				where table_schema = database() and table_name = ? and coalesce(generation_expression, '') = ''`, name).Scan(&columns)
			if err == nil {
				first, _, _ := strings.Cut(columns, ",")
				_, err = t.ExecContext(ctx, strings.NewReplacer("TABLE", name, "COLUMNS", columns, "COLUMN", first).Replace(right.try))
			}
			switch number(err) {
			case errOptionPrevents, errReadOnlyTransact, errReadOnlyMode:
				a.Denied = append(a.Denied, "write anything: the server is read-only, as a replica is")
				return nil
			case errTableDenied, errDatabaseDenied:
				names = append(names, name)
				err = nil
			}
			if err != nil {
				return err
			}
		}
		a.Deny(right.what, names)
	}
	return deniedChanges(ctx, conn, a)
}

// deniedChanges finds missing rights to change the schema, as far as the server lists them:
// not for a user with roles.
func deniedChanges(ctx context.Context, conn *sql.Conn, a *About) error {
	given, err := texts(ctx, conn, `select privilege_type from information_schema.user_privileges where grantee = concat('\'', replace(current_user(), '@', '\'@\''), '\'')
		union select privilege_type from information_schema.schema_privileges where grantee = concat('\'', replace(current_user(), '@', '\'@\''), '\'') and database() like table_schema`)
	if err != nil || len(given) == 0 { // the name is written in another way
		return err
	}
	if roles, err := texts(ctx, conn, "select role_name from information_schema.applicable_roles"); err != nil || len(roles) > 0 {
		return err
	}
	for right, what := range changes {
		if !slices.Contains(given, right) {
			a.Denied = append(a.Denied, what)
		}
	}
	slices.Sort(a.Denied)
	return nil
}

// changes are the rights that the scripts need, and their purposes.
var changes = map[string]string{
	"CREATE": "create tables", "ALTER": "alter tables", "INDEX": "make an index", "DROP": "drop what is replaced", "CREATE VIEW": "create views",
}

// texts returns the texts of a query.
func texts(ctx context.Context, conn *sql.Conn, query string) (list []string, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}
