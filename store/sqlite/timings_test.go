package sqlite

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Of each text it is known how many jobs have it, whatever batches take and leave.
func TestTimingsAreCounted(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	put := func(crons ...string) {
		t.Helper()
		list := make([]store.PutJob, len(crons))
		for i, expr := range crons {
			j := benchJob(i, job.Policy{})
			j.Schedule = job.Schedule{Cron: []string{expr}}
			list[i] = store.PutJob{Definition: j, IfVersion: store.AnyVersion}
		}
		if _, err := s.PutJobs(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	counts := func() (said, are []int64) {
		t.Helper()
		err := s.read(t.Context(), func(c *conn) error {
			q := c.stmt("select t.jobs, (select count(*) from job_state s where s.timing = t.id) from timings t order by t.id")
			for q.next() {
				said, are = append(said, q.int()), append(are, q.int())
			}
			return q.err()
		})
		if err != nil {
			t.Fatal(err)
		}
		return said, are
	}
	const a, b, c, d = "1 1 5 5 *", "2 2 5 5 *", "3 3 5 5 *", "4 4 5 5 *"
	for _, batch := range []struct {
		crons []string
		want  []int64
	}{
		{[]string{a, a, a, b}, []int64{3, 1}},
		// One takes b before the one that had it leaves it.
		{[]string{a, b, a, a}, []int64{3, 1}},
		// a is left by all of them, and b by one that comes before those who take it.
		{[]string{b, c, b, b}, []int64{3, 1}},
		{[]string{b, c, b, b, c, c}, []int64{3, 3}},
		// d comes, goes with the only one that has it, and comes again.
		{[]string{d, c, b, b, c, c}, []int64{2, 3, 1}},
		{[]string{b, d, b, b, c, c}, []int64{3, 2, 1}},
	} {
		put(batch.crons...)
		if said, are := counts(); !slices.Equal(said, are) || !slices.Equal(said, batch.want) {
			t.Errorf("after %q it says %v, and %v jobs have them; want %v", batch.crons, said, are, batch.want)
		}
	}
}
