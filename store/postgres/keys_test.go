//go:build servers

package postgres

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A key for each customer leaves no row for each of them, and the row of a key whose run has not ended
// stays.
func TestRowsOfUnusedKeysAreRemoved(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), emptySchema(t)
	s := open(t, address, Options{})
	j, err := store.PutOne(ctx, s, store.PutJob{Actor: "ann", Definition: &job.Job{
		Namespace: "default", Name: "j", Params: map[string]job.Param{"customer": {}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		Policy: job.Policy{Overlap: job.OverlapQueue, ConcurrencyKey: "c-{{ .Param.customer }}"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.Join(ctx, store.Session{ID: job.ID{1}, Node: "a", Machine: "m", DataDir: "a", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	const runs, batch = 1500, 500
	attempt := func(n int) (a store.Attempt) {
		a = store.Attempt{Job: j.Definition.UID, Run: job.ID{2}, Number: 1, Token: job.ID{3}}
		binary.BigEndian.PutUint32(a.Run[12:], uint32(n))
		binary.BigEndian.PutUint32(a.Token[12:], uint32(n))
		return a
	}
	for first := 0; first < runs; first += batch {
		var items []store.TriggerItem
		var attempts []store.Attempt
		var results []store.Result
		for n := first; n < first+batch; n++ {
			items = append(items, store.TriggerItem{ID: attempt(n).Run, Job: j.Definition.UID, Kind: job.RunByHand, Session: session.ID, Params: map[string]string{"customer": fmt.Sprint(n)}})
			if attempts = append(attempts, attempt(n)); n > 0 {
				results = append(results, store.Result{Attempt: attempt(n), Ended: time.Now(), Outcome: job.OutcomeSucceeded})
			}
		}
		if _, err := s.Trigger(ctx, items); err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(ctx, session.ID, attempts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range claims {
			if claims[i].Verdict != store.Started {
				t.Fatalf("run %d, alone with its key: %v", first+i, claims[i])
			}
		}
		if _, err := s.Finish(ctx, session.ID, results); err != nil {
			t.Fatal(err)
		}
	}
	for more := true; more; {
		if more, err = s.Tidy(ctx); err != nil {
			t.Fatal(err)
		}
	}
	d, err := connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	var n, held int
	if err := d.pool.QueryRow(ctx, "select count(*), count(*) filter (where name = 'default/c-0') from pools").Scan(&n, &held); err != nil {
		t.Fatal(err)
	}
	if n > 1000 || held != 1 {
		t.Errorf("%d rows are left, %d of the key that is in use", n, held)
	}
}
