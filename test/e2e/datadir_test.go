//go:build servers

package e2e_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// The fixture of the data directory that version 7 of the schema left after a crash: its store,
// its token, and what its process and its watchdog wrote.
func TestADataDirectoryOfVersion7IsUpgraded(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if err := os.MkdirAll(f.data, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := "belfry_" + base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	for name, text := range map[string]string{
		"token":            secret + "\n",
		"server.json":      `{"url":"http://127.0.0.1:1","token_file":"` + filepath.Join(f.data, "token") + `","pid":1}`,
		"watchdog.journal": "belfryW1" + string(make([]byte, 504)) + "an attempt of this version",
	} {
		if err := os.WriteFile(filepath.Join(f.data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(f.data, "belfry.db"))
	if err != nil {
		t.Fatal(err)
	}
	script := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../../store/sqlite", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const version = 7
	script("pragma application_id = 1113943142; create table schema_versions (version integer primary key, applied integer not null)") // "Belf"
	for n := range version {
		script(file(fmt.Sprintf("migrations/%04d.sql", n+1)))
		script("insert into schema_versions values (?, 0)", n+1)
	}
	script(file(fmt.Sprintf("testdata/version%d.sql", version)))
	hash := sha256.Sum256([]byte(secret))
	script("update tokens set hash = ?", hash[:])
	// Its pause has an end, which has passed by now.
	script("update job_state set paused_until = ? where paused_until > 0", time.Now().Add(time.Hour).UnixNano())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s := f.serve(t, options{})
	states := map[string]string{}
	list, err := s.Jobs(t.Context(), client.JobQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range list.Items {
		j, err := document.Job()
		if err != nil {
			t.Fatal(err)
		}
		states[j.Name] = string(j.Status.State)
	}
	if fmt.Sprint(states) != "map[after:active daily:active paused:paused]" {
		t.Errorf("the jobs are %v", states)
	}
	s.apply("{name: new, run: {shell: 'true'}}")
	if ended := s.ended(s.runByHand("new").ID); ended.Outcome != job.OutcomeSucceeded {
		t.Errorf("a new job ended with %s: %s", ended.Outcome, ended.Reason)
	}
	s.stop()
	if n := s.log.lines(`"level":"ERROR"`); n > 0 {
		t.Errorf("%d errors are logged:\n%s", n, s.log)
	}
	f.serve(t, options{}).stop() // its own data directory, once more
}
