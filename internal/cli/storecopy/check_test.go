package storecopy_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to damage files

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// damage is done to a store directly, with the expected finding.
type damage struct {
	name   string
	sql    string
	check  string
	object string
	says   string
	lasts  bool // it cannot be mended
}

var damages = []damage{
	{
		name: "a cursor far in the future", sql: "update job_state set cursor_at = cursor_at + 864000000000000 where uid = (select uid from jobs where live = 'default/a')",
		check: engine.CheckCursors, object: "job default/a", says: "nothing is planned before 2026-11-30",
	},
	{
		name: "a cursor before what is planned", sql: "update job_state set cursor_at = cursor_at - 60000000000 where uid = (select uid from jobs where live = 'default/q')",
		check: engine.CheckCursors, object: "job default/q", says: "would be planned again",
	},
	{
		name: "a follower that is not found", sql: "delete from followers",
		check: engine.CheckIndexes, object: "job default/after", says: "it follows job default/a",
	},
	{
		name: "the user of a calendar that is not found", sql: "delete from calendar_users",
		check: engine.CheckIndexes, object: "job default/a", says: "it names calendar default/off",
	},
	{
		name: "another schedule for planners", sql: "update jobs set timing = replace(timing, '* * * * *', '5 * * * *') where live = 'default/q'",
		check: engine.CheckFeed, object: "job default/q", says: "planners go by another schedule",
	},
	{
		name: "a job that planners do not learn of", sql: "update jobs set seq = 0 where live = 'default/a'",
		check: engine.CheckFeed, object: "job default/a", says: "planners are not notified of it",
	},
	{
		name: "a job in a partition that is none", sql: "update jobs set part = 300 where live = 'default/a'",
		check: engine.CheckFeed, object: "job default/a", says: "planners are not notified of it", lasts: true,
	},
	{
		name: "no revision of the present version", sql: "delete from revisions where version = 2",
		check: engine.CheckVersions, object: "job default/a", says: "the latest revision is 1",
	},
	{
		name: "a run that waits for a free slot", sql: "update active set state = 1 where job = (select uid from jobs where live = 'default/q')",
		check: engine.CheckSlots, object: "of job default/q", says: "its slot is free",
	},
	{
		name: "a run that waits for its own slot", sql: "update active set state = 1, holds = 1 where job = (select uid from jobs where live = 'default/q')",
		check: engine.CheckSlots, object: "of job default/q", says: "a slot that it holds",
	},
	{
		name: "a run that is there twice", sql: "create temp table twin as select * from active where job = (select uid from jobs where live = 'default/q'); update twin set id = zeroblob(16); insert into active select * from twin",
		check: engine.CheckRuns, object: "of job default/q", says: "stands for the same occurrence",
	},
	{
		name: "a run without a job", sql: "delete from job_state where uid = (select uid from jobs where live = 'default/q'); delete from jobs where live = 'default/q'",
		check: engine.CheckRuns, object: "run ", says: "does not exist",
	},
	{
		name: "a name that leads nowhere", sql: "update jobs set live = null where live = 'default/q'",
		check: engine.CheckNames, object: "job default/q", says: "its name leads nowhere", lasts: true,
	},
	{
		name: "a record that is missing in the audit", sql: "delete from audit where seq = 3",
		check: engine.CheckAudit, object: "record 3", says: "1 record before record 4", lasts: true,
	},
	{
		name: "another name in the history", sql: "update names set name = 'x' where name = 'a'",
		check: engine.CheckHistory, object: "job default/a", says: "history calls it \"default/x\"", lasts: true,
	},
}

// healthy returns the closed file of a store with one of everything.
func healthy(t *testing.T) (path string, w *world) {
	path = filepath.Join(t.TempDir(), "belfry.db")
	w = newWorld(t, func(now func() time.Time) storecopy.Store { return openFile(t, path, now) })
	w.live()
	w.leave()
	w.must(w.Close())
	return path, w
}

func openFile(t *testing.T, path string, now func() time.Time) storecopy.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: now, Guard: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheckFindsAndMendsEachKindOfDamage(t *testing.T) {
	whole, w := healthy(t)
	text, err := os.ReadFile(whole)
	w.must(err)
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "belfry.db")
			w.must(os.WriteFile(path, text, 0o600))
			db, err := sql.Open("sqlite", path)
			w.must(err)
			_, err = db.ExecContext(t.Context(), d.sql)
			w.must(err)
			w.must(db.Close())
			s := openFile(t, path, w.clock)
			d.found(t, s)
			w.must(s.Close())
		})
	}
}

// found checks a damaged store, mends it, and checks it again.
func (d *damage) found(t *testing.T, s storecopy.Store) {
	is := func(one engine.Damage) bool {
		return one.Check == d.check && strings.Contains(one.Object, d.object) && strings.Contains(one.Found, d.says)
	}
	got := checked(t, s, false)
	if !slices.ContainsFunc(got.Damage, is) {
		t.Errorf("found is %+v, want %s: %s: %s", got.Damage, d.check, d.object, d.says)
	}
	if again := checked(t, s, false); len(again.Damage) != len(got.Damage) {
		t.Errorf("a check that is not to mend anything has changed what it finds: %+v", again.Damage)
	}
	fixed := checked(t, s, true)
	if (fixed.Left() > 0) != d.lasts {
		t.Errorf("mended is %+v", fixed.Damage)
	}
	if after := checked(t, s, false); (len(after.Damage) > 0) != d.lasts {
		t.Errorf("found after the repair: %+v", after.Damage)
	}
}

func checked(t *testing.T, s storecopy.Store, fix bool) storecopy.Checked {
	t.Helper()
	c, err := storecopy.Check(context.Background(), s, storecopy.CheckOptions{Fix: fix})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCheckFindsNothingInAHealthyStore(t *testing.T) {
	w := newWorld(t, inMemory)
	w.live()
	for _, when := range []string{"while a node is live", "after it has stopped"} {
		if c := checked(t, w, true); len(c.Damage) > 0 || c.Jobs != 3 || c.Runs != 4 || c.Attempts != 3 || c.Audit < 9 {
			t.Errorf("%s: %+v", when, c)
		}
		if when == "while a node is live" {
			w.leave()
		}
	}
}

// A run that has ended by history is damage in any store.
func TestCheckRemovesARunThatHasEnded(t *testing.T) {
	w := newWorld(t, inMemory)
	w.live()
	runs, err := w.ListActive(w.ctx, store.ActiveQuery{Limit: 1})
	w.must(err)
	r := runs[0].Run
	r.State, r.Outcome = job.StateDone, job.OutcomeSucceeded
	w.must(w.Append(w.ctx, []store.Record{{Run: r, Attempt: job.Attempt{Run: r.ID, Number: 1, Ended: w.now, Outcome: job.OutcomeSucceeded}, Final: true}}))
	d := damage{check: engine.CheckRuns, object: r.ID.String(), says: "history says that it has ended: succeeded"}
	d.found(t, w)
	if _, err := store.ActiveRun(w.ctx, w, r.ID); err == nil {
		t.Error("it is still there")
	}
}
