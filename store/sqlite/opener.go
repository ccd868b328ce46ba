package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/belfry-cron/belfry/store"
)

// File returns an opener for the database file at a path, for belfry.New. See [Open]. Defaults that
// servers on the same store have applied stay.
func File(path string) store.Opener {
	return store.Opening(func(ctx context.Context) (*Store, error) { return Open(ctx, path, Options{KeepDefaults: true}) })
}

// DB returns an opener for the file of a database of the program, for belfry.New. The store has
// handles of its own on the file, which is set to write-ahead logging, and tables beside those of the
// program. The driver must be modernc.org/sqlite, since two copies of SQLite in a process drop each
// other's locks on a file. Closing the store leaves the database open.
func DB(db *sql.DB) store.Opener {
	return store.Opening(func(ctx context.Context) (*Store, error) {
		path, err := fileOf(ctx, db)
		if err != nil {
			return nil, fmt.Errorf("sqlite.DB: %w", err)
		}
		return openBeside(ctx, path, Options{KeepDefaults: true}, 0, true)
	})
}

// ownDriver is the package of the driver with the copy of SQLite that the store uses.
const ownDriver = "modernc.org/sqlite"

// fileOf returns the path of the file of a program's database.
func fileOf(ctx context.Context, db *sql.DB) (path string, err error) {
	if db == nil {
		return "", errors.New("the database is nil")
	}
	driver := reflect.Indirect(reflect.ValueOf(db.Driver())).Type()
	if driver.PkgPath() != ownDriver {
		return "", fmt.Errorf("the driver is %s, and must be %s: two copies of SQLite in a process drop each other's locks on a file. sqlite.File opens another file", driver, ownDriver)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// Reading it creates the file of a new database.
	var version int64
	if err := conn.QueryRowContext(ctx, "pragma schema_version").Scan(&version); err != nil {
		return "", err
	}
	if err := conn.QueryRowContext(ctx, "select coalesce(file, '') from pragma_database_list where name = 'main'").Scan(&path); err != nil {
		return "", err
	}
	if path == "" {
		return "", errors.New("the database is in memory, where the store cannot open it: it needs a file, or memory.Empty() for a store without one")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the database is not in a file of this machine: %w", err)
	}
	return path, nil
}
