//go:build servers

package mysql

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A longer row would be moved when its run is claimed, which costs more than creating it.
func TestAClaimChangesNoLengths(t *testing.T) {
	s, j, session, pool := withAJob(t)
	lengths := func() (text string) {
		t.Helper()
		err := pool.QueryRowContext(t.Context(), `select concat_ws(' ', length(id), length(job), length(run_key), length(params), length(parent), length(session),
			length(slot), length(node), length(token), length(reason), length(cancel_by), length(cancel_reason)) from active`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	run := job.ID{2}
	to := j.Cursor.Add(1)
	planned, _, err := s.Plan(t.Context(), session.ID, []store.PlanItem{{
		Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: to,
		Runs: []store.NewRun{{ID: run, Session: session.ID, Scheduled: to, Due: to}},
	}})
	if err != nil || planned[0] != store.Planned {
		t.Fatal(err, planned)
	}
	before := lengths()
	ready, err := store.ActiveRun(t.Context(), s, run)
	if err != nil || !ready.Token.IsZero() {
		t.Errorf("an unclaimed run has the token %s, error %v", ready.Token, err)
	}
	claimed, err := s.Claim(t.Context(), session.ID, []store.Attempt{{Run: run, Number: 1, Token: job.ID{3}}})
	if err != nil || claimed[0].Verdict != store.Started {
		t.Fatal(err, claimed)
	}
	if after := lengths(); after != before {
		t.Errorf("the columns of a row are %s bytes long, and after the claim %s", before, after)
	}
}

// A server whose statistics say that runs have many records, as after many retries, would rather
// scan all records than look up the records of a batch.
func TestRecordLookupsIgnoreServerStatistics(t *testing.T) {
	s, j, session, pool := withAJob(t)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("set global userstat = 1") // counts the rows read
	exec("alter table history stats_auto_recalc = 0")
	exec("insert into names (uid, namespace, name) select unhex(concat('ff', lpad(hex(seq), 30, '0'))), 'default', concat('n', seq) from seq_1_to_2000")
	exec("analyze table names")
	exec("insert into history (ended, run, attempt, job) select seq, unhex('ff'), seq, ? from seq_1_to_20000", j.Definition.UID[:])
	exec("analyze table history")
	exec("insert into history (ended, run, attempt, job, is_final) select seq, unhex(lpad(hex(seq), 32, '0')), 1, ?, 1 from seq_1_to_500", j.Definition.UID[:])
	attempts := make([]store.Attempt, store.MaxBatch)
	results := make([]store.Result, store.MaxBatch)
	for i := range attempts {
		n := i + 1
		attempts[i] = store.Attempt{Run: job.ID{14: byte(n >> 8), 15: byte(n)}, Number: 1, Token: job.ID{3}}
		results[i] = store.Result{Attempt: attempts[i], Outcome: job.OutcomeSucceeded}
	}
	looksUp := func(what string, call func() error) {
		t.Helper()
		read := func() (rows int) {
			t.Helper()
			err := pool.QueryRowContext(t.Context(), `select coalesce(sum(rows_read), 0) from information_schema.table_statistics
				where table_schema = database() and table_name = 'history'`).Scan(&rows)
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		before := read()
		if err := call(); err != nil {
			t.Fatal(what, err)
		}
		if rows := read() - before; rows > 5*len(attempts) {
			t.Errorf("%d %s of runs that are over read %d records", len(attempts), what, rows)
		}
	}
	looksUp("claims", func() error {
		_, err := s.Claim(t.Context(), session.ID, attempts)
		return err
	})
	looksUp("results", func() error {
		_, err := s.Finish(t.Context(), session.ID, results)
		return err
	})
}
