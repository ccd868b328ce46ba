//go:build servers

package postgres

import (
	commands "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// psql runs a script as an administrator does.
func psql(t *testing.T, address, script string) {
	t.Helper()
	cmd := commands.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", address)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// An administrator runs the script, and a user who may only read and write rows serves on the schema.
func TestAUserWithoutTablesOfItsOwnServesOnAScriptedSchema(t *testing.T) {
	as := func(user string) string {
		return strings.Replace(server.URL(), "belfry@", user+"@", 1) + `&schema=By+"hand"`
	}
	script := func(user string) string {
		t.Helper()
		text, err := Script(t.Context(), as(user))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	exec(t, server.URL(), "create user clerk")
	first := script("clerk")
	if !strings.HasPrefix(first, "begin;\ncreate schema \"By \"\"hand\"\"\";\n") {
		t.Errorf("the script begins with %.80q", first)
	}
	if again := script("clerk"); again != first {
		t.Error("the first script has changed something")
	}
	psql(t, server.URL(), first)
	if left := script("belfry"); left != "" {
		t.Errorf("after the script is left to do: %.200s", left)
	}
	psql(t, server.URL(), `grant usage on schema "By ""hand""" to clerk; grant select, insert, update, delete on all tables in schema "By ""hand""" to clerk`)
	s := open(t, as("clerk"), Options{Guard: true})
	if err := put(t.Context(), s, "nightly"); err != nil {
		t.Fatal(err)
	}
	if err := s.d.Partition(t.Context(), time.Now().UnixNano(), time.Now().UnixNano()); err != nil {
		t.Errorf("without the right to make parts of history: %v", err)
	}
	if _, err := store.JobNamed(t.Context(), s, "default", "nightly"); err != nil {
		t.Error(err)
	}
	// What a later version adds is in a script of its own.
	psql(t, server.URL(), `delete from "By ""hand""".schema_versions where version = 26; drop table "By ""hand""".notices`)
	if text := script("clerk"); strings.Contains(text, "create schema \"") || strings.Count(text, "insert into schema_versions") != 1 || !strings.Contains(text, "create unlogged table notices") {
		t.Errorf("one version behind, the script is\n%s", text)
	}
}
