package sqldb

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// Migration is a script that brings a schema forward by one version. Scripts are numbered from 1
// and run once each, by one node at a time. No script is ever undone. The first line of a script
// names the schema of the oldest program that can run beside it, so that nodes can be upgraded one
// after another:
//
//	-- oldest: 1
//
// The default is the version before.
type Migration struct {
	Version, Oldest int
	Script          string
}

// Migrations are the scripts of a dialect in their order.
type Migrations []Migration

// ReadMigrations reads the files migrations/0001.sql and so on.
func ReadMigrations(files fs.FS) (Migrations, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := make(Migrations, len(names))
	for i, name := range names {
		n := i + 1
		if want := fmt.Sprintf("migrations/%04d.sql", n); name != want {
			return nil, fmt.Errorf("migration %s is missing", want)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		list[i] = Migration{Version: n, Oldest: max(1, i), Script: string(text)}
		if first, _, _ := strings.Cut(list[i].Script, "\n"); strings.HasPrefix(first, "-- oldest: ") {
			if list[i].Oldest, err = strconv.Atoi(first[len("-- oldest: "):]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return list, nil
}

// Behind returns the scripts that a database with a version still needs, provided that programs
// that know the version oldest can use the result.
func (m Migrations) Behind(version, oldest int) (Migrations, error) {
	known := len(m)
	if oldest > known {
		return nil, fmt.Errorf("the schema has version %d, which programs that know version %d can use, and this belfry knows versions up to %d: a newer belfry has used it. Use that one, or restore the backup made before the upgrade",
			version, oldest, known)
	}
	return m[min(version, known):], nil
}

var creates = regexp.MustCompile(`(?m)^create (?:unlogged )?table (?:if not exists )?([a-z_]+)`)

// Tables returns the names of the tables that the scripts create. Some may be dropped again, or not
// exist yet.
func (m Migrations) Tables() []string {
	list := []string{"schema_versions"}
	for _, script := range m {
		for _, names := range creates.FindAllStringSubmatch(script.Script, -1) {
			list = append(list, names[1])
		}
	}
	return list
}
