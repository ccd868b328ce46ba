package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// No query that is asked often reads a whole table, or sorts what is not a page
// already.
func TestQueriesUseIndexes(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	history, _ := historyWhere(job.ID{1}, "", time.Time{}, endOf(time.Time{}))
	latest, _ := historyWhere(job.ID{}, "default", time.Time{}, endOf(time.Time{}))
	const order = " order by h.ended desc, h.run desc, h.attempt desc"
	queries := map[string]string{ // to what the plan must have
		runByID: "USING PRIMARY KEY (id=?)",
		"select " + activeColumns + slotOfJob + " order by a.due, a.id limit ?": "active_job (job=?)",
		"select " + activeColumns + slotOfKey + " order by a.due, a.id limit ?": "active_slot (slot=?)",
		selectRecords + history + order:                                         "history_job (job=? AND ended>? AND (ended,run,attempt)<(?,?,?))",
		selectRecords + latest + order:                                          "USING PRIMARY KEY (ended>? AND (ended,run,attempt)<(?,?,?))",
		selectRecords + " where h.run = ? order by h.attempt":                   "history_run (run=?)",
		finalOfJob: "COVERING INDEX history_job (job=?)",
		"select h.job from history h where h.job > ? order by h.job limit 1": "history_job (job>?)",
		oldOfJob:    "history_job (job=? AND (ended,run,attempt)<(?,?,?))",
		outputOfJob: "history_job (job=? AND (ended,run,attempt)>(?,?,?) AND ended<?)",
		oldOutput:   "USING PRIMARY KEY ((ended,run,attempt)>(?,?,?) AND ended<?)",
		oldRecords:  "USING PRIMARY KEY ((ended,run,attempt)>(?,?,?) AND ended<?)",
		"select s.seq from job_state s where s.seq > ? order by s.seq":                                                                               "job_state_seq (seq>?)",
		"select uid from job_state where paused_until <> 0 and paused_until <= ? order by paused_until limit ?":                                      "job_state_until (paused_until<?)",
		"select uid from job_state where remove_at <> 0 and remove_at <= ? order by remove_at limit ?":                                               "job_state_remove (remove_at<?)",
		"select s.n from job_state s where s.n > ? and (s.keep_runs <> 0 or s.keep_for <> 0 or s.keep_output <> 0) order by s.n limit 1":             "job_state_keep (n>?)",
		"select uid, timing from job_state s where deleted <> 0 and deleted < ? and not exists (select 1 from active a where a.job = s.uid) limit ?": "job_state_deleted (deleted<?)",
		withdrawnRuns + " and a.job = ? limit ?": "active_job (job=?)",
	}
	err := s.read(t.Context(), func(c *conn) error {
		for query, want := range queries {
			q := c.stmt("explain query plan " + query)
			for range q.params {
				q.bindInt(1)
			}
			var plan []string
			for q.next() {
				q.skip()
				q.skip()
				q.skip()
				plan = append(plan, q.text())
			}
			if err := q.err(); err != nil {
				return err
			}
			text := strings.Join(plan, "\n")
			if !strings.Contains(text, want) || strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "SCAN a") || strings.Contains(text, "SCAN h") {
				t.Errorf("%s\nhas the plan\n%s\nwithout %s", query, text, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
