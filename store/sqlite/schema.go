package sqlite

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"
)

// Scripts numbered from 1 upgrade the schema. Each runs once, in one transaction with the record of
// that. There is no way back but a backup. Libraries for this need database/sql and bring
// downgrades, dialects and programs; here the function below suffices.

//go:embed migrations/*.sql
var migrations embed.FS

// scripts returns the migrations in their order: the script of version n is the
// n-th.
func scripts() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := make([]string, len(names))
	for i, name := range names {
		if want := fmt.Sprintf("migrations/%04d.sql", i+1); name != want {
			return nil, fmt.Errorf("migration %s is missing", want)
		}
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list[i] = string(text)
	}
	return list, nil
}

// applicationID marks files of Belfry in the header of the database.
const applicationID = 0x42656c66 // "Belf"

// migrate brings the schema of a database forward to the last script.
func migrate(c *conn, path string, list []string, now time.Time) error {
	tables, err := number(c, "select count(*) from sqlite_schema")
	if err != nil {
		return err
	}
	mark, err := number(c, "pragma application_id")
	if err != nil {
		return err
	}
	if tables > 0 && mark != applicationID {
		return fmt.Errorf("%s is a database of another program", path)
	}
	if err := c.exec(fmt.Sprintf(`
		pragma application_id = %d;
		create table if not exists schema_versions (
			version integer primary key,
			applied integer not null
		)`, applicationID)); err != nil {
		return err
	}
	version, err := number(c, "select coalesce(max(version), 0) from schema_versions")
	if err != nil {
		return err
	}
	if err := notNewer(path, version, len(list)); err != nil {
		return err
	}
	for i, script := range list[version:] {
		n := version + int64(i) + 1
		err := inTransaction(c, func() error {
			if err := c.exec(script); err != nil {
				return err
			}
			return c.stmt("insert into schema_versions (version, applied) values (?, ?)").bindInt(n).bindTime(now).exec()
		})
		if err != nil {
			return fmt.Errorf("bring the schema to version %d: %w", n, err)
		}
	}
	return nil
}

// made matches what a script makes: tables, views and indexes share their names.
var made = regexp.MustCompile(`(?m)^create (?:table|view|(?:unique )?index) (?:if not exists )?(\w+)`)

// adopt marks a file with tables of a program as one of Belfry, too, unless a name would be used
// twice.
func adopt(c *conn, path string, list []string) error {
	mark, err := number(c, "pragma application_id")
	if err != nil || mark != 0 {
		return err // it is marked, perhaps by another program, which migrate refuses
	}
	own := map[string]bool{"schema_versions": true}
	for _, script := range list {
		for _, name := range made.FindAllStringSubmatch(script, -1) {
			own[name[1]] = true
		}
	}
	var taken []string
	s := c.stmt("select name from sqlite_schema order by name")
	for s.next() {
		if name := s.text(); own[strings.ToLower(name)] {
			taken = append(taken, name)
		}
	}
	if err := s.err(); err != nil {
		return err
	}
	if len(taken) > 0 {
		return fmt.Errorf("%s has tables of the program with the names of belfry's (%s): open another file with sqlite.File", path, strings.Join(taken, ", "))
	}
	return c.exec(fmt.Sprintf("pragma application_id = %d", applicationID))
}

// notNewer refuses an unknown schema version.
func notNewer(path string, version int64, known int) error {
	if version > int64(known) {
		return fmt.Errorf("%s has schema version %d and this belfry knows versions up to %d: a newer belfry has used it. Use that one, or restore the backup made before the upgrade",
			path, version, known)
	}
	return nil
}

// known refuses a file that is not a store, or a store of a newer Belfry.
func known(c *conn, path string) error {
	mark, err := number(c, "pragma application_id")
	if err != nil {
		return err
	}
	if mark != applicationID {
		return fmt.Errorf("%s is not a store of belfry", path)
	}
	version, err := number(c, "select coalesce(max(version), 0) from schema_versions")
	if err != nil {
		return err
	}
	list, err := scripts()
	if err != nil {
		return err
	}
	return notNewer(path, version, len(list))
}

// inTransaction runs do in a transaction of the only writer.
func inTransaction(c *conn, do func() error) error {
	if err := c.stmt("begin immediate").exec(); err != nil {
		return err
	}
	err := do()
	if err == nil {
		err = c.stmt("commit").exec()
	}
	if err != nil && c.inTransaction() {
		// Return the first error.
		_ = c.stmt("rollback").exec()
	}
	return err
}

// number returns the only value of a query.
func number(c *conn, query string) (int64, error) {
	var n int64
	s := c.stmt(query)
	for s.next() {
		n = s.int()
	}
	return n, s.err()
}
