//go:build servers

package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Two nodes take turns with a job, and a person changes its runs with psql. The stores compare what
// they have cached with what is stored.
func TestCachedRunsAreTheStoredOnes(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), emptySchema(t)
	stores := [...]*Store{open(t, address, Options{Guard: true}), open(t, address, Options{Guard: true})}
	j, err := store.PutOne(ctx, stores[0], store.PutJob{Actor: "ann", Definition: &job.Job{
		Namespace: "default", Name: "j", Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}, Policy: job.Policy{Overlap: job.OverlapQueue},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var sessions [len(stores)]job.ID
	for i, s := range stores {
		session, err := s.Join(ctx, store.Session{ID: job.ID{1, byte(i)}, Node: string(rune('a' + i)), Machine: "m", DataDir: string(rune('a' + i)), Roles: []string{store.RoleWorker}})
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = session.ID
	}
	attempt := func(n int) store.Attempt {
		return store.Attempt{Run: job.ID{2, byte(n)}, Number: 1, Token: job.ID{3, byte(n)}}
	}
	claim := func(by, n int, want store.Verdict) {
		t.Helper()
		if out, err := stores[by].Claim(ctx, sessions[by], []store.Attempt{attempt(n)}); err != nil || out[0].Verdict != want {
			t.Fatalf("claim of run %d by store %d: %v, %v; want %d", n, by, out, err, want)
		}
	}
	caching := func() (by int64) {
		t.Helper()
		d, err := connect(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		defer d.pool.Close()
		if err := d.pool.QueryRow(ctx, "select cached_by from job_state").Scan(&by); err != nil {
			t.Fatal(err)
		}
		return by
	}
	const runs = 8
	for n := range runs {
		outcomes, err := stores[0].Trigger(ctx, []store.TriggerItem{{ID: attempt(n).Run, Job: j.Definition.UID, Kind: job.RunByHand, Session: sessions[n%len(stores)]}})
		if err != nil || outcomes[0].Err != nil {
			t.Fatal(err, outcomes)
		}
	}
	for n := range runs {
		by, other := n%len(stores), (n+1)%len(stores)
		claim(by, n, store.Started)
		one := caching()
		if n+1 < runs {
			claim(other, n+1, store.Waiting)
		}
		if two := caching(); one == 0 || n+1 < runs && (two == 0 || two == one) {
			t.Fatalf("run %d was started by process %d, and the next one claimed by %d", n, one, two)
		}
		if n == runs/2 {
			exec(t, strings.Replace(address, "schema=", "search_path=", 1), "update active set priority = 7")
			if by := caching(); by != 0 {
				t.Errorf("process %d still caches runs that psql has changed", by)
			}
		}
		if _, err := stores[by].Finish(ctx, sessions[by], []store.Result{{Attempt: attempt(n), Ended: time.Now(), Outcome: job.OutcomeSucceeded}}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := stores[0].ListActive(ctx, store.ActiveQuery{Limit: runs})
	if err != nil || len(list) > 0 {
		t.Errorf("%d runs have not ended, %v", len(list), err)
	}
}
