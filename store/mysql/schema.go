package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// scripts returns the migrations in their order.
func scripts() (sqldb.Migrations, error) { return sqldb.ReadMigrations(migrations) }

// migrate upgrades the schema of the database by scripts. Each schema statement is a
// transaction of its own, so all must be repeatable: a script is recorded at its end, and
// starts over if its node fails.
func migrate(ctx context.Context, a *address) error {
	list, err := scripts()
	if err != nil {
		return err
	}
	pool, err := a.open(unbounded)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // releases the lock as well
	within, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	_, ours, err := known(within, conn)
	if err != nil {
		return err
	}
	if err := lock(ctx, conn); err != nil {
		return err
	}
	if !ours {
		if _, err := conn.ExecContext(ctx, createVersions); err != nil {
			return err
		}
	}
	return forward(ctx, conn, list)
}

// createVersions creates the table that says which scripts have run.
const createVersions = `create table if not exists schema_versions (
		version int primary key,
		oldest  int not null,
		applied datetime(6) not null
	)`

// Script returns the statements that bring the schema of a database up to date, for a person who
// runs them with the program mysql or mariadb; "" if it is. It changes nothing.
func Script(ctx context.Context, text string) (string, error) {
	a, err := parseAddress(text)
	if err != nil {
		return "", &AddressError{Cause: err}
	}
	script, err := missing(ctx, a)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", a.name, err)
	}
	return script, nil
}

func missing(ctx context.Context, a *address) (string, error) {
	list, err := scripts()
	if err != nil {
		return "", err
	}
	d, err := connect(ctx, a)
	if err != nil {
		return "", err
	}
	defer d.pool.Close()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_, ours, err := known(ctx, conn)
	if err != nil {
		return "", err
	}
	if ours {
		list, err = after(ctx, conn, list)
	}
	if err != nil || len(list) == 0 {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "use `%s`;\nset names utf8mb4 collate utf8mb4_bin;\n%s;\n%s;\n", strings.ReplaceAll(a.config.DBName, "`", "``"), unbounded.session(), createVersions)
	for _, m := range list {
		fmt.Fprintf(&b, "\n%s\n%s;\n", strings.TrimSpace(withoutFunctions(m.Script)), recordOf(m))
	}
	return b.String(), nil
}

// recordOf returns the statement that says that a script has run.
func recordOf(m sqldb.Migration) string {
	return fmt.Sprintf("insert into schema_versions values (%d, %d, utc_timestamp(6))", m.Version, m.Oldest)
}

// lock waits until no other node changes the schema. Each try is short, so that a connection whose
// other end is gone is given up.
func lock(ctx context.Context, conn *sql.Conn) error {
	try := func() (locked sql.NullInt64, err error) {
		within, cancel := context.WithTimeout(ctx, openMax)
		defer cancel()
		// The name may be as long as the name of a database, and the server's locks have
		// no more than 64 letters.
		err = conn.QueryRowContext(within, fmt.Sprintf("select get_lock(concat('belfry ', md5(database())), %d)", int(lockTimeout.Seconds()))).Scan(&locked)
		return locked, err
	}
	for {
		switch locked, err := try(); {
		case err != nil:
			return err
		case !locked.Valid:
			return errors.New("the lock for changes of the schema failed")
		case locked.Int64 == 1:
			return nil
		}
	}
}

// packetMin is the least max_allowed_packet of a server, the default of MariaDB: a
// statement is as long as statementMax and a row, and a job may be some megabytes. With
// less, results that have much output could never be reported.
const packetMin = 16 << 20

// known refuses unsupported servers, servers that accept only too short statements, and the
// database of another program. It returns the kind of server, and whether the database is
// ours already.
func known(ctx context.Context, conn *sql.Conn) (server string, ours bool, err error) {
	var version string
	var packet int
	if err := conn.QueryRowContext(ctx, "select version(), @@max_allowed_packet").Scan(&version, &packet); err != nil {
		return "", false, err
	}
	server, err = product(version)
	if err != nil {
		return "", false, err
	}
	if packet < packetMin {
		return "", false, fmt.Errorf("max_allowed_packet of the server is %d, and must be %d or more", packet, packetMin)
	}
	var tables int
	err = conn.QueryRowContext(ctx, "select count(*), coalesce(sum(table_name = 'schema_versions'), 0) from information_schema.tables where table_schema = database()").Scan(&tables, &ours)
	if err == nil && tables > 0 && !ours {
		return "", false, errors.New("the database has tables of another program: give belfry one of its own")
	}
	return server, ours, err
}

// product returns the server product of a version, and refuses versions that are too old.
func product(version string) (string, error) {
	var major, minor, patch int
	// The rest of the version does not matter.
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	number := major*10000 + minor*100 + patch
	if strings.Contains(version, "MariaDB") {
		if number < 100600 {
			return "", fmt.Errorf("the server is MariaDB %s, and must be 10.6 or later", version)
		}
		return "MariaDB " + version, nil
	}
	if number < 80019 {
		return "", fmt.Errorf("the server is MySQL %s, and must be 8.0.19 or later", version)
	}
	return "MySQL " + version, nil
}

func forward(ctx context.Context, conn *sql.Conn, list sqldb.Migrations) error {
	list, err := after(ctx, conn, list)
	if err != nil {
		return err
	}
	for _, m := range list {
		if _, err := conn.ExecContext(ctx, withoutFunctions(m.Script)); err != nil {
			return fmt.Errorf("bring the schema to version %d: %w", m.Version, err)
		}
		if _, err := conn.ExecContext(ctx, recordOf(m)); err != nil {
			return err
		}
	}
	return nil
}

// after returns the scripts that the schema still needs.
func after(ctx context.Context, conn *sql.Conn, list sqldb.Migrations) (sqldb.Migrations, error) {
	var version, oldest int
	if err := conn.QueryRowContext(ctx, "select coalesce(max(version), 0), coalesce(max(oldest), 0) from schema_versions").Scan(&version, &oldest); err != nil {
		return nil, err
	}
	return list.Behind(version, oldest)
}

// calls of belfry_time and belfry_id in scripts.
var calls = regexp.MustCompile(`belfry_(time|id)\(([a-z_.]+)\)`)

// withoutFunctions expands the function calls of PostgreSQL's views: managed servers seldom grant
// the right to create functions.
func withoutFunctions(script string) string {
	return calls.ReplaceAllStringFunc(script, func(call string) string {
		m := calls.FindStringSubmatch(call)
		if m[1] == "time" {
			return "timestamp'1970-01-01 00:00:00.000000' + interval (nullif(" + m[2] + ", 0) div 1000) microsecond"
		}
		return idText(m[2])
	})
}

// idText is an expression for an id in its visible form, 26 digits of Crockford's base 32, or null.
// Servers convert 15 hexadecimal digits at once into 12 digits to the base of 32, up to V, whose
// letters are then mapped to Crockford's.
func idText(column string) string {
	e := fmt.Sprintf("concat(lpad(conv(substr(hex(%[1]s), 1, 2), 16, 32), 2, '0'), lpad(conv(substr(hex(%[1]s), 3, 15), 16, 32), 12, '0'), lpad(conv(substr(hex(%[1]s), 18), 16, 32), 12, '0'))", column)
	const theirs, crockford = "IJKLMNOPQRSTUV", "JKMNPQRSTVWXYZ"
	for i := len(theirs) - 1; i >= 0; i-- { // backwards, so that no letter is replaced twice
		e = fmt.Sprintf("replace(%s, '%c', '%c')", e, theirs[i], crockford[i])
	}
	return fmt.Sprintf("case when length(%s) = 16 then %s end", column, e)
}
