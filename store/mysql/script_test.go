//go:build servers

package mysql

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// An administrator runs the script, and a user who may only read and write rows serves on the database.
func TestAUserWithoutTablesOfItsOwnServesOnAScriptedDatabase(t *testing.T) {
	u, err := url.Parse(newDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	if err := server.Exec(t.Context(), "create user scribe; grant select, insert, update, delete on "+name+".* to scribe"); err != nil {
		t.Fatal(err)
	}
	admin := u.String()
	u.User = url.User("scribe")
	script := func() string {
		t.Helper()
		text, err := Script(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if s, err := Open(t.Context(), u.String(), Options{}); err == nil {
		t.Fatal("a user without rights has created the tables", s.Close())
	}
	first := script()
	parsed, err := parseAddress(admin)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "mariadb", "--no-defaults", "--protocol=tcp", "-h", u.Hostname(), "-P", u.Port(), "-u", parsed.config.User, "--password="+parsed.config.Passwd)
	cmd.Stdin = strings.NewReader(first)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left := script(); left != "" {
		t.Errorf("after the script is left to do: %.200s", left)
	}
	s := open(t, u.String(), Options{})
	if _, err := store.PutOne(t.Context(), s, store.PutJob{IfVersion: store.AnyVersion, Actor: "ann", Definition: &job.Job{
		Name: "nightly", Description: "café", Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.JobNamed(t.Context(), s, "default", "nightly"); err != nil {
		t.Error(err)
	}
}
