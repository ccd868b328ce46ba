package sqlite

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/belfry-cron/belfry/store/storetest"
)

// grows are the tables that may be large: only these queries read one as a whole, and none sorts
// more than the rows of its keys.
var (
	grows = regexp.MustCompile(`SCAN (a|h|s|j|n|active|history|job_state|jobs|names|output|audit|revisions|request_keys)\b`)
	whole = []string{
		"select count(*) from jobs where live is not null",                      // once, after a start with new defaults
		"from jobs j join job_state s on s.uid = j.uid where s.deleted",         // the summary
		"select a.due, a.id, a.job from active a join job_state s on s.uid = a", // Tidy, once after a start
		"select coalesce(max(seq), 0) from audit",                               // reads one row
		"where renewed < ?",              // deletes from sessions, which are few
		"from sessions s",                // all of them
		"select seq, written from audit", // a page
	}
	sorted = []string{"group by", "select distinct a.job", " in (?*)", "alert_at <= ?"}
)

// checkPlans checks the query plans of all statements that stores have used.
func checkPlans(t *testing.T, asked *sync.Map) {
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	contains := func(text string, of []string) bool {
		for _, part := range of {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	n := 0
	err := s.read(t.Context(), func(c *conn) error {
		for text, st := range asked.Range {
			sets := make([]any, len(st.(*statement).parts)-1)
			for i := range sets {
				sets[i] = []int64{1}
			}
			query := st.(*statement).with(sets)
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
			n++
			words, all := text.(string), strings.Join(plan, "\n")
			for _, inner := range []string{"a", "h"} {
				if strings.Contains(all, "CO-ROUTINE "+inner) {
					all = strings.Replace(all, "SCAN "+inner, "", 1) // the rows of the inner query
				}
			}
			if grows.MatchString(all) && !strings.Contains(all, "COVERING INDEX jobs_boot") && !contains(words, whole) || strings.Contains(all, "TEMP B-TREE FOR ORDER BY") && !contains(words, sorted) {
				t.Errorf("%s\nhas the plan\n%s", query, all)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 100 && !storetest.RaceDetector {
		t.Errorf("%d statements were seen, want those of the whole suite", n)
	}
}
