package mysql

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// read returns a statement as a server reads it, which executes comments that begin with ! and a version up to its own, and the
// letters that it knows before the !.
func read(statement string, executes func(letters, version string) bool) string {
	return regexp.MustCompile(`(?s)/\*(M?)!(\d{5,6})?(.*?)\*/`).ReplaceAllStringFunc(statement, func(comment string) string {
		parts := regexp.MustCompile(`(?s)/\*(M?)!(\d{5,6})?(.*?)\*/`).FindStringSubmatch(comment)
		if executes(parts[1], parts[2]) {
			return parts[3]
		}
		return " "
	})
}

// MySQL 8 takes /*M! for a comment; MariaDB executes it, and leaves out the versions 50700 to 99999, which are MySQL's alone.
func mysql8(letters, version string) bool { return letters == "" && version <= "80036" }

func mariadb10(_, version string) bool { return version < "50700" || version > "99999" }

// Each server has a bound for statements that the other refuses as an unknown variable.
func TestEachServerReadsOnlyItsOwnBoundOfStatements(t *testing.T) {
	session := limits{statement: 30 * time.Second, lock: time.Second, idle: time.Minute}.session()
	for server, c := range map[string]struct {
		executes    func(letters, version string) bool
		has, hasNot string
	}{
		"MySQL 8":       {mysql8, "max_execution_time = 30000", "max_statement_time"},
		"MariaDB 10.11": {mariadb10, "max_statement_time = 30", "max_execution_time"},
	} {
		if text := read(session, c.executes); !strings.Contains(text, c.has) || strings.Contains(text, c.hasNot) {
			t.Errorf("%s reads\n%s\nwant %q and not %q", server, text, c.has, c.hasNot)
		}
	}
}

// Words of MariaDB's dialect that MySQL 8 does not have, in what creates the tables.
func TestMigrationsHaveNoWordsOfMariaDBAlone(t *testing.T) {
	only := regexp.MustCompile(`(?i)\b(max_statement_time|returning|sequence|inet6|uuid\(\)|add column if not exists|drop column if exists|create index if not exists|drop index if exists|page_compressed|aria)\b`)
	files, err := os.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile("migrations/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(read(string(text), mysql8), "\n") {
			line, _, _ = strings.Cut(line, "-- ")
			if found := only.FindString(line); found != "" {
				t.Errorf("%s:%d: %q is MariaDB's alone: %s", f.Name(), n+1, found, line)
			}
		}
	}
}
